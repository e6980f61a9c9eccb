//! Rolling updates and scaling: how many pods each set may have now.
//!
//! Bounds: at most `replicas + maxSurge` pods exist and at least `replicas - maxUnavailable` are available, at every step.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use serde_json::json;

use super::sets::{DESIRED_REPLICAS, MAX_REPLICAS, annotation, wanted};
use super::{Rollout, note, patch_set};
use crate::apps::workload::resolve;
use crate::plan::{EventType, Plan};

/// `(maxSurge, maxUnavailable)` in pods. Both zero would never move: then one may be unavailable, as upstream resolves it.
fn bounds(rollout: &Rollout<'_>) -> (i32, i32) {
    if rollout.is_recreate() {
        return (0, 0);
    }
    let strategy = rollout.deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = resolve(rolling.and_then(|r| r.max_surge.as_ref()), rollout.replicas, true);
    let unavailable = resolve(rolling.and_then(|r| r.max_unavailable.as_ref()), rollout.replicas, false);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable.min(rollout.replicas)) }
}

pub fn max_surge(rollout: &Rollout<'_>) -> i32 {
    bounds(rollout).0
}

pub fn max_unavailable(rollout: &Rollout<'_>) -> i32 {
    bounds(rollout).1
}

/// How large the new set may be while the old ones are as they are. `current` is its present size.
pub fn new_set_size(rollout: &Rollout<'_>, current: i32) -> i32 {
    if rollout.is_recreate() {
        let old: i32 = rollout.old.iter().map(|set| wanted(set)).sum();
        return if old > 0 { 0 } else { rollout.replicas };
    }
    let total: i32 = rollout.old.iter().map(|set| wanted(set)).sum::<i32>() + current;
    let room = rollout.replicas + max_surge(rollout) - total;
    if room <= 0 { current } else { current + room.min(rollout.replicas - current).max(0) }
}

/// One step: the new set up if there is room, else old sets down as far as availability allows.
pub fn step(rollout: &Rollout<'_>, new: &Arc<ReplicaSet>, plan: &mut Plan) {
    let current = wanted(new);
    if current > rollout.replicas {
        scale(rollout, new, rollout.replicas, plan);
        return;
    }
    let size = new_set_size(rollout, current);
    if current < rollout.replicas && size > current {
        scale(rollout, new, size, plan);
        return;
    }
    shrink_old(rollout, new, plan);
}

fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

fn shrink_old(rollout: &Rollout<'_>, new: &Arc<ReplicaSet>, plan: &mut Plan) {
    let old_total: i32 = rollout.old.iter().map(|set| wanted(set)).sum();
    if old_total == 0 {
        return;
    }
    let total = old_total + wanted(new);
    let min_available = rollout.replicas - max_unavailable(rollout);
    let new_unavailable = wanted(new) - available(new);
    let mut allowed = total - min_available - new_unavailable;
    if allowed <= 0 {
        return;
    }
    let mut sizes: Vec<(&Arc<ReplicaSet>, i32)> = rollout.old.iter().map(|set| (set, wanted(set))).filter(|(_, size)| *size > 0).collect();
    // Pods that serve nobody go first: they cost no availability, and a broken old set must not block the way.
    for (set, size) in &mut sizes {
        let unhealthy = (*size - available(set)).clamp(0, allowed);
        *size -= unhealthy;
        allowed -= unhealthy;
    }
    let all_available: i32 = rollout.all().map(|set| available(set)).sum();
    let mut spare = all_available - min_available;
    for (set, size) in &mut sizes {
        let fewer = (*size).min(spare.max(0)).min(available(set));
        *size -= fewer;
        spare -= fewer;
    }
    for (set, size) in sizes {
        if size != wanted(set) {
            scale(rollout, set, size, plan);
        }
    }
}

/// Whether `replicas` changed since the sets were last sized: their desired-replicas annotation remembers it.
pub fn is_scaling(rollout: &Rollout<'_>) -> bool {
    let desired = |set: &ReplicaSet| annotation(set.metadata.annotations.as_ref(), DESIRED_REPLICAS)?.parse::<i32>().ok();
    rollout.all().filter(|set| wanted(set) > 0).any(|set| desired(set).is_some_and(|desired| desired != rollout.replicas))
}

