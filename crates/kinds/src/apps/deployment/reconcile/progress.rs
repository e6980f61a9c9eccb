//! The status: counts, and the conditions `Available`, `Progressing` and `ReplicaFailure` with upstream's reasons.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus, ReplicaSetStatus};
use wheelhouse_base::Timestamp;

use super::sets::wanted;
use super::{DEPLOYMENTS, Rollout, rolling};
use crate::plan::{Operation, Plan};
use crate::reconciler::Context;
use crate::time::{api_time, timestamp};
use crate::view::View;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
/// `progressDeadlineSeconds` of this value means "never".
const NO_DEADLINE: i32 = i32::MAX;

/// Counts over all sets, and of the new one.
#[derive(Default)]
struct Counts {
    total: i32,
    updated: i32,
    ready: i32,
    available: i32,
    terminating: i32,
}

fn counts(rollout: &Rollout<'_>) -> Counts {
    let mut counts = Counts::default();
    for set in rollout.all() {
        let status: ReplicaSetStatus = set.status.clone().unwrap_or_default();
        counts.total += status.replicas;
        counts.ready += status.ready_replicas.unwrap_or(0);
        counts.available += status.available_replicas.unwrap_or(0);
        counts.terminating += status.terminating_replicas.unwrap_or(0);
    }
    counts.updated = rollout.new.as_ref().and_then(|new| new.status.as_ref()).map_or(0, |status| status.replicas);
    counts
}

/// Every wanted pod is of the new template and available, and no other is left.
pub fn is_complete(rollout: &Rollout<'_>) -> bool {
    let counts = counts(rollout);
    counts.updated == rollout.replicas && counts.total == rollout.replicas && counts.available == rollout.replicas && observed(rollout)
}

fn observed(rollout: &Rollout<'_>) -> bool {
    rollout.all().all(|set| {
        let seen = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        seen >= set.metadata.generation.unwrap_or(0)
    })
}

/// Writes the status if it changes, and asks to be called again when the progress deadline may pass.
pub fn update_status(rollout: &Rollout<'_>, _: &View, cx: &Context<'_>, plan: &mut Plan) {
    let deployment = rollout.deployment;
    let old = deployment.status.clone().unwrap_or_default();
    let counts = counts(rollout);
    let mut conditions = old.conditions.clone().unwrap_or_default();
    available_condition(rollout, &counts, &mut conditions, cx.now);
    progressing_condition(rollout, &old, &counts, &mut conditions, cx.now, plan);
    failure_condition(rollout, &mut conditions, cx.now);
    let some = |n: i32| (n != 0).then_some(n);
    let status = DeploymentStatus {
        available_replicas: some(counts.available),
        collision_count: old.collision_count,
        conditions: (!conditions.is_empty()).then_some(conditions),
        observed_generation: deployment.metadata.generation,
        ready_replicas: some(counts.ready),
        replicas: some(counts.total),
        terminating_replicas: Some(counts.terminating),
        unavailable_replicas: some((rollout.all().map(|set| wanted(set)).sum::<i32>() - counts.available).max(0)),
        updated_replicas: some(counts.updated),
    };
    if status != old {
        let mut object = serde_json::to_value(deployment).expect("a Deployment is plain data");
        object["status"] = serde_json::to_value(&status).expect("a status is plain data");
        plan.operations.push(Operation::Update { resource: DEPLOYMENTS, subresource: "status", object });
    }
}

fn available_condition(rollout: &Rollout<'_>, counts: &Counts, conditions: &mut Vec<DeploymentCondition>, now: Timestamp) {
    if counts.available >= rollout.replicas - rolling::max_unavailable(rollout) {
        set(conditions, AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now);
    } else {
        set(conditions, AVAILABLE, "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", now);
    }
}

