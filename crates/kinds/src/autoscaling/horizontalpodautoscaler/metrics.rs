//! The measures of an autoscaler.

use k8s_openapi::api::autoscaling::v2::{MetricIdentifier, MetricSpec, MetricTarget};
use wheelhouse_meta::validation as names;

use super::validate::reference;
use crate::core::pod::validate::quantity;
use crate::prelude::*;

/// In the order that messages list them.
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

pub fn validate(metric: &MetricSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let type_ = metric.type_.as_str();
    if type_.is_empty() {
        errors.push(FieldError::required(&path.child("type"), "must specify a metric source type"));
    }
    if !TYPES.contains(&type_) {
        // Upstream says so before it looks at the sources and again after, and clients see both.
        errors.push(FieldError::not_supported(&path.child("type"), type_, TYPES));
        errors.push(FieldError::not_supported(&path.child("type"), type_, TYPES));
    }
    let set = [
        ("object", "Object", metric.object.is_some()),
        ("external", "External", metric.external.is_some()),
        ("pods", "Pods", metric.pods.is_some()),
        ("resource", "Resource", metric.resource.is_some()),
        ("containerResource", "ContainerResource", metric.container_resource.is_some()),
    ];
    // Only the first source that is set is looked into; any further one is refused anyway.
    if let Some((field, ..)) = set.iter().find(|(.., set)| *set) {
        source(metric, &path.child(field), errors);
    }
    let expected = set.iter().find(|(_, name, _)| *name == type_);
    if let Some((field, _, false)) = expected {
        errors.push(FieldError::required(&path.child(field), "must populate information for the given metric source"));
    }
    if set.iter().filter(|(.., set)| *set).count() > 1 {
        for (field, ..) in set.iter().filter(|(_, name, set)| *set && *name != type_) {
            errors.push(FieldError::forbidden(&path.child(field), "must populate the given metric source only"));
        }
    }
}

fn source(metric: &MetricSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let target_path = path.child("target");
    let missing = |field: &str, why: &str, errors: &mut ErrorList| errors.push(FieldError::required(&target_path.child(field), why));
    if let Some(object) = &metric.object {
        reference(&object.described_object.kind, &object.described_object.name, &path.child("describedObject"), errors);
        identifier(&object.metric, &path.child("metric"), errors);
        target(&object.target, &target_path, errors);
        if object.target.value.is_none() && object.target.average_value.is_none() {
            missing("averageValue", "must set either a target value for metric or a per-pod target", errors);
        }
    } else if let Some(external) = &metric.external {
        identifier(&external.metric, &path.child("metric"), errors);
        target(&external.target, &target_path, errors);
        match (external.target.value.is_some(), external.target.average_value.is_some()) {
            (false, false) => missing("averageValue", "must set either a target value for metric or a per-pod target", errors),
            (true, true) => {
                let why = "may not set both a target value for metric and a per-pod target";
                errors.push(FieldError::forbidden(&target_path.child("value"), why));
            }
            _ => {}
        }
    } else if let Some(pods) = &metric.pods {
        identifier(&pods.metric, &path.child("metric"), errors);
        target(&pods.target, &target_path, errors);
        if pods.target.average_value.as_ref().is_none_or(|v| quantity(v).sign() <= 0) {
            missing("averageValue", "must specify a positive target averageValue", errors);
        }
    } else if let Some(resource) = &metric.resource {
        of_resource(&resource.name, &resource.target, path, errors);
    } else if let Some(resource) = &metric.container_resource {
        if resource.container.is_empty() {
            errors.push(FieldError::required(&path.child("container"), "must specify a container"));
        }
        of_resource(&resource.name, &resource.target, path, errors);
    }
}

fn of_resource(name: &str, goal: &MetricTarget, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), "must specify a resource name"));
    }
    let here = path.child("target");
    target(goal, &here, errors);
    match (goal.average_utilization.is_some(), goal.average_value.is_some()) {
        (false, false) => {
            let why = "must set either a target raw value or a target utilization";
            errors.push(FieldError::required(&here.child("averageUtilization"), why));
        }
        (true, true) => {
            let why = "may not set both a target raw value and a target utilization";
            errors.push(FieldError::forbidden(&here.child("averageValue"), why));
        }
        _ => {}
    }
}

fn identifier(metric: &MetricIdentifier, path: &Path<'_>, errors: &mut ErrorList) {
    if metric.name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), "must specify a metric name"));
    } else {
        validation::texts(names::path_segment_name(&metric.name), &metric.name, &path.child("name"), errors);
    }
}

fn target(target: &MetricTarget, path: &Path<'_>, errors: &mut ErrorList) {
    let type_ = target.type_.as_str();
    if type_.is_empty() {
        errors.push(FieldError::required(&path.child("type"), "must specify a metric target type"));
    }
    if !matches!(type_, "Utilization" | "Value" | "AverageValue") {
        errors.push(FieldError::invalid(&path.child("type"), type_, "must be either Utilization, Value, or AverageValue"));
    }
    for (field, value) in [("value", &target.value), ("averageValue", &target.average_value)] {
        if let Some(value) = value
            && quantity(value).sign() <= 0
        {
            errors.push(FieldError::invalid(&path.child(field), &value.0, "must be positive"));
        }
    }
    if let Some(percent) = target.average_utilization.filter(|p| *p < 1) {
        errors.push(FieldError::invalid(&path.child("averageUtilization"), percent, "must be greater than 0"));
    }
}
