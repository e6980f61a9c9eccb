//! One scheduling cycle: a pod and the cluster in, a node or the reasons out.
//!
//! ```text
//! prepare counts -> filter, from where the last cycle stopped, until enough nodes fit -> score those -> the best, ties by `seed`
//! ```
//!
//! Pure: the snapshot is the same afterwards, save for what it remembers to be faster.

use std::borrow::Cow;
use std::sync::Arc;

use crate::diagnosis::Diagnosis;
use crate::plugins::{
    Plugin, Rejection, image_locality, inter_pod_affinity, node_affinity, node_name, node_ports, node_resources_balanced_allocation,
    node_resources_fit, node_unschedulable, pod_topology_spread, taint_toleration,
};
use crate::pod::{PodInfo, Spread};
use crate::snapshot::{NodeId, Snapshot};

/// A cluster up to this size has all of its nodes looked at, and a larger one at least as many that fit.
const LEAST_NODES: usize = 100;
/// The least share of nodes that must fit before the search ends, in percent.
const LEAST_PERCENT: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Fits(Arc<str>),
    Unschedulable(Diagnosis),
}

/// Where the next search begins, so that all nodes of a large cluster have their turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor(usize);

/// Finds the node for a pod. `seed` decides between equally good nodes.
pub fn decide(pod: &PodInfo, snapshot: &mut Snapshot, cursor: &mut Cursor, seed: u64) -> Decision {
    let order = snapshot.order();
    let mut diagnosis = Diagnosis { nodes: order.len(), ..Diagnosis::default() };
    if order.is_empty() {
        return Decision::Unschedulable(diagnosis);
    }
    let (soft, require_all) = pod_topology_spread::soft_constraints(pod, snapshot);
    prepare(pod, &soft, snapshot);
    let filters = Filters::new(pod, snapshot, &order);
    let fitting = match find(pod, &filters, snapshot, &order, cursor, &mut diagnosis) {
        fitting if fitting.is_empty() => return Decision::Unschedulable(diagnosis),
        fitting => fitting,
    };
    let best = match fitting.as_slice() {
        [only] => *only,
        several => {
            let totals = score(pod, &soft, require_all, snapshot, &order, several);
            let most = totals.iter().copied().max().unwrap_or(0);
            let ties: Vec<NodeId> = several.iter().zip(&totals).filter(|(_, total)| **total == most).map(|(id, _)| *id).collect();
            ties[usize::try_from(seed % ties.len() as u64).unwrap_or(0)]
        }
    };
    Decision::Fits(snapshot.node(best).name.clone())
}

/// How many nodes have to fit before the search ends. Upstream's `percentageOfNodesToScore` left at its default: 50 % less one for every 125 nodes.
pub fn nodes_to_find(nodes: usize) -> usize {
    if nodes < LEAST_NODES {
        return nodes;
    }
    let percent = 50usize.saturating_sub(nodes / 125).max(LEAST_PERCENT);
    (nodes * percent / 100).max(LEAST_NODES)
}

fn find(pod: &PodInfo, filters: &Filters, snapshot: &mut Snapshot, order: &[NodeId], cursor: &mut Cursor, diagnosis: &mut Diagnosis) -> Vec<NodeId> {
    // Room was made for it there: no other node is looked at while that one fits.
    if let Some(id) = snapshot.id(pod.nominated_node()).filter(|_| !pod.nominated_node().is_empty())
        && filters.check_beside_promised(pod, snapshot, order, id).is_ok()
    {
        return vec![id];
    }
    let named = match node_affinity::only_names(pod) {
        Some(names) if names.is_empty() => {
            diagnosis.prefilter = Some(node_affinity::CONFLICT);
            diagnosis.rejected_by.insert(Plugin::NodeAffinity);
            return Vec::new();
        }
        Some(names) => Some(names.into_iter().filter_map(|name| snapshot.id(name)).collect::<Vec<NodeId>>()),
        None => None,
    };
    if let Some(named) = named {
        let absent = order.len() - named.len();
        if absent > 0 {
            diagnosis.rejected_by.insert(Plugin::NodeAffinity);
            diagnosis.reasons.insert(Cow::Borrowed("node(s) didn't satisfy plugin(s) [NodeAffinity]"), absent);
        }
        return filter(pod, filters, snapshot, order, &named, named.len(), diagnosis).0;
    }
    let start = cursor.0 % order.len();
    let turned: Vec<NodeId> = order[start..].iter().chain(&order[..start]).copied().collect();
    let (fitting, looked_at) = filter(pod, filters, snapshot, order, &turned, nodes_to_find(order.len()), diagnosis);
    cursor.0 = (start + looked_at) % order.len();
    fitting
}

