//! `statefulset-controller`: pods with numbers, made and replaced in their order.
//!
//! ```text
//! template -> ControllerRevision (the update revision); status.currentRevision is the one before, until a rollout is complete
//! OrderedReady:  0, 1, 2 … up, each once the one before is available; down from the highest; then updates from the highest
//! Parallel:      all at once
//! ```
//!
//! Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/>. A call makes every step that the observed state allows.

mod claims;
mod identity;
mod rollout;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;

use crate::apps::controllerrevision::history::{History, Present, REVISIONS};
use crate::owned::{Claim, claim, controller_of, matches, selector};
use crate::plan::{EventNote, EventType, MAX_OPERATIONS, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::text;
use crate::view::{Key, ObjectChange, ResourceName, View};

const SETS: ResourceName = ResourceName::new("apps", "statefulsets");
const PODS: ResourceName = ResourceName::new("", "pods");
const CLAIMS: ResourceName = ResourceName::new("", "persistentvolumeclaims");
/// The label that a revision keeps its hash under.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

pub struct StatefulSetController;

/// One set and what is its own, sorted out.
struct Sync<'a> {
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    view: &'a View,
    pods: Vec<Arc<Pod>>,
    history: History<'a>,
    current: Arc<ControllerRevision>,
    update: Arc<ControllerRevision>,
}

impl Reconciler for StatefulSetController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let orphans = Trigger {
            resource: PODS,
            keys: |view, change: &ObjectChange| {
                let Some(pod) = change.new.as_ref().filter(|pod| controller_of(&pod.meta).is_none()) else { return Vec::new() };
                let Some((parent, _)) = identity::parse(&pod.key.name) else { return Vec::new() };
                let set = view.get::<StatefulSet>(&pod.key.namespace, parent);
                let selects = set.filter(|set| matches(&selector(set.spec.as_ref().map(|spec| &spec.selector)), pod.meta.labels.as_ref()));
                selects.map(|set| Key::new(pod.key.namespace.clone(), text(&set.metadata.name))).into_iter().collect()
            },
        };
        // A claim that goes makes room for one that a pod waits for. It is named after the pod, `<template>-<set>-<ordinal>`.
        let claims = Trigger {
            resource: CLAIMS,
            keys: |view, change: &ObjectChange| {
                let key = &change.reference.key;
                let Some((parent, _)) = identity::parse(&key.name).filter(|_| change.new.is_none()) else { return Vec::new() };
                let named = view.list::<StatefulSet>(Some(&key.namespace)).filter(|set| parent.ends_with(text(&set.metadata.name)));
                named.map(|set| Key::new(key.namespace.clone(), text(&set.metadata.name))).collect()
            },
        };
        let revisions = Trigger::controller_of::<StatefulSet>(REVISIONS);
        vec![Trigger::itself(SETS), Trigger::controller_of::<StatefulSet>(PODS), revisions, orphans, claims]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(set) = view.get::<StatefulSet>(&key.namespace, &key.name) else { return plan };
        let Some(spec) = &set.spec else { return plan };
        let wanted = selector(Some(&spec.selector));
        let Claim { owned: pods, operations } = claim::<Pod>(view, &set.metadata, "apps/v1", "StatefulSet", &wanted);
        let is_member = |operation: &Operation| match operation {
            Operation::Patch { key, .. } => identity::ordinal(&set, &key.name).is_some(),
            _ => true,
        };
        plan.operations.extend(operations.into_iter().filter(is_member));
        let Claim { owned: revisions, operations } = claim::<ControllerRevision>(view, &set.metadata, "apps/v1", "StatefulSet", &wanted);
        plan.operations.extend(operations);
        if !plan.operations.is_empty() {
            plan.operations.truncate(MAX_OPERATIONS);
            return plan;
        }
        let history = History::new(&set.metadata, revisions);
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
        let update = match history.present::<StatefulSet>(view, &spec.template, HASH_LABEL, collisions) {
            Present::Found(revision) => revision,
            Present::Written(operation) => {
                if set.metadata.deletion_timestamp.is_none() {
                    plan.operations.push(operation);
                }
                return plan;
            }
            Present::Collision => {
                let mut status = set.status.clone().unwrap_or_default();
                status.collision_count = Some(collisions + 1);
                plan.operations.push(Operation::status(&*set, &status));
                return plan;
            }
        };
        let current = set.status.as_ref().and_then(|status| history.named(status.current_revision.as_deref()?)).unwrap_or(&update).clone();
        let pods = pods.into_iter().filter(|pod| identity::ordinal(&set, text(&pod.metadata.name)).is_some()).collect();
        let sync = Sync { set: &set, spec, view, pods, history, current, update };
        if let Some(failure) = cx.failure.filter(|failure| matches!(failure.code, 400 | 403 | 422 | 500..)) {
            let reason = if failure.resource == PODS || failure.resource == CLAIMS { "FailedCreate" } else { "FailedUpdate" };
            let what = if failure.resource == CLAIMS { "Claim" } else { "Pod" };
            let message = format!("create {what} in StatefulSet {} failed error: {}", text(&set.metadata.name), failure.message);
            plan.events.push(note(&set, EventType::Warning, reason, message));
        }
        status::write(&sync, cx.now, &mut plan);
        if set.metadata.deletion_timestamp.is_none() {
            rollout::step(&sync, cx.now, &mut plan);
            sync.clean_up(&mut plan);
        }
        plan.operations.truncate(MAX_OPERATIONS);
        plan
    }
}

