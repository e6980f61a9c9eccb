//! `kubectl get replicationcontrollers`.

use k8s_openapi::api::core::v1::ReplicationController;

use crate::apps::workload;
use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::integer("Desired", "How many pods are wanted."),
    table::integer("Current", "How many pods there are."),
    table::integer("Ready", "How many of them are ready."),
    table::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

pub fn row(object: &ReplicationController, now: Timestamp) -> Vec<Value> {
    let status = object.status.clone().unwrap_or_default();
    let spec = object.spec.as_ref();
    let (containers, images) = workload::containers_and_images(spec.and_then(|s| s.template.as_ref()));
    let selector: Vec<String> = spec.and_then(|s| s.selector.as_ref()).into_iter().flatten().map(|(k, v)| format!("{k}={v}")).collect();
    vec![
        table::name(&object.metadata),
        spec.and_then(|s| s.replicas).unwrap_or_default().into(),
        status.replicas.into(),
        status.ready_replicas.unwrap_or_default().into(),
        table::age(&object.metadata, now),
        containers,
        images,
        if selector.is_empty() { "<none>".into() } else { selector.join(",").into() },
    ]
}
