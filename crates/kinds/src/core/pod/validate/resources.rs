//! Requests and limits.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use wheelhouse_meta::validation as names;

use super::quantity;
use crate::prelude::*;

/// Names without a domain that mean something somewhere.
const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Those of them that count whole things.
const INTEGER: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

pub fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// A domain of its own, and short enough to be prefixed for a quota.
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Qualified, and known unless it has a domain.
pub fn name_is_sound(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let before = errors.len();
    validation::texts(names::qualified_name(name), name, path, errors);
    if errors.len() == before && !name.contains('/') && !is_standard(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
    }
}

pub fn container_resource_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    name_is_sound(name, path, errors);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_pages(name) {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

/// Not negative, and whole where it counts things.
pub fn value_is_sound(name: &str, value: &Quantity, path: &Path<'_>, errors: &mut ErrorList) {
    let amount = quantity(value);
    if amount.sign() < 0 {
        errors.push(FieldError::invalid(path, &value.0, "must be greater than or equal to 0"));
    }
    if (INTEGER.contains(&name) || is_extended(name)) && amount.milli_value() % 1000 != 0 {
        errors.push(FieldError::invalid(path, &value.0, "must be an integer"));
    }
}

pub fn validate(resources: &ResourceRequirements, claims: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let (mut computes, mut huge) = (false, false);
    for (name, limit) in resources.limits.iter().flatten() {
        let path = limits_path.key(name);
        container_resource_name(name, &path, errors);
        value_is_sound(name, limit, &path, errors);
        computes |= matches!(name.as_str(), "cpu" | "memory");
        huge |= is_huge_pages(name);
    }
    for (name, request) in resources.requests.iter().flatten() {
        let path = requests_path.key(name);
        container_resource_name(name, &path, errors);
        value_is_sound(name, request, &path, errors);
        computes |= matches!(name.as_str(), "cpu" | "memory");
        huge |= is_huge_pages(name);
        let overcommits = is_native(name) && !is_huge_pages(name);
        match resources.limits.as_ref().and_then(|l| l.get(name)) {
            Some(limit) => {
                let (asked, most) = (quantity(request), quantity(limit));
                if asked != most && !overcommits {
                    let why = format!("must be equal to {name} limit of {}", limit.0);
                    errors.push(FieldError::invalid(&requests_path, &request.0, why));
                } else if asked > most {
                    let why = format!("must be less than or equal to {name} limit of {}", limit.0);
                    errors.push(FieldError::invalid(&requests_path, &request.0, why));
                }
            }
            None if !overcommits => {
                errors.push(FieldError::required(&limits_path, "Limit must be set for non overcommitable resources"));
            }
            None => {}
        }
    }
    if huge && !computes {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    let claims_path = path.child("claims");
    let mut taken = Vec::new();
    for (at, claim) in items(&resources.claims).iter().enumerate() {
        let path = claims_path.index(at);
        if claim.name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        } else if taken.contains(&(claim.name.as_str(), text(&claim.request))) {
            errors.push(FieldError::duplicate(&path, claim.name.as_str()));
        } else if !claims.contains(&claim.name.as_str()) {
            errors.push(FieldError::not_found(&path.child("name"), &claim.name));
        }
        taken.push((&claim.name, text(&claim.request)));
    }
}
