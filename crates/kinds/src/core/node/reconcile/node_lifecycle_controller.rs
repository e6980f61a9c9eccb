//! `node-lifecycle-controller`: notices that a node is silent, and says so in its conditions, its taints and its pods' readiness.
//!
//! ```text
//! lease, Ready condition --silent for the grace period--> conditions Unknown --> pods not ready, NoSchedule taint at once
//!                                                                           \--> NoExecute taint at the zone's pace --> taint-eviction-controller
//! ```
//!
//! Each step is a plan of its own: the next is decided on what the node then is. While no node of the cluster is ready, NoExecute taints are
//! taken away and none are set; when that ends, every node has a full grace period again.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use serde_json::{Map, Value, json};
use wheelhouse_base::Timestamp;

use super::heartbeat::{Heartbeat, NEVER_UPDATED};
use super::zones::{Limits, Zones, zone_of};
use super::{NODES, PODS, SERVICE_ACCOUNT, condition, note, status_of, taints};
use crate::core::pod::state;
use crate::plan::{EventNote, EventType, MAX_OPERATIONS, Operation, PatchStrategy, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::{api_time, timestamp};
use crate::validation::text;
use crate::view::{Key, ObjectChange, ResourceName, View};

const LEASES: ResourceName = ResourceName::new("coordination.k8s.io", "leases");
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// How often a node that is not well is looked at again, since what is due depends on its neighbours too: `--node-monitor-period`.
const MONITOR_PERIOD: Duration = Duration::from_secs(5);
/// The conditions that only the kubelet knows; `NetworkUnavailable` is the network's.
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// Older labels that follow newer ones.
const LABELS: [(&str, &str); 2] = [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

pub struct NodeLifecycleController;

/// What upstream too keeps only in process. Empty after a leader change, which gives every node a full grace period.
#[derive(Default)]
pub struct Memory {
    nodes: BTreeMap<String, Health>,
    limits: Limits,
    all_down: bool,
    /// No node counts as silent from before this.
    grace_from: Option<Timestamp>,
}

#[derive(Default)]
struct Health {
    heartbeat: Option<Heartbeat>,
    /// The zone's turn was taken for this node; kept until the taint is there, so that a failed write costs no second turn.
    granted: bool,
}

impl Reconciler for NodeLifecycleController {
    type Memory = Memory;

    fn name(&self) -> &'static str {
        "node-lifecycle-controller"
    }

    fn service_account(&self) -> &'static str {
        SERVICE_ACCOUNT
    }

    fn triggers(&self) -> Vec<Trigger> {
        let leases = Trigger {
            resource: LEASES,
            keys: |_, change: &ObjectChange| {
                let key = &change.reference.key;
                if &*key.namespace == LEASE_NAMESPACE { vec![Key::cluster(key.name.clone())] } else { Vec::new() }
            },
        };
        // A pod that calls itself ready on a node that nobody hears from.
        let pods = Trigger {
            resource: PODS,
            keys: |view, change: &ObjectChange| {
                let pod = change.new.as_ref().and_then(|record| record.typed::<Pod>()).filter(|pod| state::is_ready(pod));
                let node = pod.and_then(|pod| view.get::<Node>("", state::node(&pod)));
                let unheard = node.filter(|node| status_of(node, "Ready") == Some("Unknown"));
                unheard.map(|node| Key::cluster(text(&node.metadata.name))).into_iter().collect()
            },
        };
        vec![Trigger::itself(NODES), leases, pods]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut Memory) -> Plan {
        let mut plan = Plan::default();
        let Some(node) = view.get::<Node>("", &key.name) else {
            if let Some(beat) = memory.nodes.remove(&*key.name).and_then(|health| health.heartbeat) {
                plan.events.push(note(&key.name, &beat.uid, "RemovingNode", format!("Removing Node {} from Controller", key.name)));
            }
            return plan;
        };
        memory.watch_cluster(&node, view, cx.now);
        let deadline = memory.observe(&key.name, &node, view, cx.now, &mut plan);
        let ready = status_of(&node, "Ready");
        if deadline < cx.now {
            plan.requeue_no_later_than(cx.now.plus(MONITOR_PERIOD));
            if let Some(conditions) = silenced(&node, cx.now) {
                plan.operations.push(conditions_update(&node, &conditions));
                if ready == Some("True") {
                    plan.events.push(note(
                        &key.name,
                        text(&node.metadata.uid),
                        "NodeNotReady",
                        format!("Node {} status is now: NodeNotReady", key.name),
                    ));
                }
                return plan;
            }
        } else {
            // The deadline itself is still in time.
            plan.requeue_no_later_than(deadline.plus(Duration::from_micros(1)));
        }
        let no_execute = memory.no_execute(&node, view, cx.now, &mut plan);
        plan.operations.extend(metadata_patch(&node, no_execute, cx.now));
        if ready == Some("Unknown") {
            for pod in view.pods_on_node(&key.name).filter(|pod| state::is_ready(pod)).take(MAX_OPERATIONS - 1) {
                mark_not_ready(&pod, cx.now, &mut plan);
            }
        }
        plan
    }
}

impl Memory {
    /// Notes whether any node of the cluster is ready. Costs a look at all nodes only where that may matter.
    fn watch_cluster(&mut self, node: &Node, view: &View, now: Timestamp) {
        let well = status_of(node, "Ready") == Some("True");
        if well && !self.all_down {
            return;
        }
        let down = Zones::of(view.list::<Node>(None)).all_down();
        if self.all_down && !down {
            self.grace_from = Some(now);
        }
        self.all_down = down;
    }

