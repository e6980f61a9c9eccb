//! `daemonset-controller`: one pod of a template on every node that fits.
//!
//! ```text
//! nodes -> placement: should run, may go on, must go
//!       -> pods missing, ended or too many (manage)  -> then, once that is in order, the next step of a rolling update
//! ```
//!
//! A daemon's pod names its node by affinity and is bound by the scheduler. Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/>.

mod failures;
mod placement;
mod pods;
mod status;
mod update;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use wheelhouse_base::Timestamp;

use crate::apps::controllerrevision::history::{History, Present, REVISION_LABEL, REVISIONS, hash_of, revision_of};
use crate::core::pod::state;
use crate::owned::{Claim, claim, controller_of, matches, selector};
use crate::plan::{EventNote, EventType, MAX_OPERATIONS, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::text;
use crate::view::{Key, ObjectChange, Record, ResourceName, View};

const SETS: ResourceName = ResourceName::new("apps", "daemonsets");
const PODS: ResourceName = ResourceName::new("", "pods");
const NODES: ResourceName = ResourceName::new("", "nodes");
/// Creations and deletions of one plan: upstream's `BurstReplicas`.
const MAX_CHANGES: usize = 250;

pub struct DaemonSetController;

/// One set, its pods by the node they are for, and what each node is to it.
struct Sync<'a> {
    set: &'a DaemonSet,
    spec: &'a DaemonSetSpec,
    view: &'a View,
    now: Timestamp,
    nodes: Vec<(Arc<Node>, placement::Placement)>,
    pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// The hash of the present template.
    hash: String,
}

/// What a step does with pods.
#[derive(Default)]
struct Changes {
    /// Names of nodes.
    create: Vec<String>,
    delete: Vec<Arc<Pod>>,
}

impl Reconciler for DaemonSetController {
    type Memory = BTreeMap<Key, failures::Failures>;

    fn name(&self) -> &'static str {
        "daemonset-controller"
    }

    fn service_account(&self) -> &'static str {
        "daemon-set-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let nodes = Trigger {
            resource: NODES,
            keys: |view, change: &ObjectChange| {
                if matters(change.old.as_deref()) == matters(change.new.as_deref()) {
                    return Vec::new();
                }
                view.list::<DaemonSet>(None).map(|set| Key::new(text(&set.metadata.namespace), text(&set.metadata.name))).collect()
            },
        };
        let orphans = Trigger {
            resource: PODS,
            keys: |view, change: &ObjectChange| {
                let Some(pod) = change.new.as_ref().filter(|pod| controller_of(&pod.meta).is_none()) else { return Vec::new() };
                let sets = view.list::<DaemonSet>(Some(&pod.key.namespace));
                let selecting = sets.filter(|set| matches(&selector(set.spec.as_ref().map(|spec| &spec.selector)), pod.meta.labels.as_ref()));
                selecting.map(|set| Key::new(pod.key.namespace.clone(), text(&set.metadata.name))).collect()
            },
        };
        vec![Trigger::itself(SETS), Trigger::controller_of::<DaemonSet>(PODS), Trigger::controller_of::<DaemonSet>(REVISIONS), nodes, orphans]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut Self::Memory) -> Plan {
        let mut plan = Plan::default();
        let Some(set) = view.get::<DaemonSet>(&key.namespace, &key.name) else {
            memory.remove(key);
            return plan;
        };
        let Some(spec) = set.spec.as_ref().filter(|_| set.metadata.deletion_timestamp.is_none()) else { return plan };
        let wanted = selector(Some(&spec.selector));
        if wanted.is_everything() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            plan.events.push(note(&set, EventType::Warning, "SelectingAll", message.into()));
            return plan;
        }
        let Claim { owned, operations } = claim::<Pod>(view, &set.metadata, "apps/v1", "DaemonSet", &wanted);
        plan.operations = operations;
        let Claim { owned: revisions, operations } = claim::<ControllerRevision>(view, &set.metadata, "apps/v1", "DaemonSet", &wanted);
        plan.operations.extend(operations);
        if !plan.operations.is_empty() {
            plan.operations.truncate(MAX_OPERATIONS);
            return plan;
        }
        let history = History::new(&set.metadata, revisions);
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
        let current = match history.present::<DaemonSet>(view, &spec.template, REVISION_LABEL, collisions) {
            Present::Found(revision) => revision,
            Present::Written(operation) => {
                plan.operations.push(operation);
                return plan;
            }
            Present::Collision => {
                let mut status = set.status.clone().unwrap_or_default();
                status.collision_count = Some(collisions + 1);
                plan.operations.push(Operation::status(&*set, &status));
                return plan;
            }
        };
        let sync = Sync::sort_out(&set, spec, view, owned, hash_of(&current, REVISION_LABEL).to_owned(), cx.now);
        let failed = memory.entry(key.clone()).or_default();
        let mut changes = pods::manage(&sync, failed, &mut plan);
        if changes.create.is_empty() && changes.delete.is_empty() {
            changes = update::step(&sync, &mut plan);
        }
        if let Some(failure) = cx.failure.filter(|failure| failure.resource == PODS && !matches!(failure.code, 404 | 409)) {
            plan.events.push(note(&set, EventType::Warning, "FailedCreate", format!("Error creating: {}", failure.message)));
            // What is refused once is tried with one pod, at the pace of the queue's back-off.
            changes.create.truncate(1);
        }
        status::write(&sync, &mut plan);
        pods::carry_out(&sync, changes, &mut plan);
        let live = |revision: &ControllerRevision| {
            let hash = hash_of(revision, REVISION_LABEL);
            hash == sync.hash || sync.pods.values().flatten().any(|pod| revision_of(&pod.metadata) == hash)
        };
        plan.operations.extend(history.clean_up(spec.revision_history_limit.unwrap_or(10), live));
        plan.operations.truncate(MAX_OPERATIONS);
        plan
    }
}

