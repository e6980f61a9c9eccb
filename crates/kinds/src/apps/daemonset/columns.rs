//! `kubectl get daemonsets`.

use k8s_openapi::api::apps::v1::DaemonSet;

use crate::apps::workload;
use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::integer("Desired", "How many nodes should run a pod."),
    table::integer("Current", "How many nodes run one."),
    table::integer("Ready", "On how many nodes it is ready."),
    table::integer("Up-to-date", "On how many nodes it is of the current template."),
    table::integer("Available", "On how many nodes it has been ready long enough."),
    table::text("Node Selector", "Which nodes it is for."),
    table::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

pub fn row(object: &DaemonSet, now: Timestamp) -> Vec<Value> {
    let status = object.status.clone().unwrap_or_default();
    let spec = object.spec.as_ref();
    let pods = spec.and_then(|s| s.template.spec.as_ref());
    let nodes: Vec<String> = pods.and_then(|p| p.node_selector.as_ref()).into_iter().flatten().map(|(k, v)| format!("{k}={v}")).collect();
    let (containers, images) = workload::containers_and_images(spec.map(|s| &s.template));
    vec![
        table::name(&object.metadata),
        status.desired_number_scheduled.into(),
        status.current_number_scheduled.into(),
        status.number_ready.into(),
        status.updated_number_scheduled.unwrap_or_default().into(),
        status.number_available.unwrap_or_default().into(),
        if nodes.is_empty() { "<none>".into() } else { nodes.join(",").into() },
        table::age(&object.metadata, now),
        containers,
        images,
        workload::selector_cell(spec.map(|s| &s.selector)),
    ]
}
