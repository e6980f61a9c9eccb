//! How a Job counts failed pods.

use k8s_openapi::api::batch::v1::{JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use wheelhouse_meta::validation as names;

use crate::core::pod::validate::one_of;
use crate::prelude::*;

/// Limits of one policy and of one rule.
const MAX_RULES: usize = 20;
const MAX_CODES: usize = 255;
const MAX_PATTERNS: usize = 20;

pub fn validate(spec: &JobSpec, policy: &PodFailurePolicy, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("rules");
    if policy.rules.len() > MAX_RULES {
        errors.push(FieldError::too_many(&path, policy.rules.len(), MAX_RULES));
    }
    for (at, rule_) in policy.rules.iter().enumerate() {
        rule(spec, rule_, &path.index(at), errors);
    }
}

fn rule(spec: &JobSpec, rule: &PodFailurePolicyRule, path: &Path<'_>, errors: &mut ErrorList) {
    let action = path.child("action");
    if rule.action == "FailIndex" && spec.backoff_limit_per_index.is_none() {
        errors.push(FieldError::invalid(&action, &rule.action, "requires the backoffLimitPerIndex to be set"));
    } else {
        one_of(&rule.action, &["Count", "FailIndex", "FailJob", "Ignore"], &action, errors);
    }
    if let Some(codes) = &rule.on_exit_codes {
        exit_codes(spec, codes, &path.child("onExitCodes"), errors);
    }
    let patterns = items(&rule.on_pod_conditions);
    let here = path.child("onPodConditions");
    if patterns.len() > MAX_PATTERNS {
        errors.push(FieldError::too_many(&here, patterns.len(), MAX_PATTERNS));
    }
    for (at, pattern) in patterns.iter().enumerate() {
        let path = here.index(at);
        validation::texts(names::qualified_name(&pattern.type_), &pattern.type_, &path.child("type"), errors);
        one_of(text(&pattern.status), &["False", "True", "Unknown"], &path.child("status"), errors);
    }
    let shown = || validation::untagged(rule, "io.k8s.api.batch.v1.PodFailurePolicyRule");
    match (rule.on_exit_codes.is_some(), !patterns.is_empty()) {
        (true, true) => errors.push(FieldError::invalid(path, shown(), "specifying both OnExitCodes and OnPodConditions is not supported")),
        (false, false) => {
            errors.push(FieldError::invalid(path, shown(), "specifying one of OnExitCodes and OnPodConditions is required"));
        }
        _ => {}
    }
}

fn exit_codes(spec: &JobSpec, codes: &PodFailurePolicyOnExitCodesRequirement, path: &Path<'_>, errors: &mut ErrorList) {
    one_of(&codes.operator, &["In", "NotIn"], &path.child("operator"), errors);
    if let Some(name) = &codes.container_name {
        let pods = spec.template.spec.clone().unwrap_or_default();
        let mut containers = pods.containers.iter().chain(items(&pods.init_containers));
        if !containers.any(|c| c.name == *name) {
            let why = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(&path.child("containerName"), name, why));
        }
    }
    let values = codes.values.as_slice();
    let here = path.child("values");
    if values.is_empty() {
        errors.push(FieldError::invalid(&here, BadValue::typed(&values), "at least one value is required"));
    } else if values.len() > MAX_CODES {
        errors.push(FieldError::too_many(&here, values.len(), MAX_CODES));
    }
    for (at, code) in values.iter().enumerate() {
        if codes.operator == "In" && *code == 0 {
            errors.push(FieldError::invalid(&here.index(at), 0, "must not be 0 for the In operator"));
        }
        if values[..at].contains(code) {
            errors.push(FieldError::duplicate(&here.index(at), *code));
        }
    }
    if !values.is_sorted() {
        errors.push(FieldError::invalid(&here, BadValue::typed(&values), "must be ordered"));
    }
}