/// Spreads a change of `replicas` over the active sets in proportion to their sizes, the larger ones taking the rounding.
pub fn scale_in_proportion(rollout: &Rollout<'_>, plan: &mut Plan) {
    let active: Vec<&Arc<ReplicaSet>> = rollout.all().filter(|set| wanted(set) > 0).collect();
    if active.len() <= 1 {
        // With one set, or none, there is nothing to share out.
        if let Some(set) = active.first().copied().or(rollout.new.as_ref()).or(rollout.old.last()) {
            scale(rollout, set, rollout.replicas, plan);
        }
        return;
    }
    if let Some(new) = rollout.new.as_ref().filter(|new| wanted(new) == rollout.replicas && available(new) == rollout.replicas) {
        // The rollout is done but for leftovers.
        for set in active.iter().filter(|set| set.metadata.uid != new.metadata.uid) {
            scale(rollout, set, 0, plan);
        }
        return;
    }
    if rollout.is_recreate() {
        return;
    }
    let allowed = if rollout.replicas > 0 { rollout.replicas + max_surge(rollout) } else { 0 };
    let total: i32 = active.iter().map(|set| wanted(set)).sum();
    let mut left = allowed - total;
    let mut ordered = active;
    let newest_first = |set: &ReplicaSet| set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    // Ties go to newer sets when growing, to older ones when shrinking.
    ordered.sort_by(|a, b| {
        let by_age = newest_first(b).cmp(&newest_first(a));
        wanted(b).cmp(&wanted(a)).then(if left > 0 { by_age } else { by_age.reverse() })
    });
    let mut sizes: Vec<i32> = Vec::with_capacity(ordered.len());
    for set in &ordered {
        let share = proportion(set, rollout, allowed, left);
        left -= share;
        sizes.push(wanted(set) + share);
    }
    // What rounding left over is the largest set's.
    if let Some(first) = sizes.first_mut() {
        *first = (*first + left).max(0);
    }
    for (set, size) in ordered.into_iter().zip(sizes) {
        scale(rollout, set, size, plan);
    }
}

fn proportion(set: &ReplicaSet, rollout: &Rollout<'_>, allowed: i32, left: i32) -> i32 {
    if wanted(set) == 0 || left == 0 {
        return 0;
    }
    let before = annotation(set.metadata.annotations.as_ref(), MAX_REPLICAS).and_then(|text| text.parse::<i32>().ok());
    let before =
        before.filter(|before| *before > 0).unwrap_or_else(|| rollout.deployment.status.as_ref().and_then(|s| s.replicas).unwrap_or(1).max(1));
    let share = (f64::from(wanted(set)) * f64::from(allowed) / f64::from(before)).round() as i32 - wanted(set);
    if left > 0 { share.clamp(0, left) } else { share.clamp(left, 0) }
}

/// Sets a set's size, and in its annotations what it was sized for. The event is upstream's.
pub fn scale(rollout: &Rollout<'_>, set: &Arc<ReplicaSet>, size: i32, plan: &mut Plan) {
    let annotations = set.metadata.annotations.as_ref();
    let (desired, max) = (rollout.replicas.to_string(), (rollout.replicas + max_surge(rollout)).to_string());
    let annotated =
        annotation(annotations, DESIRED_REPLICAS) == Some(desired.as_str()) && annotation(annotations, MAX_REPLICAS) == Some(max.as_str());
    let (from, resized) = (wanted(set), wanted(set) != size);
    if annotated && !resized {
        return;
    }
    let patch = json!({"metadata": {"annotations": {DESIRED_REPLICAS: desired, MAX_REPLICAS: max}}, "spec": {"replicas": size}});
    plan.operations.push(patch_set(set, patch));
    if resized {
        let direction = if size > from { "up" } else { "down" };
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let message = format!("Scaled {direction} replica set {name} from {from} to {size}");
        plan.events.push(note(rollout.deployment, EventType::Normal, "ScalingReplicaSet", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    #[test]
    fn percentages_round_so_that_something_moves() {
        let percent = |text: &str| Some(IntOrString::String(text.to_owned()));
        assert_eq!(resolve(percent("25%").as_ref(), 3, true), 1);
        assert_eq!(resolve(percent("25%").as_ref(), 3, false), 0);
        assert_eq!(resolve(percent("100%").as_ref(), 7, false), 7);
        assert_eq!(resolve(Some(&IntOrString::Int(2)), 7, true), 2);
        assert_eq!(resolve(None, 7, true), 0);
    }
}
