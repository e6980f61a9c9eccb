//! `nodeSelector`, required node affinity, and preferences for nodes.

use std::collections::BTreeSet;

use crate::change::Change;
use crate::node::NodeFacts;
use crate::plugins::{Plugin, Rejection, normalise};
use crate::pod::PodInfo;
use crate::snapshot::{NodeId, Snapshot};

pub const WEIGHT: i64 = 2;

/// The message when terms name nodes and contradict themselves.
pub const CONFLICT: &str = "pod affinity terms conflict";

/// The only nodes worth looking at, if the pod's terms name them.
pub fn only_names(pod: &PodInfo) -> Option<BTreeSet<&str>> {
    pod.nodes.only_names()
}

pub fn filter(pod: &PodInfo, node: &NodeFacts) -> Result<(), Rejection> {
    if pod.nodes.matches(&node.name, &node.labels) {
        return Ok(());
    }
    Err(Rejection::unresolvable(Plugin::NodeAffinity, "node(s) didn't match Pod's node affinity/selector"))
}

/// The weights of the preferences that hold.
pub fn score(pod: &PodInfo, snapshot: &Snapshot, nodes: &[NodeId]) -> Option<Vec<i64>> {
    if pod.preferred_nodes.is_empty() {
        return None;
    }
    let sum =
        |node: &NodeFacts| pod.preferred_nodes.iter().filter(|(_, term)| term.matches(&node.name, &node.labels)).map(|(weight, _)| weight).sum();
    let mut scores: Vec<i64> = nodes.iter().map(|id| sum(snapshot.facts(*id))).collect();
    normalise(&mut scores, false);
    Some(scores)
}

pub fn helps(pod: &PodInfo, change: &Change) -> bool {
    change.node_becomes(|node| filter(pod, node).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, node, pod};
    use serde_json::json;

    #[test]
    fn selectors_must_match() {
        let picky = pod("p", json!({"spec": {"nodeSelector": {"disk": "ssd"}}}));
        let ssd = node("a", json!({"metadata": {"labels": {"disk": "ssd"}}}));
        let plain = node("b", json!({}));
        assert!(filter(&picky, &ssd).is_ok());
        assert_eq!(filter(&picky, &plain).unwrap_err().reasons, ["node(s) didn't match Pod's node affinity/selector"]);
        assert!(helps(&picky, &Change::Node { old: Some(plain.clone()), new: Some(ssd.clone()) }));
        assert!(!helps(&picky, &Change::Node { old: Some(ssd.clone()), new: Some(ssd) }), "it matched before and did not help");
    }

    #[test]
    fn preferences_add_up() {
        let prefer = |weight: i32, key: &str| json!({"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}});
        let spec = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefer(10, "x"), prefer(30, "y")]}}});
        let mut world = World::default();
        world.node("a", json!({"metadata": {"labels": {"x": "", "y": ""}}}));
        world.node("b", json!({"metadata": {"labels": {"x": ""}}}));
        world.node("c", json!({}));
        let nodes = world.snapshot.order();
        assert_eq!(score(&pod("p", json!({"spec": spec})), &world.snapshot, &nodes), Some(vec![100, 25, 0]));
    }
}
