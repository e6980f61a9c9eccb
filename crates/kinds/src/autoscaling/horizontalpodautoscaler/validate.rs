//! What a HorizontalPodAutoscaler must be.

use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscaler};
use wheelhouse_meta::validation as names;

use super::metrics;
use crate::prelude::*;

/// Seconds that a decision may look back, and that a step may last.
const MAX_WINDOW: i32 = 3600;
const MAX_PERIOD: i32 = 1800;

pub fn autoscaler(object: &HorizontalPodAutoscaler) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = &object.spec;
    if let Some(min) = spec.min_replicas.filter(|m| *m < 1) {
        errors.push(FieldError::invalid(&path.child("minReplicas"), min, "must be greater than or equal to 1"));
    }
    let max = path.child("maxReplicas");
    if spec.max_replicas < 1 {
        errors.push(FieldError::required(&max, "must be set and greater than 0"));
    }
    if spec.min_replicas.is_some_and(|min| spec.max_replicas < min) {
        errors.push(FieldError::invalid(&max, spec.max_replicas, "must be greater than or equal to `minReplicas`"));
    }
    let target = &spec.scale_target_ref;
    reference(&target.kind, &target.name, &path.child("scaleTargetRef"), &mut errors);
    let here = path.child("metrics");
    for (at, metric) in items(&spec.metrics).iter().enumerate() {
        metrics::validate(metric, &here.index(at), &mut errors);
    }
    if let Some(behavior) = &spec.behavior {
        let path = path.child("behavior");
        for (field, rules) in [("scaleUp", &behavior.scale_up), ("scaleDown", &behavior.scale_down)] {
            if let Some(rules) = rules {
                scaling_rules(rules, &path.child(field), &mut errors);
            }
        }
    }
    errors
}

/// A reference to an object that is scaled or measured.
pub fn reference(kind: &str, name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    for (field, value) in [("kind", kind), ("name", name)] {
        if value.is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        } else {
            validation::texts(names::path_segment_name(value), value, &path.child(field), errors);
        }
    }
}

fn scaling_rules(rules: &HPAScalingRules, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("stabilizationWindowSeconds");
    match rules.stabilization_window_seconds {
        Some(seconds) if seconds < 0 => errors.push(FieldError::invalid(&here, seconds, "must be greater than or equal to zero")),
        Some(seconds) if seconds > MAX_WINDOW => {
            errors.push(FieldError::invalid(&here, seconds, format!("must be less than or equal to {MAX_WINDOW}")));
        }
        _ => {}
    }
    if let Some(policy) = &rules.select_policy
        && !matches!(policy.as_str(), "Disabled" | "Max" | "Min")
    {
        errors.push(FieldError::not_supported(&path.child("selectPolicy"), policy, &["Disabled", "Max", "Min"]));
    }
    let here = path.child("policies");
    let policies = items(&rules.policies);
    if policies.is_empty() {
        errors.push(FieldError::required(&here, "must specify at least one Policy"));
    }
    for (at, policy) in policies.iter().enumerate() {
        let path = here.index(at);
        if !matches!(policy.type_.as_str(), "Percent" | "Pods") {
            errors.push(FieldError::not_supported(&path.child("type"), &policy.type_, &["Percent", "Pods"]));
        }
        for (field, value) in [("value", policy.value), ("periodSeconds", policy.period_seconds)] {
            if value <= 0 {
                errors.push(FieldError::invalid(&path.child(field), value, "must be greater than zero"));
            }
        }
        if policy.period_seconds > MAX_PERIOD {
            let why = format!("must be less than or equal to {MAX_PERIOD}");
            errors.push(FieldError::invalid(&path.child("periodSeconds"), policy.period_seconds, why));
        }
    }
}

pub fn status(object: &HorizontalPodAutoscaler) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = object.status.clone().unwrap_or_default();
    let counts = [("currentReplicas", status.current_replicas), ("desiredReplicas", Some(status.desired_replicas))];
    validation::nonnegative(&counts, &Path::new("status"), &mut errors);
    errors
}
