//! A node must have what a pod asks for; nodes with more left are better (`LeastAllocated`).

use std::borrow::Cow;

use crate::change::Change;
use crate::node::{NodeFacts, NodeInfo};
use crate::plugins::{MAX_SCORE, Plugin, Rejection};
use crate::pod::PodInfo;
use crate::resources::Resources;
use crate::snapshot::{NodeId, Snapshot};

pub const WEIGHT: i64 = 1;

pub fn filter(pod: &PodInfo, node: &NodeInfo, facts: &NodeFacts) -> Result<(), Rejection> {
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut resolvable = true;
    if node.pods.len() + 1 > facts.allowed_pods {
        reasons.push(Cow::Borrowed("Too many pods"));
    }
    let (wanted, has, used) = (&pod.requests, &facts.allocatable, &node.requested);
    let mut check = |wanted: i64, has: i64, used: i64, reason: &dyn Fn() -> Cow<'static, str>| {
        if wanted > 0 && wanted > has - used {
            reasons.push(reason());
            resolvable &= wanted <= has;
        }
    };
    check(wanted.milli_cpu, has.milli_cpu, used.milli_cpu, &|| Cow::Borrowed("Insufficient cpu"));
    check(wanted.memory, has.memory, used.memory, &|| Cow::Borrowed("Insufficient memory"));
    check(wanted.ephemeral_storage, has.ephemeral_storage, used.ephemeral_storage, &|| Cow::Borrowed("Insufficient ephemeral-storage"));
    for (name, amount) in &wanted.scalar {
        check(*amount, has.scalar(name), used.scalar(name), &|| Cow::Owned(format!("Insufficient {name}")));
    }
    if reasons.is_empty() { Ok(()) } else { Err(Rejection { plugin: Plugin::NodeResourcesFit, reasons, resolvable }) }
}

/// The mean of the shares of CPU and memory that would be left.
pub fn score(pod: &PodInfo, snapshot: &Snapshot, nodes: &[NodeId]) -> Vec<i64> {
    let left = |wanted: i64, has: i64| if wanted > has { 0 } else { (has - wanted) * MAX_SCORE / has };
    let one = |id: &NodeId| {
        let (node, has) = (snapshot.node(*id), &snapshot.facts(*id).allocatable);
        let cpu = (node.scored.0 + pod.scored_requests.0, has.milli_cpu);
        let memory = (node.scored.1 + pod.scored_requests.1, has.memory);
        let (mut sum, mut weights) = (0, 0);
        for (wanted, has) in [cpu, memory].into_iter().filter(|(_, has)| *has != 0) {
            sum += left(wanted, has);
            weights += 1;
        }
        if weights == 0 { 0 } else { sum / weights }
    };
    nodes.iter().map(one).collect()
}

pub fn helps(pod: &PodInfo, change: &Change) -> bool {
    match change {
        Change::Pod { old: Some(_), new: None } => true,
        Change::Pod { old: Some(old), new: Some(new) } => any_wanted(&pod.requests, &old.requests, |old, name| old > amount(&new.requests, name)),
        Change::Node { old: None, new: Some(node) } => holds(&pod.requests, &node.allocatable),
        Change::Node { old: Some(old), new: Some(new) } => {
            let more = any_wanted(&pod.requests, &new.allocatable, |new, name| new > amount(&old.allocatable, name));
            (more || new.allowed_pods > old.allowed_pods) && holds(&pod.requests, &new.allocatable)
        }
        _ => false,
    }
}

fn amount(resources: &Resources, name: &str) -> i64 {
    match name {
        "cpu" => resources.milli_cpu,
        "memory" => resources.memory,
        "ephemeral-storage" => resources.ephemeral_storage,
        name => resources.scalar(name),
    }
}

/// Whether `holds` for any resource that is wanted, given its amount in `of`.
fn any_wanted(wanted: &Resources, of: &Resources, holds: impl Fn(i64, &str) -> bool) -> bool {
    let names = ["cpu", "memory", "ephemeral-storage"].into_iter().chain(wanted.scalar.iter().map(|(name, _)| &**name));
    names.filter(|name| amount(wanted, name) > 0).any(|name| holds(amount(of, name), name))
}

/// Whether an empty node of this size could run it.
fn holds(wanted: &Resources, has: &Resources) -> bool {
    !any_wanted(wanted, wanted, |amount_wanted, name| amount_wanted > amount(has, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod, pod_with, sized};
    use serde_json::json;

    #[test]
    fn every_shortage_is_named_and_only_some_can_be_helped() {
        let mut world = World::default();
        world.node("n", sized("2", "4Gi", "2"));
        world.snapshot.place(pod_with("a", "1", "3Gi"), "n");
        let id = world.snapshot.id("n").unwrap();
        let check = |world: &World, pod: &PodInfo| filter(pod, world.snapshot.node(id), world.snapshot.facts(id));
        assert!(check(&world, &pod_with("b", "1", "1Gi")).is_ok());
        let short = check(&world, &pod_with("b", "1500m", "2Gi")).unwrap_err();
        assert_eq!((short.reasons, short.resolvable), (vec!["Insufficient cpu".into(), "Insufficient memory".into()], true));
        assert!(!check(&world, &pod_with("b", "3", "1Gi")).unwrap_err().resolvable, "more than the node has at all");
        world.snapshot.place(pod("c", json!({})), "n");
        assert_eq!(check(&world, &pod("d", json!({}))).unwrap_err().reasons, ["Too many pods"]);
    }

    #[test]
    fn the_emptier_node_scores_higher() {
        let mut world = World::default();
        world.node("a", sized("4", "8Gi", "10"));
        world.node("b", sized("4", "8Gi", "10"));
        world.snapshot.place(pod_with("x", "2", "4Gi"), "a");
        let nodes = world.snapshot.order();
        assert_eq!(score(&pod_with("p", "1", "2Gi"), &world.snapshot, &nodes), [25, 75]);
    }

    #[test]
    fn room_helps_where_it_is_enough() {
        let facts = |cpu: &str| crate::testing::node("n", sized(cpu, "8Gi", "10"));
        let wanted = pod_with("p", "3", "1Gi");
        assert!(helps(&wanted, &Change::Node { old: None, new: Some(facts("4")) }));
        assert!(!helps(&wanted, &Change::Node { old: None, new: Some(facts("2")) }));
        assert!(!helps(&wanted, &Change::Node { old: Some(facts("4")), new: Some(facts("4")) }));
        assert!(helps(&wanted, &Change::Pod { old: Some(wanted.clone()), new: None }));
        assert!(!helps(&wanted, &Change::Pod { old: None, new: Some(wanted.clone()) }));
    }
}
