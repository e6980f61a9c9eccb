//! `ephemeral-volume-controller`: makes the claims of a pod's generic ephemeral volumes. They are the pod's own and go with it.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimTemplate, Pod};
use serde_json::{Value, json};

use crate::owned::controller_reference;
use crate::plan::{Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::{items, text};
use crate::view::{Key, ObjectChange, ResourceName, View};

const PODS: ResourceName = ResourceName::new("", "pods");
const CLAIMS: ResourceName = ResourceName::new("", "persistentvolumeclaims");

pub struct EphemeralVolumeController;

impl Reconciler for EphemeralVolumeController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "ephemeral-volume-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let with_volumes = Trigger {
            resource: PODS,
            keys: |_, change: &ObjectChange| {
                // Volumes never change, so that a pod's coming is enough.
                let pod = change.new.as_ref().filter(|_| change.old.is_none()).and_then(|record| record.typed::<Pod>());
                pod.filter(|pod| templates(pod).next().is_some()).map(|_| change.reference.key.clone()).into_iter().collect()
            },
        };
        vec![with_volumes, Trigger::controller_of::<Pod>(CLAIMS)]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let pod = view.get::<Pod>(&key.namespace, &key.name).filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let Some(pod) = pod else { return plan };
        for (volume, template) in templates(&pod) {
            let name = format!("{}-{volume}", key.name);
            // Another's claim of that name is left alone, and the pod waits.
            if view.get::<PersistentVolumeClaim>(&key.namespace, &name).is_none() {
                let object = claim(&pod, &name, template);
                plan.operations.push(Operation::Create { resource: CLAIMS, namespace: key.namespace.to_string(), object });
            }
        }
        plan
    }
}

/// Names and templates of the pod's ephemeral volumes.
fn templates(pod: &Pod) -> impl Iterator<Item = (&str, &PersistentVolumeClaimTemplate)> {
    let volumes = pod.spec.as_ref().map(|spec| items(&spec.volumes)).unwrap_or_default();
    volumes.iter().filter_map(|volume| Some((volume.name.as_str(), volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?)))
}

fn claim(pod: &Pod, name: &str, template: &PersistentVolumeClaimTemplate) -> Value {
    let given = template.metadata.clone().unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name, "namespace": text(&pod.metadata.namespace), "labels": given.labels, "annotations": given.annotations,
            "ownerReferences": [controller_reference("v1", "Pod", &pod.metadata)],
        },
        "spec": template.spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::Cluster;

    #[test]
    fn each_ephemeral_volume_has_its_claim() {
        let mut cluster = Cluster::default();
        let template = json!({
            "metadata": {"labels": {"tier": "scratch"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "e", "emptyDir": {}}]},
        }));
        cluster.settle(&EphemeralVolumeController, &Key::new("a", "p"), &mut ());
        assert_eq!(cluster.names(&CLAIMS, "a"), ["p-v"]);
        let claim = cluster.get(&CLAIMS, "a", "p-v");
        assert_eq!((&claim["metadata"]["labels"]["tier"], &claim["metadata"]["ownerReferences"][0]["kind"]), (&json!("scratch"), &json!("Pod")));
    }
}
