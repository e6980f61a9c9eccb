//! `persistentvolumeclaim-protection-controller`: a deleted claim stays until no pod uses it.

use k8s_openapi::api::core::v1::Pod;

use crate::plan::Plan;
use crate::protection;
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::text;
use crate::view::{Key, Record, ResourceName, View};

const CLAIMS: ResourceName = ResourceName::new("", "persistentvolumeclaims");
const PODS: ResourceName = ResourceName::new("", "pods");
const FINALIZER: &str = "kubernetes.io/pvc-protection";

/// Keyed by the claim.
pub struct PvcProtectionController;

impl Reconciler for PvcProtectionController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "persistentvolumeclaim-protection-controller"
    }

    fn service_account(&self) -> &'static str {
        "pvc-protection-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        // A pod that comes can only hold a claim back; one that goes or changes may set its claims free.
        let pods = Trigger {
            resource: PODS,
            keys: |_, change| {
                let Some(pod) = change.old.as_ref().and_then(|old| old.typed::<Pod>()) else { return Vec::new() };
                claims_of(&pod).map(|name| Key::new(change.reference.key.namespace.clone(), name)).collect()
            },
        };
        vec![Trigger::itself(CLAIMS), pods]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, _: &mut ()) -> Plan {
        let Some(claim) = view.record(&CLAIMS, key) else { return Plan::default() };
        protection::plan(claim, FINALIZER, || view.list::<Pod>(Some(&key.namespace)).any(|pod| uses(&pod, claim)))
    }
}

/// The claims that a pod names, those of its ephemeral volumes included.
fn claims_of(pod: &Pod) -> impl Iterator<Item = String> + '_ {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", text(&pod.metadata.name), volume.name)),
        (None, None) => None,
    })
}

/// A pod without a node uses nothing: no kubelet starts a pod whose claim is being deleted.
fn uses(pod: &Pod, claim: &Record) -> bool {
    let scheduled = pod.spec.as_ref().is_some_and(|spec| !text(&spec.node_name).is_empty());
    if !scheduled {
        return false;
    }
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let made_for_pod = claim.owners().iter().any(|owner| owner.controller == Some(true) && owner.uid == text(&pod.metadata.uid));
    volumes.into_iter().any(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(named), _) => *named.claim_name == *claim.key.name,
        (None, Some(_)) => made_for_pod && format!("{}-{}", text(&pod.metadata.name), volume.name) == *claim.key.name,
        (None, None) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Operation;
    use crate::reconciler::testing::{World, context};

    fn claim(rest: &str) -> String {
        format!(r#"{{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{{"name":"c","namespace":"a","uid":"c"{rest}}}}}"#)
    }

    fn pod(node: &str) -> String {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p","namespace":"a","uid":"p"}},"spec":{{"nodeName":"{node}","containers":[],
            "volumes":[{{"name":"v","persistentVolumeClaim":{{"claimName":"c"}}}}]}}}}"#
        )
    }

    fn finalizers(world: &World) -> Option<serde_json::Value> {
        let plan = PvcProtectionController.reconcile(&Key::new("a", "c"), world.view(), &context(), &mut ());
        match &plan.operations[..] {
            [Operation::Update { object, .. }] => Some(object["metadata"]["finalizers"].clone()),
            [] => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_claim_in_use_stays() {
        let going = claim(r#","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x","kubernetes.io/pvc-protection"]"#);
        let free = Some(serde_json::json!(["x"]));
        assert_eq!(finalizers(&World::new().with(&going)), free);
        assert_eq!(finalizers(&World::new().with(&going).with(&pod("n"))), None);
        assert_eq!(finalizers(&World::new().with(&going).with(&pod(""))), free, "an unscheduled pod uses nothing");
        assert_eq!(finalizers(&World::new().with(&claim(""))), Some(serde_json::json!(["kubernetes.io/pvc-protection"])));
        assert_eq!(finalizers(&World::new().with(&claim(r#","finalizers":["kubernetes.io/pvc-protection"]"#))), None);
    }
}
