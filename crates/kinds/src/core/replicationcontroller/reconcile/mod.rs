//! `replicationcontroller-controller`: a ReplicationController is read as a ReplicaSet with an equality selector, and kept in the same way.

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::apps::replicaset::reconcile::sync;
use crate::owned::controller_of;
use crate::plan::{Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::text;
use crate::view::{Key, ObjectChange, ResourceName, View};

const CONTROLLERS: ResourceName = ResourceName::new("", "replicationcontrollers");
const PODS: ResourceName = ResourceName::new("", "pods");

pub struct ReplicationControllerController;

impl Reconciler for ReplicationControllerController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "replicationcontroller-controller"
    }

    fn service_account(&self) -> &'static str {
        "replication-controller"
    }

    fn component(&self) -> &'static str {
        "replication-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let orphans = Trigger {
            resource: PODS,
            keys: |view, change: &ObjectChange| {
                let Some(pod) = change.new.as_ref().filter(|pod| controller_of(&pod.meta).is_none()) else { return Vec::new() };
                let controllers = view.list::<ReplicationController>(Some(&pod.key.namespace));
                let selecting = controllers.filter(|controller| {
                    let selector = controller.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
                    !selector.is_empty() && selector.iter().all(|(key, value)| pod.label(key) == Some(value))
                });
                selecting.map(|controller| Key::new(pod.key.namespace.clone(), text(&controller.metadata.name))).collect()
            },
        };
        vec![Trigger::itself(CONTROLLERS), Trigger::controller_of::<ReplicationController>(PODS), orphans]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let Some(controller) = view.get::<ReplicationController>(&key.namespace, &key.name) else { return Plan::default() };
        let write = |status: &ReplicaSetStatus| {
            let status = from_set(status);
            (controller.status.as_ref() != Some(&status)).then(|| Operation::status(&*controller, &status))
        };
        sync::<ReplicationController>(&as_set(&controller), view, cx, write)
    }
}

fn as_set(controller: &ReplicationController) -> ReplicaSet {
    let spec = controller.spec.clone().unwrap_or_default();
    let status = controller.status.clone().unwrap_or_default();
    let condition = |condition: ReplicationControllerCondition| ReplicaSetCondition {
        last_transition_time: condition.last_transition_time,
        message: condition.message,
        reason: condition.reason,
        status: condition.status,
        type_: condition.type_,
    };
    ReplicaSet {
        metadata: controller.metadata.clone(),
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: spec.replicas,
            selector: LabelSelector { match_labels: spec.selector, match_expressions: None },
            template: spec.template,
        }),
        status: Some(ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|conditions| conditions.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            terminating_replicas: None,
        }),
    }
}

fn from_set(status: &ReplicaSetStatus) -> ReplicationControllerStatus {
    let condition = |condition: ReplicaSetCondition| ReplicationControllerCondition {
        last_transition_time: condition.last_transition_time,
        message: condition.message,
        reason: condition.reason,
        status: condition.status,
        type_: condition.type_,
    };
    ReplicationControllerStatus {
        available_replicas: status.available_replicas,
        conditions: status.conditions.clone().map(|conditions| conditions.into_iter().map(condition).collect()),
        fully_labeled_replicas: status.fully_labeled_replicas,
        observed_generation: status.observed_generation,
        ready_replicas: status.ready_replicas,
        replicas: status.replicas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::Cluster;
    use serde_json::{Value, json};

    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        cluster.create(json!({
            "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "r", "namespace": "a"},
            "spec": {"replicas": 2, "template": {"metadata": {"labels": {"app": "r"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
        }));
        cluster
    }

    fn settle(cluster: &mut Cluster) -> Vec<Value> {
        cluster.settle(&ReplicationControllerController, &Key::new("a", "r"), &mut ());
        cluster.names(&PODS, "a").iter().map(|name| cluster.get(&PODS, "a", name)).collect()
    }

    #[test]
    fn pods_are_made_adopted_and_released() {
        let mut cluster = cluster();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a", "labels": {"app": "r"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        cluster.create(pod);
        let pods = settle(&mut cluster);
        assert_eq!(pods.len(), 2);
        assert!(pods.iter().all(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController"));
        let status = cluster.get(&CONTROLLERS, "a", "r")["status"].clone();
        assert_eq!(status, json!({"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1}));
        cluster.edit(&PODS, "a", "p", |pod| pod["metadata"]["labels"] = json!({}));
        assert_eq!(settle(&mut cluster).len(), 3);
        assert!(cluster.get(&PODS, "a", "p")["metadata"]["ownerReferences"].is_null());
        cluster.edit(&CONTROLLERS, "a", "r", |controller| controller["spec"]["replicas"] = json!(0));
        assert_eq!(settle(&mut cluster).len(), 1);
    }

    #[test]
    fn a_quota_that_is_spent_shows_in_the_conditions() {
        let mut cluster = cluster();
        cluster.refuse = Some((PODS, "exceeded quota: q".into()));
        for _ in 0..2 {
            cluster.run(&ReplicationControllerController, &Key::new("a", "r"), &mut ());
        }
        let condition = cluster.get(&CONTROLLERS, "a", "r")["status"]["conditions"][0].clone();
        assert_eq!(
            (&condition["type"], &condition["reason"], &condition["message"]),
            (&json!("ReplicaFailure"), &json!("FailedCreate"), &json!("exceeded quota: q"))
        );
        cluster.refuse = None;
        settle(&mut cluster);
        settle(&mut cluster);
        assert!(cluster.get(&CONTROLLERS, "a", "r")["status"]["conditions"].is_null());
    }
}
