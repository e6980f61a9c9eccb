//! What one device of a ResourceSlice must be.

use std::sync::LazyLock;

use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity};
use regex::Regex;
use wheelhouse_meta::Quantity;
use wheelhouse_meta::validation as meta;

use super::validate::counters;
use crate::core::pod::validate::{quantity, scheduling};
use crate::prelude::*;
use crate::resource::{lists, names, taints};

const ATTRIBUTE: &str = "io.k8s.api.resource.v1.DeviceAttribute";

/// Attributes and capacities of one device together.
const MAX_PROPERTIES: usize = 32;

/// A text or a version, in bytes.
const MAX_VALUE: usize = 64;

const MAX_TAINTS: usize = 16;

/// Counter sets that one device draws on.
const MAX_CONSUMPTIONS: usize = 2;

/// Amounts that a policy lists.
const MAX_VALUES: usize = 10;

/// Three numbers, then what comes before the release and what tells builds apart (semver.org 2.0.0).
static SEMVER: LazyLock<Regex> = LazyLock::new(|| {
    let number = r"(0|[1-9]\d*)";
    let before = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)";
    let build = "[0-9a-zA-Z-]+";
    let text = format!(r"^{number}\.{number}\.{number}(-{before}(\.{before})*)?(\+{build}(\.{build})*)?$");
    Regex::new(&text).expect("a constant pattern is well formed")
});

/// `per_device` says that each device names its own nodes.
pub fn validate(device: &Device, per_device: bool, path: &Path<'_>, errors: &mut ErrorList) {
    names::label(&device.name, &path.child("name"), errors);
    let (attributes, capacity) = (device.attributes.clone().unwrap_or_default(), device.capacity.clone().unwrap_or_default());
    let properties = attributes.len() + capacity.len();
    if properties > MAX_PROPERTIES {
        let why = format!("the total number of attributes and capacities must not exceed {MAX_PROPERTIES}");
        errors.push(FieldError::invalid(path, properties, why));
    }
    let here = path.child("attributes");
    for (name, attribute) in &attributes {
        names::qualified(name, &here, errors);
        self::attribute(attribute, &here.key(name), errors);
    }
    let here = path.child("capacity");
    for (name, capacity) in &capacity {
        names::qualified(name, &here, errors);
        self::capacity(capacity, device.allow_multiple_allocations == Some(true), &here.key(name), errors);
    }
    lists::list(items(&device.taints), MAX_TAINTS, &path.child("taints"), errors, taints::taint);
    let (consumptions, here) = (items(&device.consumes_counters), path.child("consumesCounters"));
    lists::set(
        consumptions,
        MAX_CONSUMPTIONS,
        |c| c.counter_set.clone(),
        &here,
        errors,
        |one, path, errors| {
            counters(&one.counter_set, one.counters.keys(), &path.child("counterSet"), &path.child("counters"), errors);
        },
    );
    nodes(device, per_device, path, errors);
    taints::binding_conditions(&device.binding_conditions, &device.binding_failure_conditions, path, errors);
}

fn attribute(attribute: &DeviceAttribute, path: &Path<'_>, errors: &mut ErrorList) {
    const ONE: &str = "exactly one value must be specified";
    let mut length = |field: &str, value: &str| {
        if value.len() > MAX_VALUE {
            errors.push(FieldError::too_long(&path.child(field), MAX_VALUE));
        }
    };
    length("string", text(&attribute.string));
    length("version", text(&attribute.version));
    if let Some(version) = attribute.version.as_ref().filter(|v| !SEMVER.is_match(v)) {
        errors.push(FieldError::invalid(&path.child("version"), version, "must be a string compatible with semver.org spec 2.0.0"));
    }
    let set = [attribute.bool.is_some(), attribute.int.is_some(), attribute.string.is_some(), attribute.version.is_some()];
    match set.into_iter().filter(|is_set| *is_set).count() {
        0 => errors.push(FieldError::invalid(path, "", ONE)),
        1 => {}
        _ => errors.push(FieldError::invalid(path, validation::untagged(attribute, ATTRIBUTE), ONE)),
    }
}

/// Only what several may share can be given in parts.
fn capacity(capacity: &DeviceCapacity, is_shared: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(policy) = &capacity.request_policy else { return };
    let here = path.child("requestPolicy");
    if is_shared {
        request_policy(policy, &quantity(&capacity.value), &here, errors);
    } else {
        errors.push(FieldError::forbidden(&here, "allowMultipleAllocations must be true"));
    }
}

