//! `taint-eviction-controller`: deletes pods that do not, or no longer, bear the NoExecute taints of their node.
//!
//! A pod's toleration counts from when this controller first saw the pod on the tainted node. That is remembered in process only, as by
//! upstream: after a leader change `tolerationSeconds` count afresh, and a pod may stay longer, never shorter.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use serde_json::json;
use wheelhouse_base::Timestamp;

use super::{NODES, PODS, SERVICE_ACCOUNT, taints};
use crate::core::pod::state;
use crate::plan::{DeleteOptions, EventNote, EventType, Operation, PatchStrategy, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::api_time;
use crate::validation::{items, text};
use crate::view::{Key, ObjectChange, Record, View};

const REASON: &str = "DeletionByTaintManager";

pub struct TaintEvictionController;

/// Pods whose toleration runs out, with the uid and since when it counts.
pub type Memory = BTreeMap<Key, (String, Timestamp)>;

/// How long a pod may stay.
#[derive(Debug, PartialEq, Eq)]
enum Stay {
    Forever,
    For(Duration),
}

impl Reconciler for TaintEvictionController {
    type Memory = Memory;

    fn name(&self) -> &'static str {
        "taint-eviction-controller"
    }

    fn service_account(&self) -> &'static str {
        SERVICE_ACCOUNT
    }

    fn triggers(&self) -> Vec<Trigger> {
        let nodes = Trigger {
            resource: NODES,
            keys: |view, change: &ObjectChange| {
                if no_execute_of(change.old.as_deref()) == no_execute_of(change.new.as_deref()) {
                    return Vec::new();
                }
                let pods = view.pods_on_node(&change.reference.key.name);
                pods.map(|pod| Key::new(text(&pod.metadata.namespace), text(&pod.metadata.name))).collect()
            },
        };
        vec![Trigger::itself(PODS), nodes]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut Memory) -> Plan {
        let mut plan = Plan::default();
        let pod = view.get::<Pod>(&key.namespace, &key.name).filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let Some(pod) = pod else {
            memory.remove(key);
            return plan;
        };
        let uid = text(&pod.metadata.uid);
        if memory.get(key).is_some_and(|(known, _)| known != uid) {
            memory.remove(key);
        }
        let node = view.get::<Node>("", state::node(&pod));
        let standing = node.iter().flat_map(|node| taints::all(node)).filter(|taint| taint.effect == taints::NO_EXECUTE);
        let stay = match stay(&pod, &standing.cloned().collect::<Vec<_>>()) {
            Stay::Forever => {
                if memory.remove(key).is_some() {
                    plan.events.push(note(key, uid, format!("Cancelling deletion of Pod {key}")));
                }
                return plan;
            }
            Stay::For(stay) => stay,
        };
        let (_, since) = memory.entry(key.clone()).or_insert_with(|| (uid.to_owned(), cx.now));
        let due = since.plus(stay);
        if due > cx.now {
            plan.requeue_no_later_than(due);
            return plan;
        }
        plan.events.push(note(key, uid, format!("Marking for deletion Pod {key}")));
        plan.operations.extend(mark(&pod, key, cx.now));
        let options = DeleteOptions { uid: pod.metadata.uid.clone(), ..DeleteOptions::default() };
        plan.operations.push(Operation::Delete { resource: PODS, key: key.clone(), options });
        plan
    }
}

fn no_execute_of(record: Option<&Record>) -> Vec<Taint> {
    let node = record.and_then(|record| record.typed::<Node>());
    node.iter().flat_map(|node| taints::all(node)).filter(|taint| taint.effect == taints::NO_EXECUTE).cloned().collect()
}

/// Each taint is borne by the first toleration that matches it; the shortest of those decides.
fn stay(pod: &Pod, standing: &[Taint]) -> Stay {
    let tolerations = pod.spec.as_ref().map(|spec| items(&spec.tolerations)).unwrap_or_default();
    let mut shortest = Stay::Forever;
    for taint in standing {
        let Some(toleration) = tolerations.iter().find(|toleration| taints::tolerates(toleration, taint)) else {
            return Stay::For(Duration::ZERO);
        };
        // A negative time is none.
        let Some(seconds) = toleration.toleration_seconds.map(|seconds| u64::try_from(seconds).unwrap_or(0)) else { continue };
        let time = Duration::from_secs(seconds);
        shortest = match shortest {
            Stay::For(shorter) if shorter <= time => Stay::For(shorter),
            _ => Stay::For(time),
        };
    }
    shortest
}