    /// When the node's time is up.
    fn observe(&mut self, name: &str, node: &Node, view: &View, now: Timestamp, plan: &mut Plan) -> Timestamp {
        let uid = text(&node.metadata.uid);
        let health = self.nodes.entry(name.to_owned()).or_default();
        if health.heartbeat.as_ref().is_none_or(|beat| beat.uid != uid) {
            *health = Health::default();
            plan.events.push(note(name, uid, "RegisteredNode", format!("Registered Node {name} in Controller")));
        }
        let lease = view.get::<Lease>(LEASE_NAMESPACE, name);
        Heartbeat::observe(&mut health.heartbeat, node, lease.as_deref(), self.grace_from, now)
    }

    /// The NoExecute taint that the node is to have now. A node without a Ready condition is too new for a change.
    fn no_execute(&mut self, node: &Node, view: &View, now: Timestamp, plan: &mut Plan) -> Option<&'static str> {
        let health = self.nodes.entry(text(&node.metadata.name).to_owned()).or_default();
        let (wanted, other) = match status_of(node, "Ready") {
            None => return [taints::NOT_READY, taints::UNREACHABLE].into_iter().find(|key| taints::has(node, key, taints::NO_EXECUTE)),
            Some("False") => (taints::NOT_READY, taints::UNREACHABLE),
            Some("Unknown") => (taints::UNREACHABLE, taints::NOT_READY),
            Some(_) => {
                health.granted = false;
                return None;
            }
        };
        plan.requeue_no_later_than(now.plus(MONITOR_PERIOD));
        if self.all_down {
            health.granted = false;
            return None;
        }
        // One that is there stays, and is exchanged for the other without waiting.
        if taints::has(node, wanted, taints::NO_EXECUTE) || taints::has(node, other, taints::NO_EXECUTE) {
            health.granted = false;
            return Some(wanted);
        }
        if health.granted {
            return Some(wanted);
        }
        // Nodes that fall silent together do so one by one here: which of them are gone must be known before anything is evicted.
        let since = condition(node, "Ready").and_then(|ready| ready.last_transition_time.as_ref()).map(timestamp);
        if wanted == taints::UNREACHABLE && since.is_some_and(|since| since.plus(MONITOR_PERIOD) > now) {
            return None;
        }
        let zone = zone_of(node);
        let interval = Zones::of(view.list::<Node>(None)).interval(&zone)?;
        health.granted = self.limits.take(zone, interval, now).is_ok();
        health.granted.then_some(wanted)
    }
}

/// The conditions of a node that is silent; None if they say so already.
fn silenced(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    if status_of(node, "Ready") == Some("Unknown") {
        return None;
    }
    let mut conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    for kind in KUBELET_CONDITIONS {
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(api_time(now));
            }
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some(NEVER_UPDATED.to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(api_time(now)),
            }),
        }
    }
    Some(conditions)
}

fn conditions_update(node: &Node, conditions: &[NodeCondition]) -> Operation {
    let mut object = serde_json::to_value(node).expect("a Node is plain data");
    object["status"]["conditions"] = json!(conditions);
    Operation::Update { resource: NODES, subresource: "status", object }
}

fn mark_not_ready(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    let Some(old) = state::condition(pod, "Ready") else { return };
    let mut condition = old.clone();
    condition.status = "False".to_owned();
    condition.last_transition_time = Some(api_time(now));
    let meta = &pod.metadata;
    let key = Key::new(text(&meta.namespace), text(&meta.name));
    plan.operations.push(Operation::Patch {
        resource: PODS,
        key: key.clone(),
        subresource: "status",
        strategy: PatchStrategy::Strategic,
        patch: json!({"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}),
    });
    plan.events.push(EventNote {
        api_version: "v1".into(),
        kind: "Pod".into(),
        key,
        uid: meta.uid.clone().unwrap_or_default(),
        kind_of_event: EventType::Warning,
        reason: "NodeNotReady".into(),
        message: "Node is not ready".into(),
    });
}

/// Sets right the taints, and the older labels that repeat newer ones.
fn metadata_patch(node: &Node, no_execute: Option<&str>, now: Timestamp) -> Option<Operation> {
    let meta = &node.metadata;
    let given = meta.labels.as_ref();
    let label = |name: &str| given.and_then(|labels| labels.get(name));
    let stale = LABELS.iter().filter(|(newer, older)| label(newer).is_some() && label(newer) != label(older));
    let labels: Map<String, Value> = stale.map(|(newer, older)| ((*older).to_owned(), json!(label(newer)))).collect();
    let corrected = taints::corrected(node, &taints::no_schedule(node), no_execute, now);
    if labels.is_empty() && corrected.is_none() {
        return None;
    }
    let mut patch = json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}});
    if !labels.is_empty() {
        patch["metadata"]["labels"] = Value::Object(labels);
    }
    if let Some(taints) = corrected {
        patch["spec"] = json!({"taints": if taints.is_empty() { Value::Null } else { json!(taints) }});
    }
    let key = Key::cluster(text(&meta.name));
    Some(Operation::Patch { resource: NODES, key, subresource: "", strategy: PatchStrategy::Merge, patch })
}

#[cfg(test)]
mod tests;
