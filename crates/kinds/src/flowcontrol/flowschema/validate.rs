//! What a FlowSchema must be.

use k8s_openapi::api::flowcontrol::v1::{FlowSchema, NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule, Subject};
use wheelhouse_meta::validation as names;

use crate::prelude::*;

const METHOD: &str = "io.k8s.api.flowcontrol.v1.FlowDistinguisherMethod";
const METHODS: &[&str] = &["ByNamespace", "ByUser"];

/// The schema of requests that never wait, alone in the first place.
const EXEMPT: &str = "exempt";

const MAX_PRECEDENCE: i32 = 10_000;

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub fn schema(object: &FlowSchema) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    let (precedence, here) = (spec.matching_precedence.unwrap_or_default(), path.child("matchingPrecedence"));
    if precedence <= 0 {
        errors.push(FieldError::invalid(&here, precedence, "must be a positive value"));
    }
    if precedence > MAX_PRECEDENCE {
        errors.push(FieldError::invalid(&here, precedence, format!("must not be greater than {MAX_PRECEDENCE}")));
    }
    if precedence == 1 && text(&object.metadata.name) != EXEMPT {
        errors.push(FieldError::invalid(&here, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"));
    }
    if let Some(method) = spec.distinguisher_method.as_ref().filter(|m| !METHODS.contains(&m.type_.as_str())) {
        let here = path.child("distinguisherMethod");
        errors.push(FieldError::not_supported(&here.child("type"), validation::untagged(method, METHOD), METHODS));
    }
    let level = path.child("priorityLevelConfiguration");
    let (level, name) = (level.child("name"), &spec.priority_level_configuration.name);
    if name.is_empty() {
        errors.push(FieldError::required(&level, "must reference a priority level"));
    } else {
        validation::texts(names::dns1123_subdomain(name), name, &level, &mut errors);
    }
    let rules = path.child("rules");
    for (at, one) in items(&spec.rules).iter().enumerate() {
        rule(one, &rules.index(at), &mut errors);
    }
    errors
}

fn rule(rule: &PolicyRulesWithSubjects, path: &Path<'_>, errors: &mut ErrorList) {
    let subjects = path.child("subjects");
    if rule.subjects.is_empty() {
        errors.push(FieldError::required(&subjects, "subjects must contain at least one value"));
    }
    for (at, one) in rule.subjects.iter().enumerate() {
        subject(one, &subjects.index(at), errors);
    }
    let (resources, others) = (items(&rule.resource_rules), items(&rule.non_resource_rules));
    if resources.is_empty() && others.is_empty() {
        errors.push(FieldError::required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    let here = path.child("resourceRules");
    for (at, one) in resources.iter().enumerate() {
        resource_rule(one, &here.index(at), errors);
    }
    let here = path.child("nonResourceRules");
    for (at, one) in others.iter().enumerate() {
        non_resource_rule(one, &here.index(at), errors);
    }
}

fn subject(subject: &Subject, path: &Path<'_>, errors: &mut ErrorList) {
    let kind = subject.kind.as_str();
    if !matches!(kind, "Group" | "ServiceAccount" | "User") {
        errors.push(FieldError::not_supported(&path.child("kind"), kind, &["Group", "ServiceAccount", "User"]));
        return;
    }
    let member = |field: &str, name: Option<&str>, errors: &mut ErrorList| match name {
        None => errors.push(FieldError::required(&path.child(field), format!("{field} is required when subject kind is '{kind}'"))),
        Some("") => errors.push(FieldError::required(&path.child(field).child("name"), "")),
        Some(_) => {}
    };
    match kind {
        "User" => member("user", subject.user.as_ref().map(|u| u.name.as_str()), errors),
        "Group" => member("group", subject.group.as_ref().map(|g| g.name.as_str()), errors),
        _ => {
            member("serviceAccount", subject.service_account.as_ref().map(|a| a.name.as_str()), errors);
            if let Some(account) = &subject.service_account {
                service_account(&account.name, &account.namespace, &path.child("serviceAccount"), errors);
            }
        }
    }
    let all = [
        ("serviceAccount", "ServiceAccount", subject.service_account.is_some()),
        ("user", "User", subject.user.is_some()),
        ("group", "Group", subject.group.is_some()),
    ];
    for (field, of, is_set) in all {
        if is_set && of != kind {
            errors.push(FieldError::forbidden(&path.child(field), format!("{field} is forbidden when subject kind is not '{of}'")));
        }
    }
}

fn service_account(name: &str, namespace: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if !name.is_empty() && name != "*" {
        validation::texts(names::dns1123_subdomain(name), name, &path.child("name"), errors);
    }
    if namespace.is_empty() {
        errors.push(FieldError::required(&path.child("namespace"), "must specify namespace for service account"));
    } else {
        validation::texts(names::dns1123_label(namespace), namespace, &path.child("namespace"), errors);
    }
}

fn resource_rule(rule: &ResourcePolicyRule, path: &Path<'_>, errors: &mut ErrorList) {
    verbs(&rule.verbs, path, errors);
    let lists = [
        ("apiGroups", &rule.api_groups, "resource rules must supply at least one api group", "api groups"),
        ("resources", &rule.resources, "resource rules must supply at least one resource", "resources"),
    ];
    for (field, list, none, others) in lists {
        if list.is_empty() {
            errors.push(FieldError::required(&path.child(field), none));
        } else {
            alone(list, others, &path.child(field), errors);
        }
    }
    let (namespaces, here) = (items(&rule.namespaces), path.child("namespaces"));
    if namespaces.is_empty() && rule.cluster_scope != Some(true) {
        errors.push(FieldError::required(&here, "resource rules that are not cluster scoped must supply at least one namespace"));
    } else if namespaces.iter().any(|n| n == "*") {
        alone(namespaces, "namespaces", &here, errors);
    } else {
        for (at, namespace) in namespaces.iter().enumerate() {
            for problem in names::dns1123_label(namespace) {
                let why = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
                errors.push(FieldError::invalid(&here.index(at), namespace, why));
            }
        }
    }
}

fn non_resource_rule(rule: &NonResourcePolicyRule, path: &Path<'_>, errors: &mut ErrorList) {
    verbs(&rule.verbs, path, errors);
    let (urls, here) = (&rule.non_resource_urls, path.child("nonResourceURLs"));
    if urls.is_empty() {
        errors.push(FieldError::required(&here, "nonResourceURLs must contain at least one value"));
    } else if urls.iter().any(|u| u == "*") {
        alone(urls, "non-resource URLs", &here, errors);
    } else {
        for (at, url) in urls.iter().enumerate() {
            if let Some(why) = fault_of_url(url) {
                errors.push(FieldError::invalid(&here.index(at), url, why));
            }
        }
    }
}

fn verbs(verbs: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("verbs");
    if verbs.is_empty() {
        errors.push(FieldError::required(&here, "verbs must contain at least one value"));
    } else if verbs.iter().any(|v| v == "*") {
        alone(verbs, "verbs", &here, errors);
    } else if verbs.iter().any(|v| !VERBS.contains(&v.as_str())) {
        errors.push(FieldError::not_supported(&here, BadValue::typed(&verbs), VERBS));
    }
}

/// `*` stands for all, so nothing may stand beside it.
fn alone(list: &[String], others: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if list.len() > 1 && list.iter().any(|i| i == "*") {
        errors.push(FieldError::invalid(path, BadValue::typed(&list), format!("if '*' is present, must not specify other {others}")));
    }
}

/// A path, which may end in `/*`.
fn fault_of_url(url: &str) -> Option<&'static str> {
    let wildcards = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}
