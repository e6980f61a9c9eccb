//! What a ReplicaSet must be.

use k8s_openapi::api::apps::v1::ReplicaSet;

use crate::apps::workload;
use crate::prelude::*;

pub fn create(object: &ReplicaSet, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    validation::nonnegative(&[("replicas", spec.replicas), ("minReadySeconds", spec.min_ready_seconds)], &path, &mut errors);
    if workload::selector(&spec.selector, "deployment", cx, &path.child("selector"), &mut errors) {
        let pods = spec.template.clone().unwrap_or_default();
        workload::replicated_template(&pods, &spec.selector, cx, &path.child("template"), &mut errors);
    }
    errors
}

pub fn update(new: &ReplicaSet, old: &ReplicaSet, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = create(new, cx);
    if let (Some(new), Some(old)) = (&new.spec, &old.spec) {
        workload::selector_is_unchanged(&new.selector, &old.selector, cx, &Path::new("spec").child("selector"), &mut errors);
    }
    errors
}

pub fn status(object: &ReplicaSet) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = object.status.clone().unwrap_or_default();
    let parts = [
        ("fullyLabeledReplicas", status.fully_labeled_replicas),
        ("readyReplicas", status.ready_replicas),
        ("availableReplicas", status.available_replicas),
    ];
    workload::replica_counts(status.replicas, status.ready_replicas, status.available_replicas, &parts, &mut errors);
    errors
}
