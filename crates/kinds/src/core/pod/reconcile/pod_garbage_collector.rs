//! `pod-garbage-collector-controller`: removes pods that nobody else will: no kubelet is there to do it, or they have long ended.
//!
//! It has one key and looks at all pods, at most once in [`PERIOD`]; in between, a change only makes sure that there is a next look.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use wheelhouse_base::Timestamp;

use crate::core::pod::state;
use crate::plan::{DeleteOptions, MAX_OPERATIONS, Operation, PatchStrategy, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::{api_time, timestamp};
use crate::validation::{items, text};
use crate::view::{Key, ResourceName, View};

const PODS: ResourceName = ResourceName::new("", "pods");
const NODES: ResourceName = ResourceName::new("", "nodes");
/// Upstream's `gcCheckPeriod`.
const PERIOD: Duration = Duration::from_secs(20);
/// How long a node must be missing before its pods go: it may be about to be registered again.
const QUARANTINE: Duration = Duration::from_secs(40);
/// `--terminated-pod-gc-threshold`: ended pods that may stay, for their logs and their owners to look at.
const TERMINATED_THRESHOLD: usize = 12_500;
/// Set by an administrator who knows that the machine is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

pub struct PodGarbageCollector {
    terminated_threshold: usize,
}

impl Default for PodGarbageCollector {
    fn default() -> Self {
        Self { terminated_threshold: TERMINATED_THRESHOLD }
    }
}

/// Empty after a leader change: every quarantine begins anew.
#[derive(Default)]
pub struct Memory {
    next_look: Option<Timestamp>,
    /// Since when nodes that pods name are missing.
    missing: BTreeMap<String, Timestamp>,
}

impl Reconciler for PodGarbageCollector {
    type Memory = Memory;

    fn name(&self) -> &'static str {
        "pod-garbage-collector-controller"
    }

    fn service_account(&self) -> &'static str {
        "pod-garbage-collector"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let look = |resource| Trigger { resource, keys: |_, _| vec![Key::cluster("pods")] };
        vec![look(PODS), look(NODES)]
    }

    fn reconcile(&self, _: &Key, view: &View, cx: &Context<'_>, memory: &mut Memory) -> Plan {
        let mut plan = Plan::default();
        if let Some(next) = memory.next_look.filter(|next| *next > cx.now) {
            plan.requeue_at = Some(next);
            return plan;
        }
        memory.next_look = Some(cx.now.plus(PERIOD));
        let pods: Vec<Arc<Pod>> = view.list::<Pod>(None).collect();
        let orphaned = memory.orphaned(&pods, view, cx.now);
        let mut going: BTreeSet<Key> = BTreeSet::new();
        let unserved = pods.iter().filter(|pod| is_unserved(pod, view)).map(|pod| (pod, false));
        let orphans = pods.iter().filter(|pod| orphaned.contains(state::node(pod))).map(|pod| (pod, true));
        let surplus = self.surplus(&pods);
        for (pod, orphan) in surplus.iter().map(|pod| (pod, false)).chain(unserved).chain(orphans) {
            let key = Key::new(text(&pod.metadata.namespace), text(&pod.metadata.name));
            if going.contains(&key) {
                continue;
            }
            // Two operations a pod.
            if plan.operations.len() + 2 > MAX_OPERATIONS {
                memory.next_look = None;
                plan.requeue_no_later_than(cx.now);
                break;
            }
            remove(pod, &key, orphan, cx.now, &mut plan);
            going.insert(key);
        }
        if !memory.missing.is_empty() {
            plan.requeue_no_later_than(cx.now.plus(PERIOD));
        }
        plan
    }
}

impl Memory {
    /// The nodes that pods name and that are missing for long enough.
    fn orphaned(&mut self, pods: &[Arc<Pod>], view: &View, now: Timestamp) -> BTreeSet<String> {
        let named: BTreeSet<&str> = pods.iter().map(|pod| state::node(pod)).filter(|node| !node.is_empty()).collect();
        let missing: BTreeSet<&str> = named.into_iter().filter(|node| view.record(&NODES, &Key::cluster(*node)).is_none()).collect();
        self.missing.retain(|node, _| missing.contains(node.as_str()));
        for node in missing {
            self.missing.entry(node.to_owned()).or_insert(now);
        }
        let past = self.missing.iter().filter(|(_, since)| since.plus(QUARANTINE) <= now);
        past.map(|(node, _)| node.clone()).collect()
    }
}

impl PodGarbageCollector {
    /// Ended pods over the threshold: evicted ones first, then the oldest.
    fn surplus(&self, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let mut ended: Vec<Arc<Pod>> = pods.iter().filter(|pod| matches!(state::phase(pod), "Succeeded" | "Failed")).cloned().collect();
        let count = ended.len().saturating_sub(self.terminated_threshold);
        if count > 0 {
            ended.sort_by_key(|pod| {
                let created = pod.metadata.creation_timestamp.as_ref().map(timestamp);
                (!is_evicted(pod), created, pod.metadata.name.clone())
            });
        }
        ended.truncate(count);
        ended
    }
}

fn is_evicted(pod: &Pod) -> bool {
    state::phase(pod) == "Failed" && pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted")
}

