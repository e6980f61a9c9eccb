//! `persistentvolume-protection-controller`: a deleted volume stays while it is bound to a claim.

use k8s_openapi::api::core::v1::PersistentVolume;

use crate::plan::Plan;
use crate::protection;
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::text;
use crate::view::{Key, ResourceName, View};

const VOLUMES: ResourceName = ResourceName::new("", "persistentvolumes");
const FINALIZER: &str = "kubernetes.io/pv-protection";

/// Keyed by the volume.
pub struct PvProtectionController;

impl Reconciler for PvProtectionController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "persistentvolume-protection-controller"
    }

    fn service_account(&self) -> &'static str {
        "pv-protection-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        vec![Trigger::itself(VOLUMES)]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, _: &mut ()) -> Plan {
        let Some(volume) = view.record(&VOLUMES, key) else { return Plan::default() };
        protection::plan(volume, FINALIZER, || {
            let volume = volume.typed::<PersistentVolume>();
            volume.is_none_or(|volume| volume.status.as_ref().is_some_and(|status| text(&status.phase) == "Bound"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    #[test]
    fn a_bound_volume_stays() {
        let volume = |phase: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"PersistentVolume","metadata":{{"name":"v","uid":"v","deletionTimestamp":"2026-01-01T00:00:00Z",
                "finalizers":["kubernetes.io/pv-protection"]}},"status":{{"phase":"{phase}"}}}}"#
            )
        };
        let plan = |phase: &str| {
            PvProtectionController.reconcile(&Key::cluster("v"), World::new().with(&volume(phase)).view(), &context(), &mut ()).operations.len()
        };
        assert_eq!((plan("Bound"), plan("Released"), plan("Available")), (0, 1, 1));
    }
}
