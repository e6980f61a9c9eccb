//! The job's counts, kept exact through the finalizer on its pods, and its conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use wheelhouse_base::Timestamp;

use super::job_controller::{MAX_CHANGES, Sync, TRACKING, is_terminating, is_tracked};
use super::{condition, pods, policies};
use crate::core::pod::state;
use crate::owned::without_finalizer;
use crate::plan::{EventType, Operation, Plan};
use crate::time::api_time;
use crate::validation::{items, text};
use crate::view::View;

/// Uids in `status.uncountedTerminatedPods`: upstream's bound, so that a status stays small.
const MAX_UNCOUNTED: usize = 500;

/// The status, then finalizers off pods that it counts, then deletions and creations.
pub fn write(mut sync: Sync<'_>, view: &View, changes: pods::Changes, plan: &mut Plan) {
    settle(&mut sync);
    let counted = count(&mut sync);
    numbers(&mut sync, &changes);
    if let Some(finish) = sync.finish.clone() {
        let interim = if finish.success { "SuccessCriteriaMet" } else { "FailureTarget" };
        if condition(sync.job, interim).is_none() {
            set_condition(&mut sync.status, interim, "True", &finish.reason, &finish.message, sync.now);
        }
        let uncounted = sync.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let waits = !items(&uncounted.succeeded).is_empty() || !items(&uncounted.failed).is_empty() || sync.status.terminating.unwrap_or(0) > 0;
        if !waits && counted.is_empty() && sync.active.is_empty() {
            end(&mut sync, plan);
        }
    }
    if sync.job.status.as_ref() != Some(&sync.status) {
        plan.operations.push(Operation::status(sync.job, &sync.status));
    }
    let mut released: BTreeMap<String, Operation> = BTreeMap::new();
    for pod in counted.iter().chain(changes.delete.iter().filter(|_| changes.forget)) {
        if let Some(operation) = without_finalizer::<Pod>(&pod.metadata, TRACKING) {
            released.insert(text(&pod.metadata.uid).to_owned(), operation);
        }
    }
    plan.operations.extend(released.into_values().take(MAX_CHANGES));
    pods::carry_out(&sync, view, &changes, plan);
}

/// Uids whose pods have lost their finalizer go into the numbers.
fn settle(sync: &mut Sync<'_>) {
    let tracked: BTreeSet<&str> = sync.pods.iter().filter(|pod| is_tracked(pod)).map(|pod| text(&pod.metadata.uid)).collect();
    let Some(uncounted) = &mut sync.status.uncounted_terminated_pods else { return };
    for (uids, total) in [(&mut uncounted.succeeded, &mut sync.status.succeeded), (&mut uncounted.failed, &mut sync.status.failed)] {
        let all = uids.take().unwrap_or_default();
        let before = all.len();
        let left: Vec<String> = all.into_iter().filter(|uid| tracked.contains(uid.as_str())).collect();
        let settled = i32::try_from(before - left.len()).unwrap_or(i32::MAX);
        if settled > 0 {
            *total = Some(total.unwrap_or(0) + settled);
        }
        *uids = (!left.is_empty()).then_some(left);
    }
}