impl Sync<'_> {
    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn start(&self) -> i32 {
        self.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
    }

    fn is_in_range(&self, ordinal: i32) -> bool {
        ordinal >= self.start() && ordinal < self.start().saturating_add(self.replicas())
    }

    fn is_parallel(&self) -> bool {
        self.spec.pod_management_policy.as_deref() == Some("Parallel")
    }

    fn min_ready(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn clean_up(&self, plan: &mut Plan) {
        let used = |revision: &ControllerRevision| {
            let name = text(&revision.metadata.name);
            name == text(&self.current.metadata.name)
                || name == text(&self.update.metadata.name)
                || self.pods.iter().any(|pod| crate::apps::controllerrevision::history::revision_of(&pod.metadata) == name)
        };
        plan.operations.extend(self.history.clean_up(self.spec.revision_history_limit.unwrap_or(10), used));
    }

    fn delete(&self, pod: &Pod, plan: &mut Plan) {
        plan.operations.push(Operation::delete::<Pod>(&pod.metadata));
        let message = format!("delete Pod {} in StatefulSet {} successful", text(&pod.metadata.name), text(&self.set.metadata.name));
        plan.events.push(note(self.set, EventType::Normal, "SuccessfulDelete", message));
    }

    /// Creates a pod and the claims that it lacks. Nothing while one of its claims is on its way out.
    fn create(&self, ordinal: i32, plan: &mut Plan) {
        let name = identity::pod_name(self.set, ordinal);
        if !self.create_claims(ordinal, plan) {
            return;
        }
        let object = identity::pod(self, ordinal);
        plan.operations.push(Operation::Create { resource: PODS, namespace: text(&self.set.metadata.namespace).to_owned(), object });
        let message = format!("create Pod {name} in StatefulSet {} successful", text(&self.set.metadata.name));
        plan.events.push(note(self.set, EventType::Normal, "SuccessfulCreate", message));
    }

    /// Whether the pod can be had: every claim is there or comes with this plan.
    fn create_claims(&self, ordinal: i32, plan: &mut Plan) -> bool {
        let pod = identity::pod_name(self.set, ordinal);
        for claim in claims::wanted(self, ordinal) {
            let name = claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match self.view.get::<PersistentVolumeClaim>(text(&self.set.metadata.namespace), &name) {
                Some(claim) if claims::is_stale(self, &claim) => return false,
                Some(_) => {}
                None => {
                    plan.operations.push(Operation::Create {
                        resource: CLAIMS,
                        namespace: text(&self.set.metadata.namespace).to_owned(),
                        object: claim,
                    });
                    let message = format!("create Claim {name} Pod {pod} in StatefulSet {} success", text(&self.set.metadata.name));
                    plan.events.push(note(self.set, EventType::Normal, "SuccessfulCreate", message));
                }
            }
        }
        true
    }

    /// What tells the pod's name and number, where an adopted pod lacks it.
    fn fix_identity(&self, pod: &Pod, ordinal: i32, plan: &mut Plan) {
        let wanted = [(identity::POD_NAME, text(&pod.metadata.name).to_owned()), (identity::POD_INDEX, ordinal.to_string())];
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let missing: serde_json::Map<_, _> = wanted
            .into_iter()
            .filter(|(label, value)| labels.get(*label) != Some(value))
            .map(|(label, value)| (label.to_owned(), json!(value)))
            .collect();
        if !missing.is_empty() {
            plan.operations.push(Operation::patch::<Pod>(&pod.metadata, json!({"metadata": {"labels": missing}})));
        }
    }
}

fn note(set: &StatefulSet, kind_of_event: EventType, reason: &str, message: String) -> EventNote {
    EventNote::about::<StatefulSet>(&set.metadata, kind_of_event, reason, message)
}

#[cfg(test)]
mod tests;
