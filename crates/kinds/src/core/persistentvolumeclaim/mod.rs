//! PersistentVolumeClaim: a request for storage.
//!
//! Once it is bound its spec is fixed, but for the size, which may grow, and the attributes class.

mod columns;
pub mod reconcile;
pub mod validate;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimStatus};

use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub use columns::short_modes;

pub struct PersistentVolumeClaimKind;

impl TypedKind for PersistentVolumeClaimKind {
    type Object = PersistentVolumeClaim;

    const INFO: KindInfo = KindInfo {
        short_names: &["pvc"],
        subresources: &[subresource::STATUS],
        ..KindInfo::namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
    };

    fn default(object: &mut PersistentVolumeClaim) {
        or_text(&mut object.status.get_or_insert_default().phase, "Pending");
        let spec = object.spec.get_or_insert_default();
        or_text(&mut spec.volume_mode, "Filesystem");
    }

    fn prepare_create(object: &mut PersistentVolumeClaim, _: &RequestContext<'_>) -> Verdict {
        if let Some(spec) = object.spec.as_mut() {
            sync_data_source(spec);
        }
        object.status = Some(PersistentVolumeClaimStatus { phase: Some("Pending".to_owned()), ..PersistentVolumeClaimStatus::default() });
        validate::create(object).into()
    }

    fn prepare_update(new: &mut PersistentVolumeClaim, old: &PersistentVolumeClaim, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return Verdict::default();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &PersistentVolumeClaim, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}

/// The sources that the older field may name; anything else in it is dropped, as it always was.
fn is_known_source(group: &str, kind: &str) -> bool {
    matches!((group, kind), ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
}

/// `dataSource` and `dataSourceRef` name the same thing; whichever is set fills the other, unless a namespace is involved.
fn sync_data_source(spec: &mut k8s_openapi::api::core::v1::PersistentVolumeClaimSpec) {
    use k8s_openapi::api::core::v1::{TypedLocalObjectReference, TypedObjectReference};
    if spec.data_source.as_ref().is_some_and(|s| !is_known_source(text(&s.api_group), &s.kind)) {
        spec.data_source = None;
    }
    match (&spec.data_source, &spec.data_source_ref) {
        (Some(source), None) => {
            spec.data_source_ref = Some(TypedObjectReference {
                api_group: source.api_group.clone(),
                kind: source.kind.clone(),
                name: source.name.clone(),
                namespace: None,
            });
        }
        (None, Some(reference)) if text(&reference.namespace).is_empty() && is_known_source(text(&reference.api_group), &reference.kind) => {
            spec.data_source = Some(TypedLocalObjectReference {
                api_group: reference.api_group.clone(),
                kind: reference.kind.clone(),
                name: reference.name.clone(),
            });
        }
        _ => {}
    }
}
