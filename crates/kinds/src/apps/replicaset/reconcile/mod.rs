//! `replicaset-controller`: keeps as many pods as asked for.
//!
//! Upstream creates in bursts that double, so that a namespace which refuses pods costs one request and not five hundred; here a plan that
//! follows a refusal creates a single pod, and the back-off of the queue spaces the tries.

pub mod ranking;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use wheelhouse_base::Timestamp;

use crate::core::pod::state;
use crate::owned::{Claim, claim, generated_name, matches, pod_from_template, selector};
use crate::plan::{DeleteOptions, EventNote, EventType, MAX_OPERATIONS, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::api_time;
use crate::view::{Key, ObjectChange, ResourceName, View};

const REPLICA_SETS: ResourceName = ResourceName::new("apps", "replicasets");
const PODS: ResourceName = ResourceName::new("", "pods");
/// Two places of a plan are kept for status and for adoptions to make progress.
const MAX_CHANGES: usize = MAX_OPERATIONS - 2;

pub struct ReplicaSetController;

impl Reconciler for ReplicaSetController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "replicaset-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let orphans = Trigger {
            resource: PODS,
            keys: |view, change: &ObjectChange| {
                let Some(pod) = change.new.as_ref().filter(|pod| crate::owned::controller_of(&pod.meta).is_none()) else { return Vec::new() };
                let sets = view.list::<ReplicaSet>(Some(&pod.key.namespace));
                let selecting = sets.filter(|set| {
                    let wanted = selector(set.spec.as_ref().map(|spec| &spec.selector));
                    matches(&wanted, pod.meta.labels.as_ref())
                });
                selecting.map(|set| Key::new(pod.key.namespace.clone(), set.metadata.name.as_deref().unwrap_or_default())).collect()
            },
        };
        vec![Trigger::itself(REPLICA_SETS), Trigger::controller_of::<ReplicaSet>(PODS), orphans]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let Some(set) = view.get::<ReplicaSet>(&key.namespace, &key.name) else { return Plan::default() };
        sync::<ReplicaSet>(&set, view, cx, |status| {
            Some(status).filter(|new| set.status.as_ref() != Some(*new)).map(|new| Operation::status(&*set, new))
        })
    }
}

/// One look at a set of kind `K`, which a ReplicationController too is when it is read as one. `write` makes the operation that writes a status, if it
/// differs from what is stored.
pub fn sync<K: k8s_openapi::Resource>(
    set: &ReplicaSet,
    view: &View,
    cx: &Context<'_>,
    write: impl FnOnce(&ReplicaSetStatus) -> Option<Operation>,
) -> Plan {
    let mut plan = Plan::default();
    let Some(spec) = &set.spec else { return plan };
    let Claim { owned, operations } = claim::<Pod>(view, &set.metadata, K::API_VERSION, K::KIND, &selector(Some(&spec.selector)));
    plan.operations = operations;
    plan.operations.truncate(MAX_CHANGES);
    let active: Vec<Arc<Pod>> = owned.iter().filter(|pod| state::is_active(pod)).cloned().collect();
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let refused = cx.failure.filter(|failure| failure.resource == PODS);
    if set.metadata.deletion_timestamp.is_none() && plan.operations.is_empty() {
        if active.len() < wanted {
            let most = if refused.is_some() { 1 } else { MAX_CHANGES };
            create::<K>(&mut plan, set, view, (wanted - active.len()).min(most));
        } else if active.len() > wanted {
            delete::<K>(&mut plan, set, view, &active, active.len() - wanted, cx.now);
        }
    }
    if let Some(failure) = refused {
        let message = format!("Error creating: {}", failure.message);
        plan.events.push(note::<K>(set, EventType::Warning, "FailedCreate", message));
    }
    let (status, ready_at) = status(set, &owned, refused.map(|failure| failure.message.as_str()), cx.now);
    // What is known goes first: a refused creation must not keep it from being told.
    if let Some(operation) = write(&status) {
        plan.operations.insert(0, operation);
    }
    if let Some(at) = ready_at {
        plan.requeue_no_later_than(at);
    }
    plan
}