/// The first `enough` of `nodes` that fit, and how many were looked at.
fn filter(
    pod: &PodInfo,
    filters: &Filters,
    snapshot: &mut Snapshot,
    order: &[NodeId],
    nodes: &[NodeId],
    enough: usize,
    diagnosis: &mut Diagnosis,
) -> (Vec<NodeId>, usize) {
    let mut fitting = Vec::with_capacity(enough);
    for (at, id) in nodes.iter().enumerate() {
        match filters.check_beside_promised(pod, snapshot, order, *id) {
            Ok(()) => fitting.push(*id),
            Err(rejection) => diagnosis.add(*id, rejection),
        }
        if fitting.len() >= enough {
            return (fitting, at + 1);
        }
    }
    (fitting, nodes.len())
}

/// Makes ready what filters and scores of this pod will read.
pub fn prepare(pod: &PodInfo, soft: &[Spread], snapshot: &mut Snapshot) {
    let spread = || pod.hard_spread.iter().chain(soft);
    let preferred = || pod.preferred_pods.iter();
    let matchers = spread().map(|spread| &spread.matcher);
    let matchers = matchers.chain(&pod.affinity_matcher).chain(&pod.anti_affinity_matchers).chain(preferred().map(|(_, _, matcher)| matcher));
    let terms = spread().map(|spread| &spread.term).chain(&pod.affinity).chain(&pod.anti_affinity).chain(preferred().map(|(_, term, _)| term));
    snapshot.prepare(matchers, terms.map(|term| term.topology_key.as_str()));
}

/// The filters of one pod, with what they count over all nodes. True of the snapshot that they were made from.
pub struct Filters {
    spread: Option<pod_topology_spread::State>,
    affinity: Option<inter_pod_affinity::State>,
}

impl Filters {
    /// The snapshot must be prepared for the pod.
    pub fn new(pod: &PodInfo, snapshot: &Snapshot, order: &[NodeId]) -> Self {
        Self { spread: pod_topology_spread::state(pod, snapshot, order), affinity: inter_pod_affinity::state(pod, snapshot) }
    }

    /// The first plugin that rejects the node decides.
    pub fn check(&self, pod: &PodInfo, snapshot: &Snapshot, id: NodeId) -> Result<(), Rejection> {
        let (node, facts) = (snapshot.node(id), snapshot.facts(id));
        node_unschedulable::filter(pod, facts)?;
        node_name::filter(pod, facts)?;
        taint_toleration::filter(pod, facts)?;
        node_affinity::filter(pod, facts)?;
        node_ports::filter(pod, node)?;
        node_resources_fit::filter(pod, node, facts)?;
        if let Some(spread) = &self.spread {
            pod_topology_spread::filter(spread, id)?;
        }
        if let Some(affinity) = &self.affinity {
            inter_pod_affinity::filter(affinity, id)?;
        }
        Ok(())
    }

    /// Checks twice where pods of the same or higher priority are promised room: with them, since they are to come, and without, since they may not.
    pub fn check_beside_promised(&self, pod: &PodInfo, snapshot: &mut Snapshot, order: &[NodeId], id: NodeId) -> Result<(), Rejection> {
        if snapshot.has_nominations() {
            let node = snapshot.node(id).name.clone();
            let promised = snapshot.nominated(&node, pod.priority, &pod.key);
            if !promised.is_empty() {
                promised.iter().for_each(|other| snapshot.place(other.clone(), &node));
                prepare(pod, &[], snapshot);
                let with = Self::new(pod, snapshot, order).check(pod, snapshot, id);
                promised.iter().for_each(|other| drop(snapshot.remove(&other.key)));
                with?;
            }
        }
        self.check(pod, snapshot, id)
    }
}

