//! `kubectl get deployments`.

use k8s_openapi::api::apps::v1::Deployment;

use crate::apps::workload;
use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Ready", "How many pods are ready, of how many wanted."),
    table::text("Up-to-date", "How many pods are of the current template."),
    table::text("Available", "How many pods have been ready long enough."),
    table::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

pub fn row(object: &Deployment, now: Timestamp) -> Vec<Value> {
    let status = object.status.clone().unwrap_or_default();
    let spec = object.spec.as_ref();
    let wanted = spec.and_then(|s| s.replicas).unwrap_or_default();
    let (containers, images) = workload::containers_and_images(spec.map(|s| &s.template));
    vec![
        table::name(&object.metadata),
        format!("{}/{wanted}", status.ready_replicas.unwrap_or_default()).into(),
        status.updated_replicas.unwrap_or_default().into(),
        status.available_replicas.unwrap_or_default().into(),
        table::age(&object.metadata, now),
        containers,
        images,
        workload::selector_cell(spec.map(|s| &s.selector)),
    ]
}
