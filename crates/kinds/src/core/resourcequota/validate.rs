//! What a ResourceQuota must be.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::core::pod::validate::resources;
use crate::prelude::*;

/// What a scope may limit beside the number of pods.
const COMPUTE: &[&str] = &["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
/// Scopes that go with the operator Exists alone.
const PLAIN_SCOPES: &[&str] = &["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"];
const OTHER_SCOPES: &[&str] = &["PriorityClass", "VolumeAttributesClass"];
const CONFLICTS: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

pub fn create(object: &ResourceQuota) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.spec.clone().unwrap_or_default();
    let path = Path::new("spec");
    amounts(&spec.hard, &path.child("hard"), &mut errors);
    scopes(&spec, &path.child("scopes"), &mut errors);
    scope_selector(&spec, &path.child("scopeSelector"), &mut errors);
    errors
}

fn amounts(amounts: &Option<BTreeMap<String, Quantity>>, path: &Path<'_>, errors: &mut ErrorList) {
    for (name, amount) in amounts.iter().flatten() {
        let path = path.key(name);
        resources::name_is_sound(name, &path, errors);
        if !name.contains('/') && !is_quota_resource(name) {
            errors.push(FieldError::invalid(&path, name, "must be a standard resource for quota"));
        }
        resources::value_is_sound(name, amount, &path, errors);
    }
}

fn is_quota_resource(name: &str) -> bool {
    resources::is_standard(name) && name != "storage" && !resources::is_huge_pages(name)
}

fn is_known(scope: &str) -> bool {
    PLAIN_SCOPES.contains(&scope) || OTHER_SCOPES.contains(&scope)
}

fn applies(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        scope if is_known(scope) => resource == "pods" || COMPUTE.contains(&resource),
        _ => true,
    }
}

/// Whether one of the hard limits is not for this scope.
fn misapplied<'a>(spec: &'a ResourceQuotaSpec, scope: &'a str) -> impl Iterator<Item = &'a String> {
    spec.hard.iter().flatten().map(|(name, _)| name).filter(move |name| is_quota_resource(name) && !applies(scope, name))
}

fn scopes(spec: &ResourceQuotaSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let list = items(&spec.scopes);
    let mut refuse = |why: &str| errors.push(FieldError::invalid(path, BadValue::typed(&list), why));
    for scope in list {
        if !is_known(scope) {
            refuse("unsupported scope");
        }
        for _ in misapplied(spec, scope) {
            refuse("unsupported scope applied to resource");
        }
    }
    let has = |scope: &str| list.iter().any(|s| s == scope);
    if CONFLICTS.iter().any(|(one, other)| has(one) && has(other)) {
        refuse("conflicting scopes");
    }
}

fn scope_selector(spec: &ResourceQuotaSpec, path: &Path<'_>, errors: &mut ErrorList) {
    const ONLY_EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                               ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
    let Some(selector) = &spec.scope_selector else { return };
    let path = path.child("matchExpressions");
    let expressions = items(&selector.match_expressions);
    for expression in expressions {
        let (scope, operator, values) = (expression.scope_name.as_str(), expression.operator.as_str(), items(&expression.values));
        if !is_known(scope) {
            errors.push(FieldError::invalid(&path.child("scopeName"), scope, "unsupported scope"));
        }
        for _ in misapplied(spec, scope) {
            let shown = validation::untagged(selector, "io.k8s.api.core.v1.ScopeSelector");
            errors.push(FieldError::invalid(&path, shown, "unsupported scope applied to resource"));
        }
        if PLAIN_SCOPES.contains(&scope) && operator != "Exists" {
            errors.push(FieldError::invalid(&path.child("operator"), operator, ONLY_EXISTS));
        }
        let here = path.child("values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(&here, why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(&here, BadValue::typed(&values), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(&path.child("operator"), operator, "not a valid selector operator")),
        }
    }
    let has = |scope: &str| expressions.iter().any(|e| e.scope_name == scope);
    if CONFLICTS.iter().any(|(one, other)| has(one) && has(other)) {
        errors.push(FieldError::invalid(&path, BadValue::typed(&items(&spec.scopes)), "conflicting scopes"));
    }
}

pub fn update(new: &ResourceQuota, old: &ResourceQuota) -> ErrorList {
    let mut errors = create(new);
    let list = |object: &ResourceQuota| {
        let mut list = object.spec.as_ref().and_then(|s| s.scopes.clone()).unwrap_or_default();
        list.sort_unstable();
        list.dedup();
        list
    };
    if list(new) != list(old) {
        let shown = new.spec.as_ref().and_then(|s| s.scopes.as_ref()).map_or_else(|| BadValue::Text("null".to_owned()), BadValue::typed);
        errors.push(FieldError::immutable(&Path::new("spec").child("scopes"), shown));
    }
    errors
}

pub fn status(object: &ResourceQuota) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = object.status.clone().unwrap_or_default();
    let path = Path::new("status");
    amounts(&status.hard, &path.child("hard"), &mut errors);
    amounts(&status.used, &path.child("used"), &mut errors);
    errors
}
