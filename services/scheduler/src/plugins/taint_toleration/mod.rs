//! Keeps pods off nodes whose taints they do not tolerate, and away from those they would rather not be on.

use crate::change::Change;
use crate::node::{NodeFacts, tolerates};
use crate::plugins::{Plugin, Rejection, normalise};
use crate::pod::PodInfo;
use crate::snapshot::{NodeId, Snapshot};

pub const WEIGHT: i64 = 3;

pub fn filter(pod: &PodInfo, node: &NodeFacts) -> Result<(), Rejection> {
    match node.untolerated(pod.tolerations()) {
        None => Ok(()),
        Some(_) => Err(Rejection::unresolvable(Plugin::TaintToleration, "node(s) had untolerated taint(s)")),
    }
}

/// Fewer `PreferNoSchedule` taints that the pod does not tolerate are better.
pub fn score(pod: &PodInfo, snapshot: &Snapshot, nodes: &[NodeId]) -> Option<Vec<i64>> {
    let disliked = |id: &NodeId| {
        let taints = snapshot.facts(*id).taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        taints.filter(|taint| !pod.tolerations().iter().any(|toleration| tolerates(toleration, taint))).count()
    };
    let mut scores: Vec<i64> = nodes.iter().map(|id| i64::try_from(disliked(id)).unwrap_or(i64::MAX)).collect();
    if scores.iter().all(|score| *score == 0) {
        return None;
    }
    normalise(&mut scores, true);
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
    fn an_untolerated_taint_rejects() {
        let tainted = node("n", json!({"spec": {"taints": [{"key": "a", "value": "1", "effect": "NoSchedule"}]}}));
        assert_eq!(filter(&pod("p", json!({})), &tainted).unwrap_err().reasons, ["node(s) had untolerated taint(s)"]);
        let tolerant = pod("p", json!({"spec": {"tolerations": [{"key": "a", "operator": "Equal", "value": "1", "effect": "NoSchedule"}]}}));
        assert!(filter(&tolerant, &tainted).is_ok());
    }

    #[test]
    fn fewer_unwelcome_taints_are_better() {
        let taint = |key: &str| json!({"key": key, "effect": "PreferNoSchedule"});
        let mut world = World::default();
        world.node("a", json!({"spec": {"taints": [taint("x"), taint("y")]}}));
        world.node("b", json!({"spec": {"taints": [taint("x")]}}));
        world.node("c", json!({}));
        let nodes = world.snapshot.order();
        assert_eq!(score(&pod("p", json!({})), &world.snapshot, &nodes), Some(vec![0, 50, 100]));
    }
}