fn progressing_condition(
    rollout: &Rollout<'_>,
    old: &DeploymentStatus,
    counts: &Counts,
    conditions: &mut Vec<DeploymentCondition>,
    now: Timestamp,
    plan: &mut Plan,
) {
    let spec = rollout.deployment.spec.as_ref();
    let deadline = spec.and_then(|spec| spec.progress_deadline_seconds).unwrap_or(NO_DEADLINE);
    if deadline == NO_DEADLINE {
        return;
    }
    let name = rollout.new.as_ref().and_then(|new| new.metadata.name.clone());
    let subject = name.map_or_else(|| format!("Deployment {:?}", rollout.name()), |name| format!("ReplicaSet {name:?}"));
    let present = conditions.iter().find(|condition| condition.type_ == PROGRESSING).cloned();
    if spec.and_then(|spec| spec.paused).unwrap_or(false) {
        if present.is_none_or(|present| present.reason.as_deref() != Some(PAUSED)) {
            set(conditions, PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now);
        }
        return;
    }
    if present.as_ref().is_some_and(|present| present.reason.as_deref() == Some(PAUSED)) {
        set(conditions, PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed", now);
        plan.requeue_no_later_than(now.plus(Duration::from_secs(u64::try_from(deadline).unwrap_or(0))));
        return;
    }
    let Some(new) = &rollout.new else {
        // The set is being created by this very plan.
        let hash_known = present.is_some();
        if !hash_known {
            let message = format!("Created new replica set for deployment {:?}", rollout.name());
            set(conditions, PROGRESSING, "True", "NewReplicaSetCreated", &message, now);
        }
        return;
    };
    let was_complete = present.as_ref().is_some_and(|present| present.reason.as_deref() == Some(NEW_AVAILABLE));
    let same_target = was_complete && counts.updated == old.updated_replicas.unwrap_or(0) && counts.updated == counts.total;
    if is_complete(rollout) {
        set(conditions, PROGRESSING, "True", NEW_AVAILABLE, &format!("{subject} has successfully progressed."), now);
        return;
    }
    if same_target && old.observed_generation == rollout.deployment.metadata.generation {
        // Pods of a finished rollout come and go; that is not a rollout.
        return;
    }
    let progressed = counts.updated > old.updated_replicas.unwrap_or(0)
        || counts.total - counts.updated < old.replicas.unwrap_or(0) - old.updated_replicas.unwrap_or(0)
        || counts.ready > old.ready_replicas.unwrap_or(0)
        || counts.available > old.available_replicas.unwrap_or(0);
    let began = present.as_ref().is_none_or(|present| was_complete || present.reason.as_deref() == Some("FoundNewReplicaSet"));
    if progressed || began {
        if present.is_none() && !progressed {
            let message = format!("Found new replica set {:?}", new.metadata.name.as_deref().unwrap_or_default());
            set(conditions, PROGRESSING, "True", "FoundNewReplicaSet", &message, now);
        } else {
            touch(conditions, "ReplicaSetUpdated", &format!("{subject} is progressing."), now);
        }
        plan.requeue_no_later_than(now.plus(Duration::from_secs(u64::try_from(deadline).unwrap_or(0) + 1)));
        return;
    }
    let Some(present) = present.filter(|present| present.reason.as_deref() != Some(TIMED_OUT)) else { return };
    let since = present.last_update_time.as_ref().map_or(now, timestamp);
    let due = since.plus(Duration::from_secs(u64::try_from(deadline).unwrap_or(0)));
    if due < now {
        set(conditions, PROGRESSING, "False", TIMED_OUT, &format!("{subject} has timed out progressing."), now);
    } else {
        plan.requeue_no_later_than(due.plus(Duration::from_secs(1)));
    }
}

/// Progress is told by the update time alone when status and reason stay.
fn touch(conditions: &mut Vec<DeploymentCondition>, reason: &str, message: &str, now: Timestamp) {
    set(conditions, PROGRESSING, "True", reason, message, now);
    if let Some(condition) = conditions.iter_mut().find(|condition| condition.type_ == PROGRESSING) {
        condition.last_update_time = Some(api_time(now));
    }
}

/// Taken over from the set that cannot create its pods.
fn failure_condition(rollout: &Rollout<'_>, conditions: &mut Vec<DeploymentCondition>, now: Timestamp) {
    let sets = rollout.new.iter().chain(&rollout.old);
    let failing =
        sets.filter_map(|set| set.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == REPLICA_FAILURE && c.status == "True")).next();
    match failing {
        Some(failure) => {
            let (reason, message) = (failure.reason.as_deref().unwrap_or_default(), failure.message.as_deref().unwrap_or_default());
            set(conditions, REPLICA_FAILURE, "True", reason, message, now);
        }
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
    }
}

/// Sets a condition. Times move only with status and reason, as upstream compares them.
fn set(conditions: &mut Vec<DeploymentCondition>, kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
    let at = conditions.iter().position(|condition| condition.type_ == kind);
    let old = at.map(|at| conditions[at].clone());
    if old.as_ref().is_some_and(|old| old.status == status && old.reason.as_deref() == Some(reason)) {
        return;
    }
    let kept = old.filter(|old| old.status == status).and_then(|old| old.last_transition_time);
    let fresh = DeploymentCondition {
        last_transition_time: kept.or_else(|| Some(api_time(now))),
        last_update_time: Some(api_time(now)),
        message: Some(message.to_owned()),
        reason: Some(reason.to_owned()),
        status: status.to_owned(),
        type_: kind.to_owned(),
    };
    match at {
        Some(at) => conditions[at] = fresh,
        None => conditions.push(fresh),
    }
}
