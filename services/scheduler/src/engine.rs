//! The scheduler's state and its two moves: take in a change, decide about the next pod. Pure; the driver around it does what it says.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod, ReplicationController, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as ApiSelector;
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::core::pod::state;
use wheelhouse_kinds::owned;
use wheelhouse_kinds::view::{Key, ObjectChange, Record};
use wheelhouse_meta::selector::LabelSelector;

use crate::change::Change;
use crate::cycle::{Cursor, Decision, decide};
use crate::node::NodeFacts;
use crate::plugins::default_preemption::{Preemption, preempt};
use crate::pod::PodInfo;
use crate::queue::{Queue, Waiting};
use crate::snapshot::{Budget, Snapshot};

#[derive(Default)]
pub struct Engine {
    snapshot: Snapshot,
    queue: Queue,
    cursor: Cursor,
    random: u64,
}

/// What to do about one pod.
#[derive(Clone, Debug)]
pub enum Step {
    /// Bind it. Report [`Engine::bind_failed`] if that does not work; success is seen in the pod.
    Bind { pod: Arc<PodInfo>, node: Arc<str> },
    /// Say that it cannot be scheduled.
    Report { pod: Arc<PodInfo>, report: Report },
}

#[derive(Clone, Debug)]
pub struct Report {
    pub message: String,
    /// Whether the pod's condition says something else yet.
    pub condition_changes: bool,
    /// The node to nominate it for, empty to withdraw; `None` leaves what is there.
    pub nomination: Option<String>,
    /// Pods to evict from that node.
    pub victims: Vec<Arc<PodInfo>>,
}

impl Engine {
    /// `seed` decides between equally good nodes.
    pub fn new(seed: u64) -> Self {
        Self { random: seed | 1, ..Self::default() }
    }

    /// Takes in a change of any object; those that do not matter are ignored.
    pub fn apply(&mut self, change: &ObjectChange, now: Timestamp) {
        let key = &change.reference.key;
        let new = change.new.as_deref();
        match (&*change.reference.resource.group, &*change.reference.resource.plural) {
            ("", "pods") => self.pod_changed(key, new, now),
            ("", "nodes") => self.node_changed(key, new, now),
            ("", "namespaces") => {
                let labels = new.map(|record| record.meta.labels.clone().unwrap_or_default());
                if self.snapshot.set_namespace(&key.name, labels) {
                    self.queue.cluster_changed(&Change::NamespaceLabels, now);
                }
            }
            ("", "services") => {
                let service = new.and_then(Record::typed::<Service>);
                self.snapshot.set_service(key, service.and_then(|service| service.spec.as_ref()?.selector.clone()));
            }
            ("", "replicationcontrollers") => {
                let owner = new.and_then(Record::typed::<ReplicationController>);
                let labels = owner.and_then(|owner| owner.spec.as_ref()?.selector.clone());
                let selector = labels.map(|labels| ApiSelector { match_labels: Some(labels), ..ApiSelector::default() });
                self.set_owner("ReplicationController", key, selector.as_ref());
            }
            ("apps", "replicasets") => {
                let owner = new.and_then(Record::typed::<ReplicaSet>);
                self.set_owner("ReplicaSet", key, owner.as_ref().and_then(|owner| Some(&owner.spec.as_ref()?.selector)));
            }
            ("apps", "statefulsets") => {
                let owner = new.and_then(Record::typed::<StatefulSet>);
                self.set_owner("StatefulSet", key, owner.as_ref().and_then(|owner| Some(&owner.spec.as_ref()?.selector)));
            }
            ("policy", "poddisruptionbudgets") => {
                self.snapshot.set_budget(key, new.and_then(Record::typed::<PodDisruptionBudget>).map(|budget| read_budget(&budget)));
            }
            _ => {}
        }
    }

    fn set_owner(&mut self, kind: &'static str, key: &Key, selector: Option<&ApiSelector>) {
        self.snapshot.set_owner(kind, key, selector.map(|selector| owned::selector(Some(selector))));
    }

    fn node_changed(&mut self, key: &Key, new: Option<&Record>, now: Timestamp) {
        let new = new.and_then(Record::typed::<Node>).map(|node| Arc::new(NodeFacts::parse(&key.name, &node)));
        let old = self.snapshot.set_node(&key.name, new.clone());
        if old != new {
            self.queue.cluster_changed(&Change::Node { old, new }, now);
        }
    }

