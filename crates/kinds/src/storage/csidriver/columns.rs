//! `kubectl get csidrivers`.

use k8s_openapi::api::storage::v1::CSIDriver;

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::boolean("AttachRequired", "Whether a volume is attached to a node before it is mounted."),
    table::boolean("PodInfoOnMount", "Whether the driver is told about the pod."),
    table::boolean("StorageCapacity", "Whether the scheduler looks at the capacity that the driver reports."),
    table::text("TokenRequests", "Audiences of the tokens that the driver is given."),
    table::boolean("RequiresRepublish", "Whether mounts are refreshed."),
    table::text("Modes", "Kinds of volume that it makes."),
    table::AGE,
];

pub fn row(object: &CSIDriver, now: Timestamp) -> Vec<Value> {
    let spec = &object.spec;
    let modes = items(&spec.volume_lifecycle_modes).join(",");
    let audiences = spec.token_requests.as_ref().map(|list| list.iter().map(|r| r.audience.as_str()).collect::<Vec<_>>().join(","));
    vec![
        table::name(&object.metadata),
        spec.attach_required.unwrap_or(true).into(),
        spec.pod_info_on_mount.unwrap_or_default().into(),
        spec.storage_capacity.unwrap_or_default().into(),
        audiences.unwrap_or_else(|| "<unset>".to_owned()).into(),
        spec.requires_republish.unwrap_or_default().into(),
        if modes.is_empty() { "<none>".into() } else { modes.into() },
        table::age(&object.metadata, now),
    ]
}
