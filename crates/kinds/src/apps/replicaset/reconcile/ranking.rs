//! Which pods go first when a set shrinks: upstream's `ActivePodsWithRanks`, whose order is documented at
//! <https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#scaling-a-replicaset>.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use wheelhouse_base::Timestamp;

use crate::core::pod::state;
use crate::time::timestamp;

/// All of `pods`, the first to go first. `related` are the active pods of the same workload, for seeing which nodes are crowded.
pub fn first_to_go(pods: &[Arc<Pod>], related: &[Arc<Pod>], now: Timestamp) -> Vec<Arc<Pod>> {
    let mut crowd: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in related {
        *crowd.entry(state::node(pod)).or_default() += 1;
    }
    let rank = |pod: &Pod| crowd.get(state::node(pod)).copied().unwrap_or(0);
    let mut ordered = pods.to_vec();
    ordered.sort_by(|a, b| compare(a, b, rank(a), rank(b), now));
    ordered
}

fn compare(a: &Pod, b: &Pod, rank_a: usize, rank_b: usize, now: Timestamp) -> Ordering {
    let assigned = |pod: &Pod| !state::node(pod).is_empty();
    let phase = |pod: &Pod| match state::phase(pod) {
        "Pending" | "" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map_or(now, timestamp);
    assigned(a)
        .cmp(&assigned(b))
        .then_with(|| phase(a).cmp(&phase(b)))
        .then_with(|| state::is_ready(a).cmp(&state::is_ready(b)))
        .then_with(|| state::deletion_cost(a).cmp(&state::deletion_cost(b)))
        .then_with(|| rank_b.cmp(&rank_a))
        .then_with(|| by_age(state::ready_since(a), state::ready_since(b), now))
        .then_with(|| state::restarts(b).cmp(&state::restarts(a)))
        .then_with(|| by_age(Some(created(a)), Some(created(b)), now))
        .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
}

/// The younger goes first, but ages are compared in powers of two, so that pods of about the same age are told apart by chance and not by
/// who was first.
fn by_age(a: Option<Timestamp>, b: Option<Timestamp>, now: Timestamp) -> Ordering {
    let bucket = |at: Option<Timestamp>| at.map(|at| now.since(at).as_secs().checked_ilog2().map_or(0, |log| log + 1));
    bucket(a).cmp(&bucket(b))
}
