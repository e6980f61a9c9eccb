//! `kubectl get persistentvolumes`.

use k8s_openapi::api::core::v1::PersistentVolume;

use crate::core::persistentvolumeclaim::short_modes;
use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Capacity", "Its size."),
    table::text("Access Modes", "How it may be mounted."),
    table::text("Reclaim Policy", "What becomes of it when its claim is gone."),
    table::text("Status", "Available, Bound, Released, Failed, or Terminating while being deleted."),
    table::text("Claim", "The claim it is bound to."),
    table::text("StorageClass", "Its class."),
    table::text("VolumeAttributesClass", "Its attributes class."),
    table::text("Reason", "Why it is in this state."),
    table::AGE,
    table::wide("VolumeMode", "Filesystem or Block."),
];

pub fn row(object: &PersistentVolume, now: Timestamp) -> Vec<Value> {
    let spec = object.spec.clone().unwrap_or_default();
    let status = object.status.clone().unwrap_or_default();
    let claim = spec.claim_ref.as_ref().map(|c| format!("{}/{}", text(&c.namespace), text(&c.name))).unwrap_or_default();
    let phase = if object.metadata.deletion_timestamp.is_some() { "Terminating" } else { text(&status.phase) };
    let size = spec.capacity.as_ref().and_then(|c| c.get("storage")).map_or("0", |q| q.0.as_str());
    vec![
        table::name(&object.metadata),
        size.into(),
        short_modes(items(&spec.access_modes).iter()).into(),
        text(&spec.persistent_volume_reclaim_policy).into(),
        phase.into(),
        claim.into(),
        text(&spec.storage_class_name).into(),
        spec.volume_attributes_class_name.as_deref().filter(|n| !n.is_empty()).unwrap_or("<unset>").into(),
        text(&status.reason).into(),
        table::age(&object.metadata, now),
        spec.volume_mode.as_deref().unwrap_or("<unset>").into(),
    ]
}
