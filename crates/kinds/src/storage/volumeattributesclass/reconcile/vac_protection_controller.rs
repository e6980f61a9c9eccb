//! `volumeattributesclass-protection-controller`: a deleted class stays while a claim or a volume has it, or is being changed to it.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::plan::Plan;
use crate::protection;
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::view::{Key, ObjectChange, ResourceName, View};

const CLASSES: ResourceName = ResourceName::new("storage.k8s.io", "volumeattributesclasses");
const CLAIMS: ResourceName = ResourceName::new("", "persistentvolumeclaims");
const VOLUMES: ResourceName = ResourceName::new("", "persistentvolumes");
const FINALIZER: &str = "kubernetes.io/vac-protection";

pub struct VacProtectionController;

impl Reconciler for VacProtectionController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "volumeattributesclass-protection-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let of_claims: fn(&View, &ObjectChange) -> Vec<Key> = |_, change| {
            let claims = [&change.old, &change.new].into_iter().flatten().filter_map(|r| r.typed::<PersistentVolumeClaim>());
            claims.flat_map(|claim| of_claim(&claim)).map(Key::cluster).collect()
        };
        let of_volumes: fn(&View, &ObjectChange) -> Vec<Key> = |_, change| {
            let volumes = [&change.old, &change.new].into_iter().flatten().filter_map(|r| r.typed::<PersistentVolume>());
            volumes.filter_map(|volume| of_volume(&volume)).map(Key::cluster).collect()
        };
        vec![Trigger::itself(CLASSES), Trigger { resource: CLAIMS, keys: of_claims }, Trigger { resource: VOLUMES, keys: of_volumes }]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, _: &mut ()) -> Plan {
        let Some(record) = view.record(&CLASSES, key) else { return Plan::default() };
        protection::plan(record, FINALIZER, || {
            view.list::<PersistentVolumeClaim>(None).any(|claim| of_claim(&claim).iter().any(|class| *class == *key.name))
                || view.list::<PersistentVolume>(None).any(|volume| of_volume(&volume).is_some_and(|class| *class == *key.name))
        })
    }
}

/// The classes that a claim asks for, has, and is being changed to.
fn of_claim(claim: &PersistentVolumeClaim) -> Vec<String> {
    let status = claim.status.as_ref();
    let asked = claim.spec.as_ref().and_then(|s| s.volume_attributes_class_name.clone());
    let current = status.and_then(|s| s.current_volume_attributes_class_name.clone());
    let target = status.and_then(|s| s.modify_volume_status.as_ref()?.target_volume_attributes_class_name.clone());
    [asked, current, target].into_iter().flatten().filter(|class| !class.is_empty()).collect()
}

fn of_volume(volume: &PersistentVolume) -> Option<String> {
    volume.spec.as_ref()?.volume_attributes_class_name.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    const DELETED: &str = r#"{"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttributesClass","metadata":{"name":"gold","uid":"g",
        "deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["kubernetes.io/vac-protection"]},"driverName":"d"}"#;

    #[test]
    fn a_deleted_class_goes_once_no_claim_has_it() {
        let plan = |world: &World| VacProtectionController.reconcile(&Key::cluster("gold"), world.view(), &context(), &mut ());
        let claim = r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","namespace":"n","uid":"c"},
            "spec":{"volumeAttributesClassName":"silver"},"status":{"currentVolumeAttributesClassName":"gold"}}"#;
        assert!(plan(&World::new().with(DELETED).with(claim)).is_empty());
        assert_eq!(plan(&World::new().with(DELETED)).operations.len(), 1);
    }
}