/// Why the pod goes, for whoever watches it go.
fn mark(pod: &Pod, key: &Key, now: Timestamp) -> Option<Operation> {
    let marked = state::condition(pod, "DisruptionTarget");
    if marked.is_some_and(|condition| condition.status == "True" && condition.reason.as_deref() == Some(REASON)) {
        return None;
    }
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": REASON, "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": api_time(now),
    });
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
    Some(Operation::Patch { resource: PODS, key: key.clone(), subresource: "status", strategy: PatchStrategy::Strategic, patch })
}

fn note(key: &Key, uid: &str, message: String) -> EventNote {
    EventNote {
        api_version: "v1".into(),
        kind: "Pod".into(),
        key: key.clone(),
        uid: uid.into(),
        kind_of_event: EventType::Normal,
        reason: "TaintManagerEviction".into(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{NOW, World, context};

    fn node(taints: &str) -> String {
        format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"n","uid":"n"}},"spec":{{"taints":[{taints}]}}}}"#)
    }

    const UNREACHABLE: &str = r#"{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}"#;

    fn pod(tolerations: &str) -> String {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p","namespace":"a","uid":"p"}},
            "spec":{{"nodeName":"n","containers":[],"tolerations":[{tolerations}]}},"status":{{"phase":"Running"}}}}"#
        )
    }

    fn patient(seconds: i64) -> String {
        format!(r#"{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":{seconds}}}"#)
    }

    fn at(world: &World, seconds: u64, memory: &mut Memory) -> Plan {
        let cx = Context { now: NOW.plus(Duration::from_secs(seconds)), ..context() };
        TaintEvictionController.reconcile(&Key::new("a", "p"), world.view(), &cx, memory)
    }

    #[test]
    fn a_pod_without_toleration_goes_at_once() {
        let plan = at(&World::new().with(&node(UNREACHABLE)).with(&pod("")), 0, &mut Memory::new());
        let [Operation::Patch { patch, .. }, Operation::Delete { options, .. }] = &plan.operations[..] else { panic!("{plan:?}") };
        assert_eq!(patch["status"]["conditions"][0]["reason"], REASON);
        assert_eq!(options.uid.as_deref(), Some("p"));
        assert_eq!((plan.events[0].reason.as_str(), plan.events[0].message.as_str()), ("TaintManagerEviction", "Marking for deletion Pod a/p"));
        let ending = pod("").replace(r#""uid":"p""#, r#""uid":"p","deletionTimestamp":"2026-01-01T00:00:00Z""#);
        assert!(at(&World::new().with(&node(UNREACHABLE)).with(&ending), 0, &mut Memory::new()).is_empty());
    }

    #[test]
    fn toleration_runs_out_and_its_end_can_be_called_off() {
        let mut memory = Memory::new();
        let world = World::new().with(&node(UNREACHABLE)).with(&pod(&patient(300)));
        let due = Some(NOW.plus(Duration::from_secs(300)));
        assert_eq!(at(&world, 0, &mut memory).requeue_at, due);
        assert_eq!(at(&world, 200, &mut memory).requeue_at, due, "looking again does not start it afresh");
        assert_eq!(at(&world, 300, &mut memory).operations.len(), 2);
        let world = world.with(&node(""));
        let plan = at(&world, 301, &mut memory);
        assert_eq!((plan.operations.len(), plan.events[0].message.as_str()), (0, "Cancelling deletion of Pod a/p"));
        assert!(at(&world, 302, &mut memory).is_empty());
    }

    #[test]
    fn the_shortest_toleration_in_use_decides() {
        let other = r#"{"key":"k","value":"v","effect":"NoExecute"}"#;
        let standing = |json: &str| serde_json::from_str::<Vec<Taint>>(json).unwrap();
        let pod = |tolerations: &str| serde_json::from_str::<Pod>(&pod(tolerations)).unwrap();
        let both = standing(&format!("[{UNREACHABLE},{other}]"));
        let equal = r#"{"key":"k","value":"v","tolerationSeconds":5}"#;
        assert_eq!(stay(&pod(&format!("{},{equal}", patient(300))), &both), Stay::For(Duration::from_secs(5)));
        assert_eq!(stay(&pod(&patient(300)), &both), Stay::For(Duration::ZERO), "one taint is not borne");
        assert_eq!(stay(&pod(r#"{"operator":"Exists"}"#), &both), Stay::Forever);
        assert_eq!(stay(&pod(&patient(-1)), &both[..1]), Stay::For(Duration::ZERO));
        assert_eq!(stay(&pod(r#"{"key":"k","value":"w"}"#), &both[1..]), Stay::For(Duration::ZERO));
    }
}
