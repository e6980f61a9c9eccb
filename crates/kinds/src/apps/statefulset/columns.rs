//! `kubectl get statefulsets`.

use k8s_openapi::api::apps::v1::StatefulSet;

use crate::apps::workload;
use crate::prelude::*;

pub const COLUMNS: &[Column] =
    &[table::NAME, table::text("Ready", "How many pods are ready, of how many wanted."), table::AGE, workload::CONTAINERS, workload::IMAGES];

pub fn row(object: &StatefulSet, now: Timestamp) -> Vec<Value> {
    let spec = object.spec.as_ref();
    let wanted = spec.and_then(|s| s.replicas).unwrap_or_default();
    let ready = object.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or_default();
    let (containers, images) = workload::containers_and_images(spec.map(|s| &s.template));
    vec![table::name(&object.metadata), format!("{ready}/{wanted}").into(), table::age(&object.metadata, now), containers, images]
}