fn create<K: k8s_openapi::Resource>(plan: &mut Plan, set: &ReplicaSet, view: &View, count: usize) {
    let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else { return };
    let meta = &set.metadata;
    let namespace = meta.namespace.clone().unwrap_or_default();
    let base = format!("{}-", meta.name.as_deref().unwrap_or_default());
    let (uid, revision) = (meta.uid.as_deref().unwrap_or_default(), view.revision().to_string());
    for index in 0..count {
        let name = generated_name(&base, &[uid, &revision, &index.to_string()]);
        let mut object = pod_from_template::<K>(template, meta, &name);
        object["metadata"]["generateName"] = json!(base);
        plan.operations.push(Operation::Create { resource: PODS, namespace: namespace.clone(), object });
        plan.events.push(note::<K>(set, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}")));
    }
}

fn delete<K: k8s_openapi::Resource>(plan: &mut Plan, set: &ReplicaSet, view: &View, active: &[Arc<Pod>], count: usize, now: Timestamp) {
    let related = related_pods(set, view);
    for pod in ranking::first_to_go(active, &related, now).into_iter().take(count.min(MAX_CHANGES)) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let options = DeleteOptions { uid: pod.metadata.uid.clone(), ..DeleteOptions::default() };
        let key = Key::new(set.metadata.namespace.as_deref().unwrap_or_default(), name.as_str());
        plan.operations.push(Operation::Delete { resource: PODS, key, options });
        plan.events.push(note::<K>(set, EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {name}")));
    }
}

/// Active pods of every set with the same controller: a Deployment's older sets count where pods crowd a node.
fn related_pods(set: &ReplicaSet, view: &View) -> Vec<Arc<Pod>> {
    let siblings: Vec<Arc<ReplicaSet>> = match crate::owned::controller_of(&set.metadata) {
        Some(owner) => view.owned_by::<ReplicaSet>(&owner.uid).collect(),
        None => Vec::new(),
    };
    let own = [set.metadata.uid.clone().unwrap_or_default()];
    let uids: Vec<String> = if siblings.is_empty() { own.to_vec() } else { siblings.iter().filter_map(|s| s.metadata.uid.clone()).collect() };
    let pods = uids.iter().flat_map(|uid| view.owned_by::<Pod>(uid).collect::<Vec<_>>());
    pods.filter(|pod| state::is_active(pod)).collect()
}

/// The status, and when the next pod becomes available by waiting alone.
fn status(set: &ReplicaSet, owned: &[Arc<Pod>], refused: Option<&str>, now: Timestamp) -> (ReplicaSetStatus, Option<Timestamp>) {
    let spec = set.spec.as_ref();
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let template_labels = spec.and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let (mut labelled, mut ready, mut available, mut terminating, mut replicas) = (0, 0, 0, 0, 0);
    let mut next = None::<Timestamp>;
    for pod in owned {
        if pod.metadata.deletion_timestamp.is_some() && !matches!(state::phase(pod), "Succeeded" | "Failed") {
            terminating += 1;
        }
        if !state::is_active(pod) {
            continue;
        }
        replicas += 1;
        let labels = pod.metadata.labels.as_ref();
        if template_labels.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value)) {
            labelled += 1;
        }
        if state::is_ready(pod) {
            ready += 1;
        }
        match state::availability(pod, min_ready, now) {
            Ok(()) => available += 1,
            Err(Some(at)) => next = Some(next.map_or(at, |earlier| earlier.min(at))),
            Err(None) => {}
        }
    }
    let some = |n: i32| (n != 0).then_some(n);
    let old = set.status.clone().unwrap_or_default();
    let status = ReplicaSetStatus {
        available_replicas: some(available),
        conditions: failure_condition(old.conditions, refused, now),
        fully_labeled_replicas: some(labelled),
        observed_generation: set.metadata.generation,
        ready_replicas: some(ready),
        replicas,
        terminating_replicas: Some(terminating),
    };
    (status, next)
}

fn failure_condition(conditions: Option<Vec<ReplicaSetCondition>>, refused: Option<&str>, now: Timestamp) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = conditions.unwrap_or_default();
    let old = conditions.iter().position(|condition| condition.type_ == "ReplicaFailure").map(|at| conditions.remove(at));
    if let Some(message) = refused {
        let fresh = ReplicaSetCondition {
            last_transition_time: old.filter(|old| old.status == "True").map_or_else(|| Some(api_time(now)), |old| old.last_transition_time),
            message: Some(message.to_owned()),
            reason: Some("FailedCreate".to_owned()),
            status: "True".to_owned(),
            type_: "ReplicaFailure".to_owned(),
        };
        conditions.push(fresh);
    }
    (!conditions.is_empty()).then_some(conditions)
}

fn note<K: k8s_openapi::Resource>(set: &ReplicaSet, kind_of_event: EventType, reason: &str, message: String) -> EventNote {
    EventNote::about::<K>(&set.metadata, kind_of_event, reason, message)
}

#[cfg(test)]
mod tests;
