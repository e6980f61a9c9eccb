//! What may change of a Pod, request by request.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, EphemeralContainer, Pod, PodSpec, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use wheelhouse_meta::gotext::quote;
use wheelhouse_meta::validation as names;

use super::validate;
use crate::internal;
use crate::prelude::*;

const EPHEMERAL_CONTAINER: &str = "io.k8s.api.core.v1.EphemeralContainer";
const POD_SPEC: &str = "io.k8s.api.core.v1.PodSpec";
const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
                         additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                         previously negative)";

pub fn pod(new: &Pod, old: &Pod) -> ErrorList {
    let mut errors = ErrorList::new();
    validate::pod(new, &mut errors);
    let (Some(new), Some(old)) = (&new.spec, &old.spec) else { return errors };
    let path = Path::new("spec");
    if !same_count(&new.containers, &old.containers, &path.child("containers"), &mut errors)
        || !same_count(items(&new.init_containers), items(&old.init_containers), &path.child("initContainers"), &mut errors)
        || !deadline(new, old, &path.child("activeDeadlineSeconds"), &mut errors)
    {
        return errors;
    }
    added_tolerations(items(&new.tolerations), items(&old.tolerations), &path.child("tolerations"), &mut errors);
    let gates = path.child("schedulingGates");
    for (at, gate) in items(&new.scheduling_gates).iter().enumerate() {
        if !items(&old.scheduling_gates).iter().any(|g| g.name == gate.name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{}'", gate.name);
            errors.push(FieldError::forbidden(&gates.index(at).child("name"), why));
        }
    }
    let munged = munge(new, old, &path, &mut errors);
    if munged != *old {
        let lines = |spec: &PodSpec| internal::untagged(&serde_json::to_value(spec).unwrap_or_default(), POD_SPEC).lines();
        let difference = crate::line_difference::unified(&lines(old), &lines(&munged));
        let why = format!("pod updates may not change fields other than {UPDATABLE}\n{difference}");
        errors.push(FieldError::forbidden(&path, why));
    }
    errors
}

/// `false` ends the validation.
fn same_count(new: &[Container], old: &[Container], path: &Path<'_>, errors: &mut ErrorList) -> bool {
    if new.len() != old.len() {
        errors.push(FieldError::forbidden(path, "pod updates may not add or remove containers"));
    }
    new.len() == old.len()
}

/// The deadline comes closer only. `false` ends the validation.
fn deadline(new: &PodSpec, old: &PodSpec, path: &Path<'_>, errors: &mut ErrorList) -> bool {
    match (new.active_deadline_seconds, old.active_deadline_seconds) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.push(FieldError::invalid(path, new, names::range_error(0, i64::from(i32::MAX))));
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.push(FieldError::invalid(path, new, "must be less than or equal to previous value"));
            false
        }
        (None, Some(_)) => {
            errors.push(FieldError::invalid(path, BadValue::Null, "must not update from a positive integer to nil value"));
            true
        }
        _ => true,
    }
}

fn added_tolerations(new: &[Toleration], old: &[Toleration], path: &Path<'_>, errors: &mut ErrorList) {
    let timeless = |t: &Toleration| Toleration { toleration_seconds: None, ..t.clone() };
    for old in old {
        if !new.iter().any(|new| timeless(new) == timeless(old)) {
            errors.push(FieldError::forbidden(path, "existing toleration can not be modified except its tolerationSeconds"));
            return;
        }
    }
}

/// The new spec with everything that may differ put back to the old.
fn munge(new: &PodSpec, old: &PodSpec, path: &Path<'_>, errors: &mut ErrorList) -> PodSpec {
    let mut munged = new.clone();
    let restore = |new: &mut [Container], old: &[Container]| {
        for (new, old) in new.iter_mut().zip(old) {
            new.image.clone_from(&old.image);
        }
    };
    restore(&mut munged.containers, &old.containers);
    restore(munged.init_containers.as_deref_mut().unwrap_or_default(), items(&old.init_containers));
    munged.active_deadline_seconds = old.active_deadline_seconds;
    munged.scheduling_gates.clone_from(&old.scheduling_gates);
    munged.tolerations.clone_from(&old.tolerations);
    let grace = |spec: &PodSpec| spec.termination_grace_period_seconds;
    if grace(old).is_some_and(|s| s < 0) && grace(new) == Some(1) {
        munged.termination_grace_period_seconds = grace(old);
    }
    // While gates hold it back, a pod may still be narrowed to fewer nodes.
    if !items(&old.scheduling_gates).is_empty() && munged.node_selector != old.node_selector {
        let kept = |(key, value): (&String, &String)| munged.node_selector.as_ref().and_then(|s| s.get(key)) == Some(value);
        if old.node_selector.iter().flatten().all(kept) {
            munged.node_selector.clone_from(&old.node_selector);
        } else {
            let selector = path.child("nodeSelector");
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(&selector, BadValue::typed(&munged.node_selector), why));
            munged.node_selector.clone_from(&old.node_selector);
        }
    }
    munged
}

