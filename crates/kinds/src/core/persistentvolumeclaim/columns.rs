//! `kubectl get persistentvolumeclaims`.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Status", "Pending, Bound, Lost, or Terminating while being deleted."),
    table::text("Volume", "The volume it is bound to."),
    table::text("Capacity", "The volume's size."),
    table::text("Access Modes", "How the volume may be mounted."),
    table::text("StorageClass", "The class it asks for."),
    table::text("VolumeAttributesClass", "The attributes class it asks for."),
    table::AGE,
    table::wide("VolumeMode", "Filesystem or Block."),
];

/// Access modes as columns show them.
pub fn short_modes<'a>(modes: impl Iterator<Item = &'a String>) -> String {
    let modes: Vec<&String> = modes.collect();
    let known = [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let short: Vec<&str> = known.iter().filter(|(mode, _)| modes.iter().any(|m| m == mode)).map(|(_, short)| *short).collect();
    short.join(",")
}

pub fn row(object: &PersistentVolumeClaim, now: Timestamp) -> Vec<Value> {
    let spec = object.spec.clone().unwrap_or_default();
    let status = object.status.clone().unwrap_or_default();
    let phase = if object.metadata.deletion_timestamp.is_some() { "Terminating" } else { text(&status.phase) };
    let volume = text(&spec.volume_name);
    let (mut capacity, mut modes) = (String::new(), String::new());
    if !volume.is_empty() {
        modes = short_modes(items(&status.access_modes).iter());
        capacity = status.capacity.as_ref().and_then(|c| c.get("storage")).map_or_else(|| "0".to_owned(), |q| q.0.clone());
    }
    vec![
        table::name(&object.metadata),
        phase.into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        text(&spec.storage_class_name).into(),
        spec.volume_attributes_class_name.as_deref().filter(|n| !n.is_empty()).unwrap_or("<unset>").into(),
        table::age(&object.metadata, now),
        spec.volume_mode.as_deref().unwrap_or("<unset>").into(),
    ]
}
