//! Which requests a webhook or a policy looks at.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MatchResources, NamedRuleWithOperations, RuleWithOperations};
use wheelhouse_meta::validation as names;

use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
pub const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
pub const REINVOCATION_POLICIES: &[&str] = &["IfNeeded", "Never"];
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];

/// Conditions of one webhook or policy.
const MAX_CONDITIONS: usize = 64;

pub fn default_rules(rules: &mut Option<Vec<RuleWithOperations>>) {
    for rule in rules.iter_mut().flatten() {
        or_text(&mut rule.scope, "*");
    }
}

pub fn default_match(resources: &mut MatchResources) {
    or_text(&mut resources.match_policy, "Equivalent");
    resources.namespace_selector.get_or_insert_default();
    resources.object_selector.get_or_insert_default();
    for rule in resources.resource_rules.iter_mut().chain(resources.exclude_resource_rules.iter_mut()).flatten() {
        or_text(&mut rule.scope, "*");
    }
}

/// One of a closed set, or absent where a default stands in.
pub fn policy(value: &Option<String>, allowed: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(value) = value.as_ref().filter(|v| !allowed.contains(&v.as_str())) {
        errors.push(FieldError::not_supported(path, value, allowed));
    }
}

/// The same where it must be there.
pub fn required_policy(value: &Option<String>, allowed: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    match text(value) {
        "" => errors.push(FieldError::required(path, "")),
        _ => policy(value, allowed, path, errors),
    }
}

pub fn rule(rule: &RuleWithOperations, path: &Path<'_>, errors: &mut ErrorList) {
    let (operations, here) = (items(&rule.operations), path.child("operations"));
    some_and_alone(operations, "operations", &here, errors);
    for (at, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(&operation.as_str()) {
            errors.push(FieldError::not_supported(&here.index(at), operation, OPERATIONS));
        }
    }
    some_and_alone(items(&rule.api_groups), "API groups", &path.child("apiGroups"), errors);
    let (versions, here) = (items(&rule.api_versions), path.child("apiVersions"));
    some_and_alone(versions, "API versions", &here, errors);
    for (at, _) in versions.iter().enumerate().filter(|(_, version)| version.is_empty()) {
        errors.push(FieldError::required(&here.index(at), ""));
    }
    resources(items(&rule.resources), &path.child("resources"), errors);
    policy(&rule.scope, SCOPES, &path.child("scope"), errors);
}

/// At least one, and nothing beside a `*`.
fn some_and_alone(list: &[String], others: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if list.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if list.len() > 1 && list.iter().any(|i| i == "*") {
        errors.push(FieldError::invalid(path, BadValue::typed(&list), format!("if '*' is present, must not specify other {others}")));
    }
}

/// `pods`, `pods/log`, `pods/*`, `*/scale`, `*`, `*/*`, none of them covered by another.
fn resources(list: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    if list.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let mut whole_parents: Vec<&str> = Vec::new();
    let mut whole_subresources: Vec<&str> = Vec::new();
    let mut last_is_plain = false;
    for (at, entry) in list.iter().enumerate() {
        let here = path.index(at);
        if entry.is_empty() {
            errors.push(FieldError::required(&here, ""));
            continue;
        }
        let Some((parent, subresource)) = entry.split_once('/') else {
            last_is_plain = entry != "*";
            continue;
        };
        if whole_parents.contains(&parent) {
            errors.push(FieldError::invalid(&here, entry, format!("if '{parent}/*' is present, must not specify {entry}")));
        }
        if whole_subresources.contains(&subresource) {
            errors.push(FieldError::invalid(&here, entry, format!("if '*/{subresource}' is present, must not specify {entry}")));
        }
        if subresource == "*" {
            whole_parents.push(parent);
        }
        if parent == "*" {
            whole_subresources.push(subresource);
        }
    }
    let has = |what: &str| list.iter().any(|e| e == what);
    if list.len() > 1 && has("*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, BadValue::typed(&list), why));
    }
    if has("*") && last_is_plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, BadValue::typed(&list), why));
    }
}

pub fn match_resources(resources: &MatchResources, path: &Path<'_>, errors: &mut ErrorList) {
    required_policy(&resources.match_policy, MATCH_POLICIES, &path.child("matchPolicy"), errors);
    for (field, selector) in [("namespaceSelector", &resources.namespace_selector), ("objectSelector", &resources.object_selector)] {
        match selector {
            Some(selector) => validation::label_selector(selector, &path.child(field), errors),
            None => errors.push(FieldError::required(&path.child(field), "")),
        }
    }
    for (field, rules) in [("resourceRules", &resources.resource_rules), ("excludeResourceRules", &resources.exclude_resource_rules)] {
        let here = path.child(field);
        for (at, rule) in items(rules).iter().enumerate() {
            named_rule(rule, &here.index(at), errors);
        }
    }
}

fn named_rule(named: &NamedRuleWithOperations, path: &Path<'_>, errors: &mut ErrorList) {
    let (list, here) = (items(&named.resource_names), path.child("resourceNames"));
    for (at, name) in list.iter().enumerate() {
        validation::texts(names::path_segment_name(name), name, &here.index(at), errors);
        if list[..at].contains(name) {
            errors.push(FieldError::duplicate(&here.index(at), name));
        }
    }
    let plain = RuleWithOperations {
        api_groups: named.api_groups.clone(),
        api_versions: named.api_versions.clone(),
        operations: named.operations.clone(),
        resources: named.resources.clone(),
        scope: named.scope.clone(),
    };
    rule(&plain, path, errors);
}

/// Conditions, each with a name of its own and an expression.
pub fn match_conditions(conditions: &[MatchCondition], path: &Path<'_>, errors: &mut ErrorList) {
    if conditions.len() > MAX_CONDITIONS {
        errors.push(FieldError::too_many(path, conditions.len(), MAX_CONDITIONS));
    }
    for (at, condition) in conditions.iter().enumerate() {
        let path = path.index(at);
        if condition.expression.trim().is_empty() {
            errors.push(FieldError::required(&path.child("expression"), ""));
        }
        let (name, here) = (&condition.name, path.child("name"));
        if name.is_empty() {
            errors.push(FieldError::required(&here, ""));
            continue;
        }
        validation::texts(names::qualified_name(name), name, &here, errors);
        if conditions[..at].iter().any(|c| c.name == *name) {
            errors.push(FieldError::duplicate(&here, name));
        }
    }
}