pub fn ephemeral_containers(new: &Pod, old: &Pod) -> ErrorList {
    let mut errors = ErrorList::new();
    validate::pod(new, &mut errors);
    let list = |pod: &Pod| pod.spec.as_ref().and_then(|s| s.ephemeral_containers.clone()).unwrap_or_default();
    let (new, old) = (list(new), list(old));
    let spec = Path::new("spec");
    let path = spec.child("ephemeralContainers");
    for old in &old {
        match new.iter().find(|c| c.name == old.name) {
            None => {
                let why = format!("existing ephemeral containers {} may not be removed\n", quote(&old.name));
                errors.push(FieldError::forbidden(&path, why));
            }
            Some(container) if container != old => {
                let lines = |c: &EphemeralContainer| internal::untagged(&serde_json::to_value(c).unwrap_or_default(), EPHEMERAL_CONTAINER).lines();
                let difference = crate::line_difference::unified(&lines(old), &lines(container));
                let why = format!("existing ephemeral containers {} may not be changed\n{difference}", quote(&old.name));
                errors.push(FieldError::forbidden(&path, why));
            }
            Some(_) => {}
        }
    }
    errors
}

pub fn resize(new: &Pod, old: &Pod) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    if new.spec.as_ref().map(|s| s.containers.len()) != old.spec.as_ref().map(|s| s.containers.len()) {
        errors.push(FieldError::forbidden(&spec, "only cpu and memory resources are mutable"));
        return errors;
    }
    validate::pod(new, &mut errors);
    if !errors.is_empty() {
        return errors;
    }
    if others_changed(new, old) {
        errors.push(FieldError::forbidden(&spec, "only cpu and memory resources are mutable"));
    }
    let class = |pod: &Pod| pod.spec.as_ref().map(super::qos_class);
    if class(new) != class(old) {
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid(&spec, class(new).unwrap_or_default(), why));
    }
    errors
}

/// Whether any container's resources differ beside CPU and memory.
fn others_changed(new: &Pod, old: &Pod) -> bool {
    let others = |amounts: &Option<BTreeMap<String, Quantity>>| -> Vec<(String, Quantity)> {
        let kept = amounts.iter().flatten().filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"));
        kept.map(|(name, amount)| (name.clone(), amount.clone())).collect()
    };
    let of = |pod: &Pod| -> Vec<_> {
        let spec = pod.spec.clone().unwrap_or_default();
        let containers = spec.containers.iter().chain(items(&spec.init_containers));
        containers
            .map(|c| c.resources.clone().unwrap_or_default())
            .map(|r| (others(&r.limits), others(&r.requests), r.claims.unwrap_or_default()))
            .collect()
    };
    of(new) != of(old)
}

pub fn status(new: &Pod, old: &Pod) -> ErrorList {
    let mut errors = ErrorList::new();
    let (Some(status), Some(old_status)) = (&new.status, &old.status) else { return errors };
    let path = Path::new("status");
    let conditions = path.child("conditions");
    for (at, condition) in items(&status.conditions).iter().enumerate() {
        let system = ["PodScheduled", "Ready", "Initialized", "ContainersReady", "DisruptionTarget"];
        if !system.contains(&condition.type_.as_str()) {
            let path = conditions.index(at);
            validation::texts(names::qualified_name(&condition.type_), &condition.type_, &path.child("Type"), &mut errors);
        }
    }
    let nominated = text(&status.nominated_node_name);
    if !nominated.is_empty() {
        validation::texts(names::dns1123_subdomain(nominated), nominated, &path.child("nominatedNodeName"), &mut errors);
    }
    if status.qos_class != old_status.qos_class {
        errors.push(FieldError::immutable(&path.child("qosClass"), text(&status.qos_class)));
    }
    let restart = old.spec.as_ref().map(|s| text(&s.restart_policy)).unwrap_or_default();
    let (new_list, old_list) = (items(&status.container_statuses), items(&old_status.container_statuses));
    state_transition(new_list, old_list, restart, &path.child("containerStatuses"), &mut errors);
    let ips = path.child("podIPs");
    for (at, ip) in items(&status.pod_ips).iter().enumerate() {
        errors.extend(names::ip(&ip.ip, &ips.index(at)));
    }
    errors
}

/// A container that is done and is not to be restarted stays done.
fn state_transition(new: &[ContainerStatus], old: &[ContainerStatus], restart: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if restart == "Always" {
        return;
    }
    for old in old {
        let Some(ended) = old.state.as_ref().and_then(|s| s.terminated.as_ref()) else { continue };
        if ended.exit_code != 0 && restart == "OnFailure" {
            continue;
        }
        for (at, new) in new.iter().enumerate() {
            if new.name == old.name && new.state.as_ref().is_none_or(|s| s.terminated.is_none()) {
                let why = "may not be transitioned to non-terminated state";
                errors.push(FieldError::forbidden(&path.index(at).child("state"), why));
            }
        }
    }
}
