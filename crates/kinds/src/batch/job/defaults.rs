//! Defaults of a Job.

use k8s_openapi::api::batch::v1::Job;

use crate::core::pod::template;

pub fn apply(object: &mut Job) {
    let spec = object.spec.get_or_insert_default();
    template::apply_defaults(&mut spec.template);
    // One pod that must succeed once, unless either is said.
    if spec.completions.is_none() && spec.parallelism.is_none() {
        spec.completions = Some(1);
    }
    spec.parallelism.get_or_insert(1);
    spec.backoff_limit.get_or_insert(if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 });
    let labels = spec.template.metadata.as_ref().and_then(|m| m.labels.clone()).filter(|l| !l.is_empty());
    if object.metadata.labels.as_ref().is_none_or(|l| l.is_empty()) && labels.is_some() {
        object.metadata.labels = labels;
    }
    spec.completion_mode.get_or_insert_with(|| "NonIndexed".to_owned());
    spec.suspend.get_or_insert(false);
    spec.manual_selector.get_or_insert(false);
    for rule in spec.pod_failure_policy.iter_mut().flat_map(|p| p.rules.iter_mut()) {
        for condition in rule.on_pod_conditions.iter_mut().flatten() {
            crate::core::pod::defaults::or_text(&mut condition.status, "True");
        }
    }
    let replacement = if spec.pod_failure_policy.is_some() { "Failed" } else { "TerminatingOrFailed" };
    spec.pod_replacement_policy.get_or_insert_with(|| replacement.to_owned());
}