/// What about a node decides on its daemons: not its heartbeats.
fn matters(record: Option<&Record>) -> Option<(String, String)> {
    let node = record?.typed::<Node>()?;
    Some((serde_json::to_string(&node.metadata.labels).unwrap_or_default(), serde_json::to_string(&node.spec).unwrap_or_default()))
}

impl<'a> Sync<'a> {
    fn sort_out(set: &'a DaemonSet, spec: &'a DaemonSetSpec, view: &'a View, owned: Vec<Arc<Pod>>, hash: String, now: Timestamp) -> Self {
        let rule = placement::Rule::of(spec);
        let nodes = view.list::<Node>(None).map(|node| (node.clone(), rule.placement(&node))).collect();
        let mut pods: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in owned {
            if let Some(node) = placement::target(&pod) {
                pods.entry(node).or_default().push(pod);
            }
        }
        // Bound ones first, then by age.
        for pods in pods.values_mut() {
            pods.sort_by_key(|pod| {
                let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
                (state::node(pod).is_empty(), created, pod.metadata.name.clone())
            });
        }
        Self { set, spec, view, now, nodes, pods, hash }
    }

    fn on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Of the present template, by hash or by the older count of the template's changes.
    fn is_updated(&self, pod: &Pod) -> bool {
        let label = |name: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name));
        let generation = pods::template_generation(self.set);
        revision_of(&pod.metadata) == self.hash || (generation.is_some() && label(pods::GENERATION_LABEL) == generation)
    }

    fn is_available(&self, pod: &Pod, plan: &mut Plan) -> bool {
        match state::availability(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now) {
            Ok(()) => true,
            Err(at) => {
                if let Some(at) = at {
                    plan.requeue_no_later_than(at);
                }
                false
            }
        }
    }
}

fn note(set: &DaemonSet, kind_of_event: EventType, reason: &str, message: String) -> EventNote {
    EventNote::about::<DaemonSet>(&set.metadata, kind_of_event, reason, message)
}

#[cfg(test)]
mod tests;
