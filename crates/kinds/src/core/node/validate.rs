//! What a Node must be.

use k8s_openapi::api::core::v1::{Node, Taint};
use wheelhouse_meta::validation as names;

use crate::core::pod::validate::{resources, scheduling};
use crate::prelude::*;

pub fn create(object: &Node) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.spec.clone().unwrap_or_default();
    // Upstream reports taints under metadata.
    taints(items(&spec.taints), &Path::new("metadata").child("taints"), &mut errors);
    amounts(object, &mut errors);
    let path = Path::new("spec");
    let path = path.child("podCIDRs");
    let ranges = items(&spec.pod_cidrs);
    for (at, range) in ranges.iter().enumerate() {
        errors.extend(names::cidr(range, &path.index(at)));
    }
    if ranges.len() > 1 {
        let families: Vec<bool> = ranges.iter().filter_map(|r| names::parse_cidr(r)).map(|(ip, _)| ip.is_ipv4()).collect();
        let both = families.contains(&true) && families.contains(&false);
        if !both || ranges.len() > 2 {
            let why = "may specify no more than one CIDR for each IP family";
            errors.push(FieldError::invalid(&path, BadValue::typed(&ranges), why));
        }
        for (at, range) in ranges.iter().enumerate() {
            if ranges[..at].contains(range) {
                errors.push(FieldError::duplicate(&path.index(at), range));
            }
        }
    }
    errors
}

fn amounts(object: &Node, errors: &mut ErrorList) {
    let Some(status) = &object.status else { return };
    let path = Path::new("status");
    for (field, amounts) in [("capacity", &status.capacity), ("allocatable", &status.allocatable)] {
        let path = path.child(field);
        for (name, amount) in amounts.iter().flatten() {
            resources::value_is_sound(name, amount, &path.child(name), errors);
        }
    }
}

pub fn taints(list: &[Taint], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, taint) in list.iter().enumerate() {
        let path = path.index(at);
        validation::texts(names::qualified_name(&taint.key), &taint.key, &path.child("key"), errors);
        let problems = names::label_value(text(&taint.value));
        if !problems.is_empty() {
            errors.push(FieldError::invalid(&path.child("value"), text(&taint.value), problems.join(";")));
        }
        if taint.effect.is_empty() {
            errors.push(FieldError::required(&path.child("effect"), ""));
        } else if !scheduling::EFFECTS.contains(&taint.effect.as_str()) {
            errors.push(FieldError::not_supported(&path.child("effect"), &taint.effect, scheduling::EFFECTS));
        }
        if list[..at].iter().any(|other| other.key == taint.key && other.effect == taint.effect) {
            let shown = validation::untagged(taint, "io.k8s.api.core.v1.Taint");
            errors.push(FieldError::duplicate(&path, shown).with_detail("taints must be unique by key and effect pair"));
        }
    }
}

pub fn update(new: &Node, old: &Node) -> ErrorList {
    let mut errors = ErrorList::new();
    amounts(new, &mut errors);
    let addresses = new.status.as_ref().map(|s| items(&s.addresses)).unwrap_or_default();
    let path = Path::new("status");
    let path = path.child("addresses");
    for (at, address) in addresses.iter().enumerate() {
        if addresses[..at].contains(address) {
            let shown = validation::untagged(address, "io.k8s.api.core.v1.NodeAddress");
            errors.push(FieldError::duplicate(&path.index(at), shown));
        }
    }
    let (new, old) = (new.spec.clone().unwrap_or_default(), old.spec.clone().unwrap_or_default());
    let path = Path::new("spec");
    if !items(&old.pod_cidrs).is_empty() && items(&new.pod_cidrs) != items(&old.pod_cidrs) {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden(&path.child("podCIDRs"), why));
    }
    if !text(&old.provider_id).is_empty() && new.provider_id != old.provider_id {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden(&path.child("providerID"), why));
    }
    taints(items(&new.taints), &Path::new("metadata").child("taints"), &mut errors);
    errors
}
