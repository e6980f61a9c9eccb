//! What a ResourceSlice must be.

use k8s_openapi::api::resource::v1::{CounterSet, ResourcePool, ResourceSlice, ResourceSliceSpec};
use wheelhouse_meta::validation as meta;

use super::device;
use crate::core::pod::validate::scheduling;
use crate::prelude::*;
use crate::resource::{lists, names};

/// Devices of a slice; fewer where any has taints or shares counters, which makes them larger.
const MAX_DEVICES: usize = 128;
const MAX_LARGE_DEVICES: usize = 64;

const MAX_COUNTER_SETS: usize = 8;
pub const MAX_COUNTERS: usize = 32;

pub fn slice(new: &ResourceSlice, old: Option<&ResourceSlice>) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = &new.spec;
    names::driver(&spec.driver, &path.child("driver"), &mut errors);
    pool(&spec.pool, &path.child("pool"), &mut errors);
    if let Some(old) = old {
        unchanged(spec, &old.spec, &path, &mut errors);
    }
    nodes(spec, &path, &mut errors);
    if spec.shared_counters.is_some() && spec.devices.is_some() {
        errors.push(FieldError::invalid(&path, "", "only one of `sharedCounters` or `devices` is allowed"));
    }
    let devices = items(&spec.devices);
    let is_large = devices.iter().any(|d| !items(&d.taints).is_empty() || !items(&d.consumes_counters).is_empty());
    let max = if is_large { MAX_LARGE_DEVICES } else { MAX_DEVICES };
    let per_device = spec.per_device_node_selection == Some(true);
    lists::set(
        devices,
        max,
        |d| d.name.clone(),
        &path.child("devices"),
        &mut errors,
        |one, path, errors| {
            device::validate(one, per_device, path, errors);
        },
    );
    let sets = items(&spec.shared_counters);
    lists::set(sets, MAX_COUNTER_SETS, |s| s.name.clone(), &path.child("sharedCounters"), &mut errors, counter_set);
    errors
}

fn pool(pool: &ResourcePool, path: &Path<'_>, errors: &mut ErrorList) {
    names::pool(&pool.name, &path.child("name"), errors);
    if pool.resource_slice_count <= 0 {
        errors.push(FieldError::invalid(&path.child("resourceSliceCount"), pool.resource_slice_count, "must be greater than zero"));
    }
    if pool.generation < 0 {
        errors.push(FieldError::invalid(&path.child("generation"), pool.generation, "must be greater than or equal to zero"));
    }
}

fn unchanged(new: &ResourceSliceSpec, old: &ResourceSliceSpec, path: &Path<'_>, errors: &mut ErrorList) {
    if new.pool.name != old.pool.name {
        errors.push(FieldError::immutable(&path.child("pool").child("name"), &new.pool.name));
    }
    if new.driver != old.driver {
        errors.push(FieldError::immutable(&path.child("driver"), &new.driver));
    }
    if new.node_name != old.node_name {
        errors.push(FieldError::immutable(&path.child("nodeName"), new.node_name.clone()));
    }
}

/// Exactly one way of saying where the devices are.
fn nodes(spec: &ResourceSliceSpec, path: &Path<'_>, errors: &mut ErrorList) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut set = Vec::new();
    if let Some(name) = &spec.node_name {
        let here = path.child("nodeName");
        if name.is_empty() {
            errors.push(FieldError::invalid(&here, "", "must be either unset or set to a non-empty string"));
        } else {
            set.push("`nodeName`");
            validation::texts(meta::dns1123_subdomain(name), name, &here, errors);
        }
    }
    if let Some(selector) = &spec.node_selector {
        set.push("`nodeSelector`");
        let here = path.child("nodeSelector");
        scheduling::node_selector(selector, &here, errors);
        if selector.node_selector_terms.len() != 1 {
            let shown = BadValue::typed(&selector.node_selector_terms);
            errors.push(FieldError::invalid(&here.child("nodeSelectorTerms"), shown, "must have exactly one node selector term"));
        }
    }
    for (field, shown, value) in
        [("allNodes", "`allNodes`", spec.all_nodes), ("perDeviceNodeSelection", "`perDeviceNodeSelection`", spec.per_device_node_selection)]
    {
        match value {
            Some(true) => set.push(shown),
            Some(false) => errors.push(FieldError::invalid(&path.child(field), false, "must be either unset or set to true")),
            None => {}
        }
    }
    match set.len() {
        0 => errors.push(FieldError::required(path, ONE)),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.push(FieldError::invalid(path, shown, format!("{ONE}, but multiple fields are set")));
        }
    }
}

fn counter_set(set: &CounterSet, path: &Path<'_>, errors: &mut ErrorList) {
    counters(&set.name, set.counters.keys(), &path.child("name"), &path.child("counters"), errors);
}

/// The name of a set and those of its counters; at least one counter.
pub fn counters<'a>(set: &str, counters: impl ExactSizeIterator<Item = &'a String>, name_path: &Path<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    if set.is_empty() {
        errors.push(FieldError::required(name_path, ""));
    } else {
        names::label(set, name_path, errors);
    }
    match counters.len() {
        0 => errors.push(FieldError::required(path, "")),
        many if many > MAX_COUNTERS => errors.push(FieldError::too_many(path, many, MAX_COUNTERS)),
        _ => counters.for_each(|counter| names::label(counter, path, errors)),
    }
}
