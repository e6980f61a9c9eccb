//! PersistentVolume: a piece of storage that a claim can be bound to. Where it lies never changes.

mod columns;
pub mod reconcile;
mod validate;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeStatus};

use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub use validate::{access_modes, source};

pub struct PersistentVolumeKind;

impl TypedKind for PersistentVolumeKind {
    type Object = PersistentVolume;

    const INFO: KindInfo = KindInfo {
        short_names: &["pv"],
        subresources: &[subresource::STATUS],
        ..KindInfo::cluster("", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume")
    };

    fn default(object: &mut PersistentVolume) {
        or_text(&mut object.status.get_or_insert_default().phase, "Pending");
        let spec = object.spec.get_or_insert_default();
        or_text(&mut spec.persistent_volume_reclaim_policy, "Retain");
        or_text(&mut spec.volume_mode, "Filesystem");
        if let Some(path) = spec.host_path.as_mut() {
            path.type_.get_or_insert_default();
        }
    }

    fn prepare_create(object: &mut PersistentVolume, cx: &RequestContext<'_>) -> Verdict {
        object.status = Some(PersistentVolumeStatus {
            phase: Some("Pending".to_owned()),
            last_phase_transition_time: validation::time(cx.now),
            ..PersistentVolumeStatus::default()
        });
        validate::create(object).into()
    }

    fn prepare_update(new: &mut PersistentVolume, old: &PersistentVolume, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            let phase = |object: &PersistentVolume| object.status.as_ref().and_then(|s| s.phase.clone());
            let moved = phase(new) != phase(old);
            let before = old.status.as_ref().and_then(|s| s.last_phase_transition_time.clone());
            if let Some(status) = new.status.as_mut() {
                let given = status.last_phase_transition_time.clone().filter(|given| Some(given) != before.as_ref());
                status.last_phase_transition_time = if moved { given.or_else(|| validation::time(cx.now)) } else { given.or(before) };
            }
            return Verdict::default();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &PersistentVolume, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