    fn pod_changed(&mut self, key: &Key, new: Option<&Record>, now: Timestamp) {
        let parsed = new.and_then(|record| Some((record.revision, record.typed::<Pod>()?)));
        let new = parsed.map(|(revision, pod)| Arc::new(PodInfo::parse(key.clone(), revision, pod)));
        let new = new.filter(|pod| !pod.ended());
        let old = self.snapshot.placed(key).cloned();
        if let Some(old) = &old
            && new.as_ref().is_none_or(|new| new.uid != old.uid)
        {
            self.snapshot.remove(key);
            self.queue.cluster_changed(&Change::Pod { old: Some(old.clone()), new: None }, now);
        }
        let old = old.filter(|old| new.as_ref().is_some_and(|new| new.uid == old.uid));
        // A nomination that the API server has not confirmed yet outlives other changes of its pod.
        let kept = self.snapshot.unconfirmed_nomination(key);
        self.snapshot.withdraw_nomination(key);
        let Some(new) = new else { return self.queue.remove(key) };
        if !new.node().is_empty() {
            self.queue.remove(key);
            // Its arrival was not told when it was only assumed.
            let old = old.filter(|_| !self.snapshot.is_assumed(key));
            self.snapshot.place(new.clone(), new.node());
            self.queue.cluster_changed(&Change::Pod { old, new: Some(new) }, now);
        } else if !new.is_ours() {
            self.queue.remove(key);
        } else {
            let nominated = if new.nominated_node().is_empty() { kept } else { Some(new.nominated_node().to_owned()) };
            if let Some(node) = nominated.filter(|_| !self.snapshot.is_assumed(key)) {
                self.snapshot.nominate(new.clone(), &node);
            }
            self.queue.offer(new, now);
        }
    }

    /// Decides about the next pod that is due, if there is one.
    pub fn step(&mut self, now: Timestamp) -> Option<Step> {
        let pod = self.queue.pop(now)?;
        let seed = self.next_random();
        Some(match decide(&pod, &mut self.snapshot, &mut self.cursor, seed) {
            Decision::Fits(node) => {
                self.snapshot.withdraw_nomination(&pod.key);
                self.snapshot.assume(pod.clone(), &node);
                Step::Bind { pod, node }
            }
            Decision::Unschedulable(mut diagnosis) => {
                let mut report = Report { message: String::new(), condition_changes: false, nomination: None, victims: Vec::new() };
                if diagnosis.nodes > 0 {
                    match preempt(&pod, &mut self.snapshot, &diagnosis, seed) {
                        Preemption::Evict { node, victims } => {
                            self.snapshot.withdraw_nomination(&pod.key);
                            self.snapshot.nominate(pod.clone(), &node);
                            (report.nomination, report.victims) = (Some(node.to_string()), victims);
                        }
                        Preemption::Not { message, waiting } => {
                            diagnosis.preemption = Some(message);
                            if !waiting {
                                self.snapshot.withdraw_nomination(&pod.key);
                                report.nomination = Some(String::new());
                            }
                        }
                    }
                } else {
                    report.nomination = Some(String::new());
                }
                report.nomination = report.nomination.filter(|node| node != pod.nominated_node());
                report.message = diagnosis.to_string();
                report.condition_changes = !says(&pod, &report.message);
                self.queue.rejected(&pod.key, diagnosis.rejected_by, now);
                Step::Report { pod, report }
            }
        })
    }

    /// The binding was not written: the pod does not count on its node, and is tried again after a back-off if it still waits.
    pub fn bind_failed(&mut self, pod: &PodInfo, now: Timestamp) {
        if self.snapshot.is_assumed(&pod.key) && self.snapshot.placed(&pod.key).is_some_and(|placed| placed.uid == pod.uid) {
            let removed = self.snapshot.remove(&pod.key);
            self.queue.failed(&pod.key, now);
            if let Some((old, _)) = removed {
                self.queue.cluster_changed(&Change::Pod { old: Some(old), new: None }, now);
            }
        }
    }

    /// Not all victims could be evicted: the nomination is void and the pod looks for another way.
    pub fn eviction_failed(&mut self, pod: &PodInfo, now: Timestamp) {
        self.snapshot.withdraw_nomination(&pod.key);
        self.queue.wake(&pod.key, now);
    }

    /// How many pods wait, and for what.
    pub fn queues(&self) -> Waiting {
        self.queue.waiting()
    }

    /// When [`Engine::step`] has something to decide next; the beginning of time for now.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.queue.next_due()
    }

    /// Pods that wait, those in flight included.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn next_random(&mut self) -> u64 {
        // xorshift64: enough to spread ties.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Whether the pod's condition already reads so.
fn says(pod: &PodInfo, message: &str) -> bool {
    state::condition(&pod.pod, "PodScheduled").is_some_and(|condition| {
        condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable") && condition.message.as_deref() == Some(message)
    })
}

fn read_budget(budget: &PodDisruptionBudget) -> Budget {
    let status = budget.status.as_ref();
    let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
    Budget {
        selector: budget.spec.as_ref().map_or_else(LabelSelector::nothing, |spec| owned::selector(spec.selector.as_ref())),
        allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
        disrupted: disrupted.into_iter().flat_map(|pods| pods.keys().cloned()).collect(),
    }
}

#[cfg(test)]
mod tests;