/// The weighted sum of all scores, per node.
fn score(pod: &PodInfo, soft: &[Spread], require_all: bool, snapshot: &mut Snapshot, order: &[NodeId], nodes: &[NodeId]) -> Vec<i64> {
    if snapshot.has_nominations() {
        // A promised pod's check may have prepared for filters alone.
        prepare(pod, soft, snapshot);
    }
    let snapshot = &*snapshot;
    let mut totals = vec![0; nodes.len()];
    let mut add = |weight: i64, scores: Option<Vec<i64>>| {
        for (total, score) in totals.iter_mut().zip(scores.into_iter().flatten()) {
            *total += weight * score;
        }
    };
    add(taint_toleration::WEIGHT, taint_toleration::score(pod, snapshot, nodes));
    add(node_affinity::WEIGHT, node_affinity::score(pod, snapshot, nodes));
    add(node_resources_fit::WEIGHT, Some(node_resources_fit::score(pod, snapshot, nodes)));
    add(node_resources_balanced_allocation::WEIGHT, node_resources_balanced_allocation::score(pod, snapshot, nodes));
    add(pod_topology_spread::WEIGHT, pod_topology_spread::score(pod, soft, require_all, snapshot, order, nodes));
    add(inter_pod_affinity::WEIGHT, inter_pod_affinity::score(pod, snapshot, nodes));
    add(image_locality::WEIGHT, image_locality::score(pod, snapshot, nodes, order.len()));
    totals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod, pod_with, sized};
    use serde_json::json;

    fn decide_in(world: &mut World, pod: &PodInfo, seed: u64) -> Decision {
        decide(pod, &mut world.snapshot, &mut Cursor::default(), seed)
    }

    #[test]
    fn the_search_ends_early_in_large_clusters_only() {
        assert_eq!([5, 99, 100, 1_000, 5_000, 10_000].map(nodes_to_find), [5, 99, 100, 420, 500, 500]);
    }

    #[test]
    fn the_emptiest_node_wins_and_ties_follow_the_seed() {
        let mut world = World::default();
        for name in ["a", "b", "c"] {
            world.node(name, sized("4", "8Gi", "10"));
        }
        world.snapshot.place(pod_with("x", "2", "4Gi"), "a");
        let wanted = pod_with("p", "1", "2Gi");
        let chosen: Vec<Decision> = (0..3).map(|seed| decide_in(&mut world, &wanted, seed)).collect();
        assert_eq!(chosen, ["b", "c", "b"].map(|name| Decision::Fits(Arc::from(name))));
    }

    #[test]
    fn each_node_gives_its_first_reason() {
        let mut world = World::default();
        world.node("a", json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}));
        world.node("b", sized("1", "1Gi", "10"));
        world.node("c", sized("1", "1Gi", "10"));
        let Decision::Unschedulable(diagnosis) = decide_in(&mut world, &pod_with("p", "2", "1Mi"), 0) else { panic!("nothing fits") };
        assert_eq!(diagnosis.to_string(), "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.");
        assert!(diagnosis.candidates.is_empty(), "more than any node has");
        let Decision::Unschedulable(nowhere) = decide_in(&mut World::default(), &pod("p", json!({})), 0) else { panic!("there is no node") };
        assert_eq!(nowhere.to_string(), "no nodes available to schedule pods");
    }

    #[test]
    fn a_pod_of_a_daemon_set_looks_at_its_own_node_only() {
        let mut world = World::default();
        for name in ["a", "b", "c"] {
            world.node(name, sized("1", "1Gi", "10"));
        }
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
        let wanted = |cpu: &str| {
            let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
            pod("p", json!({"spec": {"affinity": affinity, "containers": containers}}))
        };
        assert_eq!(decide_in(&mut world, &wanted("1"), 0), Decision::Fits(Arc::from("b")));
        let Decision::Unschedulable(diagnosis) = decide_in(&mut world, &wanted("2"), 0) else { panic!("it is too big") };
        assert_eq!(diagnosis.to_string(), "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].");
    }

    #[test]
    fn promised_room_is_not_given_away_to_lower_priorities() {
        let mut world = World::default();
        world.node("a", sized("2", "8Gi", "10"));
        let prioritised = |name: &str, priority: i32| {
            pod(name, json!({"spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}))
        };
        let promised = prioritised("promised", 10);
        world.snapshot.nominate(promised.clone(), "a");
        assert!(matches!(decide_in(&mut world, &prioritised("low", 5), 0), Decision::Unschedulable(_)));
        assert_eq!(decide_in(&mut world, &prioritised("high", 20), 0), Decision::Fits(Arc::from("a")));
        assert_eq!(decide_in(&mut world, &promised, 0), Decision::Fits(Arc::from("a")));
        world.snapshot.check();
    }

    #[test]
    fn searches_take_turns_over_the_nodes() {
        let mut world = World::default();
        for i in 0..150 {
            world.node(&format!("n{i}"), sized("4", "8Gi", "10"));
        }
        let mut cursor = Cursor::default();
        decide(&pod_with("p", "1", "1Gi"), &mut world.snapshot, &mut cursor, 0);
        assert_eq!(cursor.0, 100);
        decide(&pod_with("p", "1", "1Gi"), &mut world.snapshot, &mut cursor, 0);
        assert_eq!(cursor.0, 50);
    }
}
