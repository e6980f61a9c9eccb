//! The other half of `disruption-controller`: takes back a pod's `DisruptionTarget` when the disruption did not come.
//!
//! Whoever is about to delete a pod says so in this condition first. If the pod is still there two minutes later, the deletion failed, and a Job must not
//! take the pod's later end for a disruption.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::core::pod::state;
use crate::plan::{Operation, PatchStrategy, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::{api_time, timestamp};
use crate::view::{Key, ObjectChange, ResourceName, View};

const PODS: ResourceName = ResourceName::new("", "pods");
const CONDITION: &str = "DisruptionTarget";
/// Upstream's `stalePodDisruptionTimeout`.
const TIMEOUT: Duration = Duration::from_secs(120);

pub struct StaleDisruptionController;

fn is_announced(pod: &Pod) -> bool {
    let ended = matches!(state::phase(pod), "Succeeded" | "Failed");
    !ended && pod.metadata.deletion_timestamp.is_none() && state::condition(pod, CONDITION).is_some_and(|condition| condition.status == "True")
}

impl Reconciler for StaleDisruptionController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let announced = Trigger {
            resource: PODS,
            keys: |_, change: &ObjectChange| {
                let pod = change.new.as_ref().and_then(|record| record.typed::<Pod>()).filter(|pod| is_announced(pod));
                pod.map(|_| change.reference.key.clone()).into_iter().collect()
            },
        };
        vec![announced]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = view.get::<Pod>(&key.namespace, &key.name).filter(|pod| is_announced(pod)) else { return plan };
        let since = state::condition(&pod, CONDITION).and_then(|condition| condition.last_transition_time.as_ref()).map_or(cx.now, timestamp);
        let due = since.plus(TIMEOUT);
        if due > cx.now {
            plan.requeue_no_later_than(due);
            return plan;
        }
        let condition = json!({"type": CONDITION, "status": "False", "reason": "", "message": "", "lastTransitionTime": api_time(cx.now)});
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
        plan.operations.push(Operation::Patch { resource: PODS, key: key.clone(), subresource: "status", strategy: PatchStrategy::Strategic, patch });
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{NOW, World, context};

    #[test]
    fn an_announcement_lapses() {
        let world = World::new().with(
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a","uid":"p"},"spec":{"containers":[]},
            "status":{"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True","lastTransitionTime":"2026-01-01T00:09:00Z"}]}}"#,
        );
        let at = |seconds: u64| {
            let cx = Context { now: NOW.plus(Duration::from_secs(seconds)), ..context() };
            StaleDisruptionController.reconcile(&Key::new("a", "p"), world.view(), &cx, &mut ())
        };
        assert_eq!(at(0).requeue_at, Some(NOW.plus(Duration::from_secs(60))));
        let [Operation::Patch { patch, .. }] = &at(60).operations[..] else { panic!("it stands") };
        assert_eq!(patch["status"]["conditions"][0]["status"], "False");
    }
}
