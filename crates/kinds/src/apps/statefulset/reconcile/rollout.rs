//! The next steps of a set: missing pods, pods that are too many, pods of an old revision, in this order.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use wheelhouse_base::Timestamp;

use super::{Sync, claims, identity};
use crate::apps::controllerrevision::history::{name, revision_of};
use crate::apps::workload::resolve;
use crate::core::pod::state;
use crate::plan::Plan;
use crate::validation::text;

/// Running, ready for long enough, and not on its way out. Asks to look again when time alone will make it so.
fn is_available(sync: &Sync<'_>, pod: &Pod, now: Timestamp, plan: &mut Plan) -> bool {
    if state::phase(pod) != "Running" || pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    match state::availability(pod, sync.min_ready(), now) {
        Ok(()) => true,
        Err(at) => {
            if let Some(at) = at {
                plan.requeue_no_later_than(at);
            }
            false
        }
    }
}

pub fn step(sync: &Sync<'_>, now: Timestamp, plan: &mut Plan) {
    let ordinal = |pod: &Pod| identity::ordinal(sync.set, text(&pod.metadata.name)).unwrap_or(-1);
    let all: BTreeMap<i32, Arc<Pod>> = sync.pods.iter().map(|pod| (ordinal(pod), pod.clone())).collect();
    let (replicas, condemned): (BTreeMap<_, _>, BTreeMap<_, _>) = all.into_iter().partition(|(ordinal, _)| sync.is_in_range(*ordinal));
    let available: BTreeMap<i32, bool> =
        replicas.iter().chain(&condemned).map(|(ordinal, pod)| (*ordinal, is_available(sync, pod, now, plan))).collect();
    let is_available = |ordinal: i32| available.get(&ordinal).copied().unwrap_or(false);
    if fill(sync, &replicas, &is_available, plan) {
        return;
    }
    for (ordinal, pod) in &condemned {
        claims::fix_owners(sync, pod, *ordinal, plan);
    }
    let ordered = sync.start()..sync.start().saturating_add(sync.replicas());
    let first_unavailable = ordered.chain(condemned.keys().copied()).find(|ordinal| !is_available(*ordinal));
    if shrink(sync, &condemned, &is_available, first_unavailable, plan) {
        return;
    }
    update(sync, &replicas, &is_available, plan);
}

/// Every number has its pod. In order, each waits for the one before. Answers whether nothing else may be done now.
fn fill(sync: &Sync<'_>, replicas: &BTreeMap<i32, Arc<Pod>>, is_available: &impl Fn(i32) -> bool, plan: &mut Plan) -> bool {
    let ordered = !sync.is_parallel();
    for ordinal in sync.start()..sync.start().saturating_add(sync.replicas()) {
        let Some(pod) = replicas.get(&ordinal) else {
            sync.create(ordinal, plan);
            if ordered {
                return true;
            }
            continue;
        };
        // Ended pods are made anew, however they ended.
        if matches!(state::phase(pod), "Failed" | "Succeeded") {
            if pod.metadata.deletion_timestamp.is_none() {
                sync.delete(pod, plan);
            }
            if ordered {
                return true;
            }
            continue;
        }
        if matches!(state::phase(pod), "Pending" | "") && pod.metadata.deletion_timestamp.is_none() {
            sync.create_claims(ordinal, plan);
        }
        if ordered && !is_available(ordinal) {
            return true;
        }
        sync.fix_identity(pod, ordinal, plan);
        claims::fix_owners(sync, pod, ordinal, plan);
    }
    false
}

/// Pods beyond the range go, from the highest; in order, one at a time and only while all others are well, unless it is the sick one.
fn shrink(
    sync: &Sync<'_>,
    condemned: &BTreeMap<i32, Arc<Pod>>,
    is_available: &impl Fn(i32) -> bool,
    first_unavailable: Option<i32>,
    plan: &mut Plan,
) -> bool {
    for (ordinal, pod) in condemned.iter().rev() {
        let going = pod.metadata.deletion_timestamp.is_some();
        if sync.is_parallel() {
            if !going {
                sync.delete(pod, plan);
            }
            continue;
        }
        let blocked = going || (!is_available(*ordinal) && first_unavailable != Some(*ordinal));
        if !blocked {
            sync.delete(pod, plan);
        }
        return true;
    }
    false
}

/// Pods of another revision go, from the highest down to the partition, as long as no more than `maxUnavailable` are not available.
fn update(sync: &Sync<'_>, replicas: &BTreeMap<i32, Arc<Pod>>, is_available: &impl Fn(i32) -> bool, plan: &mut Plan) {
    let strategy = sync.spec.update_strategy.clone().unwrap_or_default();
    if strategy.type_.as_deref() == Some("OnDelete") {
        return;
    }
    let rolling = strategy.rolling_update.unwrap_or_default();
    let partition = sync.start().saturating_add(rolling.partition.unwrap_or(0));
    // At least one, or nothing would ever move.
    let most = rolling.max_unavailable.as_ref().map_or(1, |value| resolve(Some(value), sync.replicas(), true)).max(1);
    let unavailable = (sync.start()..sync.start().saturating_add(sync.replicas())).filter(|ordinal| !is_available(*ordinal)).count();
    let mut budget = usize::try_from(most).unwrap_or(0).saturating_sub(unavailable);
    for (ordinal, pod) in replicas.iter().rev().filter(|(ordinal, _)| **ordinal >= partition) {
        if revision_of(&pod.metadata) == name(&sync.update) || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        // One that serves nobody costs nothing.
        if is_available(*ordinal) {
            if budget == 0 {
                return;
            }
            budget -= 1;
        }
        sync.delete(pod, plan);
    }
}
