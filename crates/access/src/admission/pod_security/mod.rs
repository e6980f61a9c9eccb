//! PodSecurity: the pod security standards that a namespace's labels ask for.
//!
//! ```text
//! namespace labels --Policy::of--> level and version per mode --evaluate--> violations --> refusal | warning | audit annotation
//! ```
//!
//! Only pods are refused; for what makes pods (a Deployment, a Job) the same findings are warnings, since the pods themselves are refused later.
//! Rules: <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.

mod checks;
mod policy;

use std::collections::BTreeMap;

use serde_json::Value;
use wheelhouse_meta::{GroupKind, Status};

use super::pod::{containers, text};
use super::{Notes, Operation, Request};
use crate::lookups::{Answer, Lookups};
use checks::{Violations, evaluate};
use policy::{Level, Policy, Standard};

/// Existing pods that are looked at when a namespace is tightened; upstream's number.
const MAX_EXISTING_PODS: usize = 3000;

/// Subresources of a pod that cannot change what it may do.
const IGNORED_SUBRESOURCES: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

pub(super) fn validate(request: &Request<'_>, object: &Value, lookups: &dyn Lookups, notes: &mut Notes) -> Answer<()> {
    if !matches!(request.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    match (request.group(), request.resource()) {
        ("", "namespaces") => namespace(request, object, lookups, notes),
        ("", "pods") => pod(request, object, lookups, notes),
        _ => controller(request, object, lookups, notes),
    }
}

/// The labels must mean something; tightening a namespace warns of the pods that would not be let in again.
fn namespace(request: &Request<'_>, object: &Value, lookups: &dyn Lookups, notes: &mut Notes) -> Answer<()> {
    if !request.subresource().is_empty() {
        return Ok(());
    }
    let name = text(&object["metadata"], "name");
    let (new, errors) = Policy::of(object);
    let (old, old_errors) = match request.old {
        Some(old) => Policy::of(old),
        None => Default::default(),
    };
    if !errors.is_empty() && (request.old.is_none() || errors != old_errors) {
        return Err(Box::new(Status::invalid(&GroupKind::new("", "Namespace"), name, &errors)));
    }
    let (standard, before) = (new.enforce, old.enforce);
    let relaxed = standard.version == before.version && standard.level <= before.level;
    if request.old.is_none() || standard == before || standard.level == Level::Privileged || relaxed {
        return Ok(());
    }
    notes.warnings.extend(existing(name, standard, &lookups.list("", "pods", name)));
    Ok(())
}

/// One line for each kind of violation, with the first pod that has it.
fn existing(namespace: &str, standard: Standard, pods: &[Value]) -> Vec<String> {
    let mut found: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for pod in pods.iter().take(MAX_EXISTING_PODS) {
        let violations = evaluate(standard, &pod["metadata"], &pod["spec"]);
        if !violations.is_empty() {
            found.entry(violations.reasons()).or_insert((text(&pod["metadata"], "name"), 0)).1 += 1;
        }
    }
    let mut warnings = Vec::new();
    if pods.len() > MAX_EXISTING_PODS {
        warnings.push(format!("new PodSecurity enforce level only checked against the first {MAX_EXISTING_PODS} of {} existing pods", pods.len()));
    }
    if found.is_empty() {
        return warnings;
    }
    warnings.push(format!("existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""));
    let mut lines: Vec<String> = found
        .iter()
        .map(|(reasons, (pod, count))| match count {
            1 => format!("{pod}: {reasons}"),
            2 => format!("{pod} (and 1 other pod): {reasons}"),
            n => format!("{pod} (and {} other pods): {reasons}", n - 1),
        })
        .collect();
    lines.sort_unstable();
    warnings.extend(lines);
    warnings
}

fn pod(request: &Request<'_>, object: &Value, lookups: &dyn Lookups, notes: &mut Notes) -> Answer<()> {
    if IGNORED_SUBRESOURCES.contains(&request.subresource()) || request.old.is_some_and(|old| !is_significant(object, old)) {
        return Ok(());
    }
    let (policy, errors) = policy_of(request, lookups);
    if policy.enforce.level == Level::Privileged && policy.is_silent() && errors.is_empty() {
        return Ok(());
    }
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let violations = evaluate(policy.enforce, metadata, spec);
    notes.annotate("pod-security.kubernetes.io/enforce-policy", policy.enforce.to_string());
    if violations.is_empty() {
        report(policy, metadata, spec, true, notes);
        return Ok(());
    }
    report(policy, metadata, spec, false, notes);
    Err(request.forbidden(Some(object), format!("violates PodSecurity \"{}\": {}", policy.enforce, violations.details())))
}

/// What holds a pod template.
fn controller(request: &Request<'_>, object: &Value, lookups: &dyn Lookups, notes: &mut Notes) -> Answer<()> {
    let template = match (request.group(), request.resource()) {
        ("", "podtemplates") => &object["template"],
        ("", "replicationcontrollers") | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets") | ("batch", "jobs") => {
            &object["spec"]["template"]
        }
        ("batch", "cronjobs") => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => return Ok(()),
    };
    if !request.subresource().is_empty() || template.is_null() {
        return Ok(());
    }
    let (policy, errors) = policy_of(request, lookups);
    if !policy.is_silent() || !errors.is_empty() {
        report(policy, &template["metadata"], &template["spec"], true, notes);
    }
    Ok(())
}

fn policy_of(request: &Request<'_>, lookups: &dyn Lookups) -> (Policy, wheelhouse_meta::field::ErrorList) {
    let namespace = lookups.get("", "namespaces", "", request.attributes.namespace()).unwrap_or_default();
    Policy::of(&namespace)
}

/// The modes that refuse nothing.
fn report(policy: Policy, metadata: &Value, spec: &Value, warn: bool, notes: &mut Notes) {
    let would = |standard: Standard, violations: &Violations| format!("would violate PodSecurity \"{standard}\": {}", violations.details());
    let audited = evaluate(policy.audit, metadata, spec);
    if !audited.is_empty() {
        notes.annotate("pod-security.kubernetes.io/audit-violations", would(policy.audit, &audited));
    }
    let warned = if warn { evaluate(policy.warn, metadata, spec) } else { Violations::default() };
    if !warned.is_empty() {
        notes.warnings.push(would(policy.warn, &warned));
    }
}

/// Whether an update of a pod can make a difference: images and seccomp annotations are all that may change.
fn is_significant(pod: &Value, old: &Value) -> bool {
    let annotation = |pod: &Value, key: &str| pod["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned();
    let changed = |container: &Value, before: &Value| {
        let key = format!("{SECCOMP_CONTAINER}{}", text(container, "name"));
        text(container, "image") != text(before, "image") || annotation(pod, &key) != annotation(old, &key)
    };
    let lists_differ = ["containers", "initContainers"].into_iter().any(|list| {
        let (new, before) = (containers(pod, list), containers(old, list));
        new.len() != before.len() || new.iter().zip(before).any(|(c, b)| changed(c, b))
    });
    let known = containers(old, "ephemeralContainers");
    let ephemeral = containers(pod, "ephemeralContainers").iter().any(|container| {
        let before = known.iter().find(|b| text(b, "name") == text(container, "name"));
        before.is_none_or(|before| changed(container, before))
    });
    annotation(pod, SECCOMP_POD) != annotation(old, SECCOMP_POD) || lists_differ || ephemeral
}

#[cfg(test)]
mod tests;