/// Puts pods that have ended among the uncounted, and answers which may lose their finalizer now.
fn count(sync: &mut Sync<'_>) -> Vec<Arc<Pod>> {
    let mut uncounted = sync.status.uncounted_terminated_pods.clone().unwrap_or_default();
    let mut released = Vec::new();
    let failing = sync.finish.as_ref().is_some_and(|finish| !finish.success);
    let limit = sync.completions_if_indexed();
    let mut all: Vec<&Arc<Pod>> = sync.pods.iter().filter(|pod| is_tracked(pod)).collect();
    all.sort_by_key(|pod| (pods::index_of(pod), pod.metadata.name.clone()));
    for pod in all {
        if items(&uncounted.succeeded).len() + items(&uncounted.failed).len() >= MAX_UNCOUNTED {
            break;
        }
        let (failed, succeeded) = (sync.is_failed(pod), state::phase(pod) == "Succeeded");
        // A job that ends lets go of all its pods; if it failed, those still running count as failed.
        if !failed && !succeeded && sync.finish.is_none() && sync.job.metadata.deletion_timestamp.is_none() {
            continue;
        }
        let delayed = sync.indexed.as_ref().is_some_and(|indexed| indexed.delayed.values().any(|kept| kept.metadata.uid == pod.metadata.uid));
        if delayed && sync.finish.is_none() && sync.job.metadata.deletion_timestamp.is_none() {
            continue;
        }
        released.push(pod.clone());
        let uid = text(&pod.metadata.uid).to_owned();
        let valid = limit.is_none_or(|limit| pods::index_of(pod).is_some_and(|index| index < limit));
        if items(&uncounted.failed).contains(&uid) || items(&uncounted.succeeded).contains(&uid) {
            continue;
        }
        if succeeded {
            // An index counts once, and the list of indexes is what remembers it.
            if limit.is_none() {
                uncounted.succeeded.get_or_insert_default().push(uid);
            }
        } else if (failed || failing) && valid && policies::counts(sync.job, pod) {
            uncounted.failed.get_or_insert_default().push(uid);
        }
    }
    sync.status.uncounted_terminated_pods = Some(uncounted);
    released
}

fn numbers(sync: &mut Sync<'_>, changes: &pods::Changes) {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let some = |n: i32| (n != 0).then_some(n);
    let goes = |pod: &Arc<Pod>| changes.delete.iter().any(|gone| gone.metadata.uid == pod.metadata.uid);
    let ready = sync.active.iter().filter(|pod| state::is_ready(pod) && !goes(pod)).count();
    let terminating = sync.pods.iter().filter(|pod| is_terminating(pod)).count();
    sync.status.active = some(count((sync.active.len() + changes.create.len()).saturating_sub(changes.delete.len())));
    sync.status.ready = Some(count(ready));
    sync.status.terminating = Some(count(terminating + changes.delete.len()));
    if let Some(indexed) = &sync.indexed {
        let text = |indexes: &super::indexes::Indexes| Some(indexes.to_string());
        sync.status.succeeded = some(indexed.succeeded.total());
        sync.status.completed_indexes = text(&indexed.succeeded).filter(|text| !text.is_empty());
        sync.status.failed_indexes = indexed.failed.as_ref().and_then(text);
    }
    sync.status.succeeded = sync.status.succeeded.filter(|n| *n != 0);
    sync.status.failed = sync.status.failed.filter(|n| *n != 0);
}

/// The last condition, and what is told of it.
fn end(sync: &mut Sync<'_>, plan: &mut Plan) {
    let Some(finish) = sync.finish.clone() else { return };
    let kind = if finish.success { "Complete" } else { "Failed" };
    set_condition(&mut sync.status, kind, "True", &finish.reason, &finish.message, sync.now);
    if !finish.success {
        plan.events.push(sync.note(EventType::Warning, &finish.reason, finish.message.as_str()));
        return;
    }
    sync.status.completion_time = Some(api_time(sync.now));
    if sync.spec.completions.is_some_and(|completions| sync.status.succeeded.unwrap_or(0) > completions) {
        plan.events.push(sync.note(EventType::Warning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"));
    }
    plan.events.push(sync.note(EventType::Normal, "Completed", "Job completed"));
}

/// Sets a condition and says whether its status changed.
pub fn set_condition(status: &mut JobStatus, kind: &str, value: &str, reason: &str, message: &str, now: Timestamp) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    let fresh = JobCondition {
        last_probe_time: Some(api_time(now)),
        last_transition_time: Some(api_time(now)),
        message: Some(message.to_owned()),
        reason: Some(reason.to_owned()),
        status: value.to_owned(),
        type_: kind.to_owned(),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == kind) {
        Some(old) if old.status == value => false,
        Some(old) => {
            *old = fresh;
            true
        }
        None => {
            conditions.push(fresh);
            true
        }
    }
}
