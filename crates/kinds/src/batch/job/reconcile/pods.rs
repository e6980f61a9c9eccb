//! Which pods a job creates and which it takes away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::backoff::Backoff;
use super::job_controller::{MAX_CHANGES, Sync, TRACKING, is_terminating};
use super::{PODS, policies};
use crate::apps::replicaset::reconcile::ranking::first_to_go;
use crate::owned::{generated_name, pod_from_template};
use crate::plan::{EventType, Operation, Plan};
use crate::validation::text;
use crate::view::View;

/// A pod's index, as annotation and as label.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// What becomes of a job's pods in one plan: creations or deletions, never both.
#[derive(Default)]
pub struct Changes {
    /// One for each new pod, with its index if it has one.
    pub create: Vec<Option<u32>>,
    pub delete: Vec<Arc<Pod>>,
    /// The deleted count neither as failed nor as succeeded: the job is suspended or scaled down.
    pub forget: bool,
}

pub fn index_of(pod: &Pod) -> Option<u32> {
    annotation(pod, INDEX)
}

/// How often the pod's index had failed before this pod, and how often that was ignored.
pub fn failures(pod: &Pod) -> (i32, i32) {
    (annotation(pod, FAILURES).unwrap_or(0), annotation(pod, IGNORED_FAILURES).unwrap_or(0))
}

/// Both together, for the back-off.
pub fn all_failures(pod: &Pod) -> u32 {
    let (counted, ignored) = failures(pod);
    u32::try_from(counted.saturating_add(ignored)).unwrap_or(0)
}

fn annotation<T: std::str::FromStr>(pod: &Pod, name: &str) -> Option<T> {
    pod.metadata.annotations.as_ref()?.get(name)?.parse().ok()
}

pub fn decide(sync: &Sync<'_>, backoff: &Backoff, plan: &mut Plan) -> Changes {
    let active = sync.active.len();
    let parallelism = usize::try_from(sync.spec.parallelism.unwrap_or(1)).unwrap_or(0);
    let wanted = if sync.is_suspended() {
        0
    } else {
        match sync.spec.completions {
            // Once one pod has succeeded no other is begun.
            None if sync.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => parallelism.min(usize::try_from(completions - sync.succeeded).unwrap_or(0)),
        }
    };
    let delete = surplus(sync, active.saturating_sub(wanted));
    if !delete.is_empty() || sync.is_suspended() {
        return Changes { delete, forget: true, ..Changes::default() };
    }
    let leaving = if sync.replaces_failed_only() { sync.pods.iter().filter(|pod| is_terminating(pod)).count() } else { 0 };
    let room = wanted.saturating_sub(active + leaving).min(MAX_CHANGES);
    if room == 0 {
        return Changes::default();
    }
    if sync.per_index().is_none()
        && let Some(at) = backoff.until().filter(|at| *at > sync.now)
    {
        plan.requeue_no_later_than(at);
        return Changes::default();
    }
    let create = if sync.indexed.is_some() { next_indexes(sync, room, plan) } else { vec![None; room] };
    Changes { create, ..Changes::default() }
}

/// Pods that are too many: those with an index that another has or that is out of range, then the least useful.
fn surplus(sync: &Sync<'_>, at_least: usize) -> Vec<Arc<Pod>> {
    let ordered = first_to_go(&sync.active, &[], sync.now);
    let Some(indexed) = &sync.indexed else { return ordered.into_iter().take(at_least).collect() };
    // The most useful pod of an index is the one that stays.
    let mut kept: BTreeMap<u32, &Arc<Pod>> = BTreeMap::new();
    for pod in &ordered {
        if let Some(index) = index_of(pod).filter(|index| *index < indexed.completions) {
            kept.insert(index, pod);
        }
    }
    let stays = |pod: &Arc<Pod>| kept.values().any(|kept| kept.metadata.uid == pod.metadata.uid);
    let (stay, mut gone): (Vec<_>, Vec<_>) = ordered.iter().cloned().partition(stays);
    let more = at_least.saturating_sub(gone.len());
    gone.extend(stay.into_iter().take(more));
    gone
}

