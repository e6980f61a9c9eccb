//! A set's pods: which are missing, which go, and what a new one looks like.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::failures::Failures;
use super::placement::{self, Placement};
use super::{Changes, MAX_CHANGES, PODS, Sync, note, update};
use crate::apps::controllerrevision::history::REVISION_LABEL;
use crate::apps::daemonset::TEMPLATE_GENERATION;
use crate::core::pod::state;
use crate::owned::{generated_name, pod_from_template};
use crate::plan::{EventType, Operation, Plan};
use crate::validation::text;

/// How many changes of the template a pod's template had seen.
pub const GENERATION_LABEL: &str = "pod-template-generation";

pub fn template_generation(set: &DaemonSet) -> Option<&String> {
    set.metadata.annotations.as_ref()?.get(TEMPLATE_GENERATION)
}

pub fn manage(sync: &Sync<'_>, failures: &mut Failures, plan: &mut Plan) -> Changes {
    let mut changes = Changes::default();
    for (node, placement) in &sync.nodes {
        let name = text(&node.metadata.name);
        let pods = sync.on(name);
        match placement {
            Placement::Run if pods.is_empty() => changes.create.push(name.to_owned()),
            Placement::Go => changes.delete.extend(pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).cloned()),
            Placement::Run | Placement::Stay => keep_one(sync, name, pods, failures, &mut changes, plan),
        }
    }
    // A pod that no node has yet, for a node that is gone.
    for (node, pods) in &sync.pods {
        if !sync.nodes.iter().any(|(known, _)| text(&known.metadata.name) == node) {
            let waiting = pods.iter().filter(|pod| state::node(pod).is_empty() && pod.metadata.deletion_timestamp.is_none());
            changes.delete.extend(waiting.cloned());
        }
    }
    changes
}

/// Ended pods go; of those that run, the oldest stays, or while surging the oldest of each template.
fn keep_one(sync: &Sync<'_>, node: &str, pods: &[Arc<Pod>], failures: &mut Failures, changes: &mut Changes, plan: &mut Plan) {
    let mut running: Vec<&Arc<Pod>> = Vec::new();
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let who = format!("daemon pod {}/{} on node {node}", text(&pod.metadata.namespace), text(&pod.metadata.name));
        match state::phase(pod) {
            "Failed" => match failures.may_remove(node, sync.now) {
                Ok(()) => {
                    plan.events.push(note(sync.set, EventType::Warning, "FailedDaemonPod", format!("Found failed {who}, will try to kill it")));
                    changes.delete.push(pod.clone());
                }
                Err(at) => plan.requeue_no_later_than(at),
            },
            "Succeeded" => {
                plan.events.push(note(sync.set, EventType::Normal, "SucceededDaemonPod", format!("Found succeeded {who}, will try to delete it")));
                changes.delete.push(pod.clone());
            }
            _ => running.push(pod),
        }
    }
    if update::max_surge(sync) == 0 {
        changes.delete.extend(running.into_iter().skip(1).cloned());
        return;
    }
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| sync.is_updated(pod));
    changes.delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).map(|pod| (*pod).clone()));
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!state::is_ready(old) || sync.is_available(new, plan))
    {
        changes.delete.push((*old).clone());
    }
}

pub fn carry_out(sync: &Sync<'_>, changes: Changes, plan: &mut Plan) {
    for pod in changes.delete.iter().take(MAX_CHANGES) {
        plan.operations.push(Operation::delete::<Pod>(&pod.metadata));
        plan.events.push(note(sync.set, EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {}", text(&pod.metadata.name))));
    }
    for node in changes.create.iter().take(MAX_CHANGES.saturating_sub(changes.delete.len())) {
        let object = pod(sync, node);
        let message = format!("Created pod: {}", object["metadata"]["name"].as_str().unwrap_or_default());
        plan.events.push(note(sync.set, EventType::Normal, "SuccessfulCreate", message));
        plan.operations.push(Operation::Create { resource: PODS, namespace: text(&sync.set.metadata.namespace).to_owned(), object });
    }
}

fn pod(sync: &Sync<'_>, node: &str) -> Value {
    let meta = &sync.set.metadata;
    let base = format!("{}-", text(&meta.name));
    let name = generated_name(&base, &[text(&meta.uid), node, &sync.view.revision().to_string()]);
    let mut object = pod_from_template::<DaemonSet>(&sync.spec.template, meta, &name);
    object["metadata"]["generateName"] = json!(base);
    object["metadata"]["labels"][REVISION_LABEL] = json!(sync.hash);
    if let Some(generation) = template_generation(sync.set) {
        object["metadata"]["labels"][GENERATION_LABEL] = json!(generation);
    }
    object["spec"]["tolerations"] = json!(placement::tolerations(sync.spec));
    // Whatever the template asks of nodes is met by this one already.
    let terms = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    if !object["spec"]["affinity"].is_object() {
        object["spec"]["affinity"] = json!({});
    }
    if !object["spec"]["affinity"]["nodeAffinity"].is_object() {
        object["spec"]["affinity"]["nodeAffinity"] = json!({});
    }
    object["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = terms;
    object
}
