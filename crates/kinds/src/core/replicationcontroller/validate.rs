//! What a ReplicationController must be.

use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::apps::workload;
use crate::core::pod::template;
use crate::prelude::*;

pub fn controller(object: &ReplicationController) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    validation::nonnegative(&[("minReadySeconds", spec.min_ready_seconds)], &path, &mut errors);
    let selector = LabelSelector { match_labels: spec.selector.clone(), match_expressions: None };
    let empty = validation::selects_all(&selector);
    if empty {
        errors.push(FieldError::required(&path.child("selector"), ""));
    }
    validation::nonnegative(&[("replicas", spec.replicas)], &path, &mut errors);
    let here = path.child("template");
    let Some(pods) = &spec.template else {
        errors.push(FieldError::required(&here, ""));
        return errors;
    };
    let labels = pods.metadata.as_ref().and_then(|m| m.labels.clone());
    if !empty && !validation::selects(&selector, &labels) {
        template::mismatch(&labels, &here, &mut errors);
    }
    template::validate(pods, &here, &mut errors);
    workload::always_restarted(pods, &here, &mut errors);
    if pods.spec.as_ref().is_some_and(|s| s.active_deadline_seconds.is_some()) {
        let why = "activeDeadlineSeconds in ReplicationController is not Supported";
        errors.push(FieldError::forbidden(&here.child("spec").child("activeDeadlineSeconds"), why));
    }
    errors
}

pub fn status(object: &ReplicationController) -> ErrorList {
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