fn request_policy(policy: &CapacityRequestPolicy, whole: &Quantity, path: &Path<'_>, errors: &mut ErrorList) {
    let values: Vec<Quantity> = items(&policy.valid_values).iter().map(quantity).collect();
    if !values.is_empty() && policy.valid_range.is_some() {
        let why = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
        errors.push(FieldError::forbidden(path, why));
        return;
    }
    let kind = match &policy.valid_range {
        Some(_) => "validRange",
        None if !values.is_empty() => "validValues",
        None => return,
    };
    let Some(default) = policy.default.as_ref().map(quantity) else {
        errors.push(FieldError::required(&path.child("default"), format!("required when {kind} is defined")));
        return;
    };
    match &policy.valid_range {
        Some(range) => valid_range(range, &default, whole, &path.child(kind), errors),
        None => valid_values(&values, &default, whole, &path.child(kind), errors),
    }
}

fn valid_values(values: &[Quantity], default: &Quantity, whole: &Quantity, path: &Path<'_>, errors: &mut ErrorList) {
    for (at, pair) in values.windows(2).enumerate() {
        if pair[0] > pair[1] {
            errors.push(FieldError::invalid(&path.index(at + 1), pair[1].canonical(), "values must be sorted in ascending order"));
        }
    }
    lists::set(values, MAX_VALUES, Quantity::value, path, errors, |value, path, errors| {
        if value > whole {
            let why = format!("option is larger than capacity value: {}", whole.canonical());
            errors.push(FieldError::invalid(path, value.canonical(), why));
        }
    });
    if !values.contains(default) {
        errors.push(FieldError::invalid(path, default.canonical(), "default value is not valid according to the requestPolicy"));
    }
}

fn valid_range(range: &CapacityRequestPolicyRange, default: &Quantity, whole: &Quantity, path: &Path<'_>, errors: &mut ErrorList) {
    let (min, max, step) = (quantity(&range.min), range.max.as_ref().map(quantity), range.step.as_ref().map(quantity));
    let mut refuse = |field: &str, value: &Quantity, why: &str, bound: &Quantity| {
        errors.push(FieldError::invalid(&path.child(field), value.canonical(), format!("{why}: {}", bound.canonical())));
    };
    if min > *whole {
        refuse("min", &min, "min is larger than capacity value", whole);
    }
    if *default < min {
        refuse("default", default, "default is less than min", &min);
    }
    if let Some(max) = &max {
        if min > *max {
            refuse("max", &min, "min is larger than max", max);
        }
        if max > whole {
            refuse("max", max, "max is larger than capacity value", whole);
        }
        if default > max {
            refuse("default", default, "default is more than max", max);
        }
    }
    let Some(step) = step else { return };
    let here = path.child("step");
    if step.value() <= 0 {
        errors.push(FieldError::invalid(&here, step.canonical(), "must be greater than zero"));
        return;
    }
    let mut first = min.clone();
    first.add(&step);
    if first > *whole {
        let why = format!("one step {} is larger than capacity value: {}", first.canonical(), whole.canonical());
        errors.push(FieldError::invalid(&here, step.canonical(), why));
    }
    for value in [Some(default), max.as_ref()].into_iter().flatten() {
        if value.value().wrapping_sub(min.value()) % step.value() != 0 {
            let why = format!("value is not a multiple of a given step ({}) from ({})", step.canonical(), min.canonical());
            errors.push(FieldError::invalid(&here, value.canonical(), why));
        }
    }
}

fn nodes(device: &Device, per_device: bool, path: &Path<'_>, errors: &mut ErrorList) {
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if !per_device {
        if device.node_name.is_some() || device.node_selector.is_some() || device.all_nodes.is_some() {
            let why =
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.push(FieldError::invalid(path, BadValue::Null, why));
        }
        return;
    }
    let mut set = Vec::new();
    match device.node_name.as_deref() {
        Some("") => errors.push(FieldError::invalid(&path.child("nodeName"), "", "must not be empty")),
        Some(name) => {
            set.push("`nodeName`");
            validation::texts(meta::dns1123_subdomain(name), name, &path.child("nodeName"), errors);
        }
        None => {}
    }
    if let Some(selector) = &device.node_selector {
        set.push("`nodeSelector`");
        scheduling::node_selector(selector, &path.child("nodeSelector"), errors);
    }
    match device.all_nodes {
        Some(true) => set.push("`allNodes`"),
        Some(false) => errors.push(FieldError::invalid(&path.child("allNodes"), false, "must be either unset or set to true")),
        None => {}
    }
    match set.len() {
        0 => errors.push(FieldError::required(path, ONE)),
        1 => {}
        _ => errors.push(FieldError::invalid(path, format!("{{{}}}", set.join(", ")), ONE)),
    }
}
