//! `deployment-controller`: moves a Deployment's pods from one template to the next through ReplicaSets.
//!
//! ```text
//! template -> hash -> the new ReplicaSet; every other set of ours is old
//! Recreate:       old sets to 0 -> wait for their pods to go -> new set to `replicas`
//! RollingUpdate:  new set up within maxSurge, old sets down within maxUnavailable, step by step
//! ```
//!
//! Each call makes the next step that the observed state allows and says in the status how far it is. The template's hash is our own (FNV-1a of its
//! canonical JSON): upstream's depends on how Go prints a struct, and nothing may rely on it.

mod progress;
mod rolling;
mod sets;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::owned::{Claim, claim, selector};
use crate::plan::{EventNote, EventType, MAX_OPERATIONS, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::view::{Key, ObjectChange, ResourceName, View};

const DEPLOYMENTS: ResourceName = ResourceName::new("apps", "deployments");
const REPLICA_SETS: ResourceName = ResourceName::new("apps", "replicasets");
const PODS: ResourceName = ResourceName::new("", "pods");

pub struct DeploymentController;

/// A Deployment and its ReplicaSets, sorted out.
struct Rollout<'a> {
    deployment: &'a Deployment,
    /// The set whose template is the Deployment's, if it exists.
    new: Option<Arc<ReplicaSet>>,
    /// All others of ours, oldest first.
    old: Vec<Arc<ReplicaSet>>,
    replicas: i32,
}

impl Reconciler for DeploymentController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let pods = Trigger {
            resource: PODS,
            keys: |view, change: &ObjectChange| {
                // Recreate waits for the old pods to be gone; the set that owned the pod leads to its Deployment.
                let gone = change.old.as_ref().filter(|_| change.new.as_ref().is_none_or(|new| new.deleting()));
                let Some(owner) = gone.and_then(|pod| crate::owned::controller_of(&pod.meta).cloned()) else { return Vec::new() };
                let Some(set) = view.by_uid(&owner.uid) else { return Vec::new() };
                let deployment = crate::owned::controller_of(&set.meta).filter(|owner| owner.kind == "Deployment");
                deployment.map(|owner| Key::new(set.key.namespace.clone(), owner.name.as_str())).into_iter().collect()
            },
        };
        vec![Trigger::itself(DEPLOYMENTS), Trigger::controller_of::<Deployment>(REPLICA_SETS), pods]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(deployment) = view.get::<Deployment>(&key.namespace, &key.name) else { return plan };
        let Some(spec) = &deployment.spec else { return plan };
        let wanted = selector(Some(&spec.selector));
        if wanted.is_everything() {
            plan.events.push(note(
                &deployment,
                EventType::Warning,
                "SelectingAll",
                "This deployment is selecting all pods. A non-empty selector is required.".into(),
            ));
            return plan;
        }
        let Claim { owned, operations } = claim::<ReplicaSet>(view, &deployment.metadata, "apps/v1", "Deployment", &wanted);
        if !operations.is_empty() {
            plan.operations = operations;
            plan.operations.truncate(MAX_OPERATIONS);
            return plan;
        }
        let rollout = Rollout::sort_out(&deployment, owned);
        if deployment.metadata.deletion_timestamp.is_none() {
            self.step(&rollout, view, cx, &mut plan);
        }
        // A write of the Deployment itself makes the status that was read old: its turn comes with the event of that write.
        let rewritten = |o: &Operation| matches!(o, Operation::Update { resource, subresource: "", .. } if *resource == DEPLOYMENTS);
        if !plan.operations.iter().any(rewritten) {
            progress::update_status(&rollout, view, cx, &mut plan);
        }
        plan
    }
}

impl DeploymentController {
    fn step(&self, rollout: &Rollout<'_>, view: &View, cx: &Context<'_>, plan: &mut Plan) {
        let paused = rollout.deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false);
        // A change of `replicas` alone is spread over the sets that are there, also in the midst of a rollout.
        if paused || rolling::is_scaling(rollout) {
            rolling::scale_in_proportion(rollout, plan);
            return;
        }
        let Some(new) = &rollout.new else {
            sets::create_new(rollout, view, cx, plan);
            return;
        };
        sets::refresh_annotations(rollout, new, plan);
        if rollout.is_recreate() {
            recreate(rollout, new, view, plan);
        } else {
            rolling::step(rollout, new, plan);
        }
        if progress::is_complete(rollout) {
            sets::clean_up(rollout, plan);
        }
    }
}

/// Old sets down; then, once none of their pods runs any more, the new one up.
fn recreate(rollout: &Rollout<'_>, new: &Arc<ReplicaSet>, view: &View, plan: &mut Plan) {
    let mut waiting = false;
    for set in rollout.old.iter().filter(|set| sets::wanted(set) > 0) {
        rolling::scale(rollout, set, 0, plan);
        waiting = true;
    }
    let runs = |pod: &Arc<Pod>| !matches!(crate::core::pod::state::phase(pod), "Succeeded" | "Failed");
    let pods_left = rollout.old.iter().any(|set| view.owned_by::<Pod>(set.metadata.uid.as_deref().unwrap_or_default()).any(|pod| runs(&pod)));
    if !waiting && !pods_left && sets::wanted(new) != rollout.replicas {
        rolling::scale(rollout, new, rollout.replicas, plan);
    }
}

impl<'a> Rollout<'a> {
    fn sort_out(deployment: &'a Deployment, mut owned: Vec<Arc<ReplicaSet>>) -> Self {
        let created = |set: &ReplicaSet| (set.metadata.creation_timestamp.as_ref().map(|time| time.0), set.metadata.name.clone());
        owned.sort_by_key(|set| created(set));
        let new = owned.iter().position(|set| sets::same_template(deployment, set)).map(|at| owned.remove(at));
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        Self { deployment, new, old: owned, replicas }
    }

    fn is_recreate(&self) -> bool {
        let strategy = self.deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
        strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
    }

    fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    fn name(&self) -> &str {
        self.deployment.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.deployment.metadata.namespace.as_deref().unwrap_or_default()
    }
}

fn note(deployment: &Deployment, kind_of_event: EventType, reason: &str, message: String) -> EventNote {
    let meta = &deployment.metadata;
    EventNote {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        key: Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default()),
        uid: meta.uid.clone().unwrap_or_default(),
        kind_of_event,
        reason: reason.into(),
        message,
    }
}

/// A merge patch of a ReplicaSet that loses to any other change of it.
fn patch_set(set: &ReplicaSet, mut patch: serde_json::Value) -> Operation {
    let meta = &set.metadata;
    patch["metadata"]["uid"] = json!(meta.uid);
    patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
    let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    Operation::Patch { resource: REPLICA_SETS, key, subresource: "", strategy: crate::plan::PatchStrategy::Merge, patch }
}

#[cfg(test)]
mod tests;