/// The first indexes without pod or result; with `backoffLimitPerIndex`, those whose wait is over.
fn next_indexes(sync: &Sync<'_>, room: usize, plan: &mut Plan) -> Vec<Option<u32>> {
    let Some(indexed) = &sync.indexed else { return Vec::new() };
    let mut taken = indexed.succeeded.clone();
    let leaving = sync.pods.iter().filter(|pod| sync.replaces_failed_only() && is_terminating(pod));
    for index in sync.active.iter().chain(leaving).filter_map(|pod| index_of(pod)) {
        taken.insert(index, index);
    }
    // A failed index gets no further pod.
    let mut failed = BTreeSet::new();
    let mut found = taken.missing(room, indexed.completions);
    while let Some(all) = indexed.failed.as_ref() {
        let bad: Vec<u32> = found.iter().copied().filter(|index| all.contains(*index) && failed.insert(*index)).collect();
        if bad.is_empty() {
            break;
        }
        bad.into_iter().for_each(|index| taken.insert(index, index));
        found = taken.missing(room, indexed.completions);
    }
    let mut ready = Vec::new();
    for index in found {
        match sync.index_waits_until(index) {
            Some(at) => plan.requeue_no_later_than(at),
            None => ready.push(Some(index)),
        }
    }
    ready
}

/// The operations on pods, with their events.
pub fn carry_out(sync: &Sync<'_>, view: &View, changes: &Changes, plan: &mut Plan) {
    for pod in changes.delete.iter().take(MAX_CHANGES.saturating_sub(plan.operations.len())) {
        plan.operations.push(Operation::delete::<Pod>(&pod.metadata));
        plan.events.push(sync.note(EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {}", text(&pod.metadata.name))));
    }
    let revision = view.revision().to_string();
    for (at, index) in changes.create.iter().enumerate().take(MAX_CHANGES.saturating_sub(plan.operations.len())) {
        let object = pod(sync, *index, &[&revision, &at.to_string()]);
        let message = format!("Created pod: {}", object["metadata"]["name"].as_str().unwrap_or_default());
        plan.events.push(sync.note(EventType::Normal, "SuccessfulCreate", message));
        plan.operations.push(Operation::Create { resource: PODS, namespace: text(&sync.job.metadata.namespace).to_owned(), object });
    }
}

fn pod(sync: &Sync<'_>, index: Option<u32>, seed: &[&str; 2]) -> Value {
    let meta = &sync.job.metadata;
    let job = text(&meta.name);
    let base = index.map_or_else(|| format!("{job}-"), |index| format!("{job}-{index}-"));
    let name = generated_name(&base, &[text(&meta.uid), seed[0], seed[1]]);
    let mut object = pod_from_template::<Job>(&sync.spec.template, meta, &name);
    object["metadata"]["generateName"] = json!(base);
    let mut finalizers: Vec<Value> = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.contains(&json!(TRACKING)) {
        finalizers.push(json!(TRACKING));
    }
    object["metadata"]["finalizers"] = json!(finalizers);
    let Some(index) = index else { return object };
    object["metadata"]["annotations"][INDEX] = json!(index.to_string());
    object["metadata"]["labels"][INDEX] = json!(index.to_string());
    object["spec"]["hostname"] = json!(format!("{job}-{index}"));
    if sync.per_index().is_some() {
        let (counted, ignored) = failures_with(sync, index);
        object["metadata"]["annotations"][FAILURES] = json!(counted.to_string());
        if ignored > 0 {
            object["metadata"]["annotations"][IGNORED_FAILURES] = json!(ignored.to_string());
        }
    }
    for list in ["initContainers", "containers"] {
        for container in object["spec"][list].as_array_mut().into_iter().flatten() {
            let known = container["env"].as_array().is_some_and(|env| env.iter().any(|variable| variable["name"] == INDEX_VARIABLE));
            if !known {
                let source = json!({"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX}']")}});
                let variable = json!({"name": INDEX_VARIABLE, "valueFrom": source});
                match container["env"].as_array_mut() {
                    Some(env) => env.push(variable),
                    None => container["env"] = json!([variable]),
                }
            }
        }
    }
    if object["spec"]["initContainers"].is_null() {
        object["spec"].as_object_mut().map(|spec| spec.remove("initContainers"));
    }
    object
}

/// The failures of an index, that of the pod which is replaced with them.
fn failures_with(sync: &Sync<'_>, index: u32) -> (i32, i32) {
    let replaced = sync.indexed.as_ref().and_then(|indexed| indexed.delayed.get(&index));
    replaced.map_or((0, 0), |pod| {
        let (counted, ignored) = failures(pod);
        if policies::counts(sync.job, pod) { (counted + 1, ignored) } else { (counted, ignored + 1) }
    })
}