/// Being deleted with no kubelet to finish it: never bound, or on a node that is out of service.
fn is_unserved(pod: &Pod, view: &View) -> bool {
    if pod.metadata.deletion_timestamp.is_none() {
        return false;
    }
    let name = state::node(pod);
    if name.is_empty() {
        return true;
    }
    let Some(node) = view.get::<Node>("", name) else { return false };
    let conditions = node.status.as_ref().map(|status| items(&status.conditions)).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let tainted = node.spec.as_ref().is_some_and(|spec| items(&spec.taints).iter().any(|taint| taint.key == OUT_OF_SERVICE));
    !ready && tainted
}

/// Fails the pod first, since nobody else will say how it ended, then deletes it without grace.
fn remove(pod: &Pod, key: &Key, orphan: bool, now: Timestamp, plan: &mut Plan) {
    if !matches!(state::phase(pod), "Succeeded" | "Failed") {
        let mut status = json!({"phase": "Failed"});
        if orphan {
            status["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
                "lastTransitionTime": api_time(now),
            }]);
        }
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
        plan.operations.push(Operation::Patch { resource: PODS, key: key.clone(), subresource: "status", strategy: PatchStrategy::Strategic, patch });
    }
    let options = DeleteOptions { uid: pod.metadata.uid.clone(), grace_period_seconds: Some(0), ..DeleteOptions::default() };
    plan.operations.push(Operation::Delete { resource: PODS, key: key.clone(), options });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{NOW, World, context};

    fn pod(name: &str, node: &str, phase: &str, meta: &str) -> String {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}"{meta}}},
            "spec":{{"nodeName":"{node}","containers":[]}},"status":{{"phase":"{phase}"}}}}"#
        )
    }

    const ENDING: &str = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;

    fn look(collector: &PodGarbageCollector, world: &World, seconds: u64, memory: &mut Memory) -> Plan {
        let cx = Context { now: NOW.plus(Duration::from_secs(seconds)), ..context() };
        collector.reconcile(&Key::cluster("pods"), world.view(), &cx, memory)
    }

    fn removed(plan: &Plan) -> Vec<String> {
        let names = plan.operations.iter().filter_map(|operation| match operation {
            Operation::Delete { key, options, .. } if options.grace_period_seconds == Some(0) => Some(key.name.to_string()),
            _ => None,
        });
        names.collect()
    }

    #[test]
    fn pods_of_a_lost_node_go_after_the_quarantine() {
        let collector = PodGarbageCollector::default();
        let mut memory = Memory::default();
        let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"here","uid":"n"}}"#;
        let world = World::new().with(node).with(&pod("p", "gone", "Running", "")).with(&pod("q", "here", "Running", ""));
        let first = look(&collector, &world, 0, &mut memory);
        assert_eq!((removed(&first).len(), first.requeue_at), (0, Some(NOW.plus(PERIOD))));
        let early = look(&collector, &world, 5, &mut memory);
        assert_eq!((early.operations.len(), early.requeue_at), (0, Some(NOW.plus(PERIOD))), "one look in a period");
        assert!(removed(&look(&collector, &world, 20, &mut memory)).is_empty());
        let due = look(&collector, &world, 40, &mut memory);
        assert_eq!(removed(&due), ["p"]);
        let Operation::Patch { patch, .. } = &due.operations[0] else { panic!("{due:?}") };
        assert_eq!((&patch["status"]["phase"], &patch["status"]["conditions"][0]["reason"]), (&json!("Failed"), &json!("DeletionByPodGC")));
        let after = World::new().with(node).with(&pod("q", "here", "Running", ""));
        assert!(look(&collector, &after, 60, &mut memory).is_empty());
    }

    #[test]
    fn a_node_that_comes_back_in_time_keeps_its_pods() {
        let collector = PodGarbageCollector::default();
        let mut memory = Memory::default();
        let world = World::new().with(&pod("p", "n", "Running", ""));
        look(&collector, &world, 0, &mut memory);
        let world = world.with(r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"n"}}"#);
        assert!(look(&collector, &world, 50, &mut memory).is_empty());
    }

    #[test]
    fn ending_pods_without_a_kubelet_go() {
        let node = |name: &str, taint: &str| {
            format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}","uid":"{name}"}},"spec":{{"taints":[{taint}]}}}}"#)
        };
        let world = World::new()
            .with(&node("off", r#"{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}"#))
            .with(&node("on", ""))
            .with(&pod("unbound", "", "Pending", ENDING))
            .with(&pod("waiting", "", "Pending", ""))
            .with(&pod("stuck", "off", "Running", ENDING))
            .with(&pod("leaving", "on", "Running", ENDING));
        let plan = look(&PodGarbageCollector::default(), &world, 0, &mut Memory::default());
        assert_eq!(removed(&plan), ["stuck", "unbound"]);
        assert_eq!(plan.operations.len(), 4);
    }

    #[test]
    fn the_oldest_ended_pods_over_the_threshold_go() {
        let created = |second: u32| format!(r#","creationTimestamp":"2026-01-01T00:00:{second:02}Z""#);
        let evicted = pod("evicted", "", "Failed", &created(9)).replace(r#""phase":"Failed""#, r#""phase":"Failed","reason":"Evicted""#);
        let world = World::new()
            .with(&evicted)
            .with(&pod("new", "", "Succeeded", &created(8)))
            .with(&pod("old", "", "Failed", &created(1)))
            .with(&pod("busy", "", "Running", &created(0)));
        let plan = look(&PodGarbageCollector { terminated_threshold: 1 }, &world, 0, &mut Memory::default());
        assert_eq!(removed(&plan), ["evicted", "old"]);
        assert_eq!(plan.operations.len(), 2, "how they ended is known");
    }
}
