//! Spreads pods evenly over the domains of a label of nodes.
//!
//! `DoNotSchedule` constraints filter, `ScheduleAnyway` ones score. A pod that has neither and that a Service or its owner selects is spread by upstream's
//! defaults, softly: by host with a skew of 3 and by zone with a skew of 5.

use std::sync::Arc;

use crate::change::Change;
use crate::index::Topology;
use crate::node::NodeFacts;
use crate::plugins::{MAX_SCORE, Plugin, Rejection};
use crate::pod::{PodInfo, Spread};
use crate::snapshot::{NodeId, Snapshot};

pub const WEIGHT: i64 = 2;

pub const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const DEFAULTS: [(&str, i32); 2] = [(HOSTNAME, 3), (ZONE, 5)];

/// The constraints that score nodes, and whether a node must have all of their labels to be counted at all.
pub fn soft_constraints(pod: &PodInfo, snapshot: &Snapshot) -> (Vec<Spread>, bool) {
    if !pod.hard_spread.is_empty() || !pod.soft_spread.is_empty() {
        return (pod.soft_spread.clone(), true);
    }
    let Some(selector) = snapshot.default_selector(pod) else { return (Vec::new(), false) };
    let spread = |(label, skew): (&str, i32)| Spread::new(pod.namespace(), label, selector.clone(), skew);
    (DEFAULTS.into_iter().map(spread).collect(), false)
}

/// The pods of each domain, for the constraints that filter.
#[derive(Debug)]
pub struct State {
    constraints: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    topology: Arc<Topology>,
    counts: Vec<i64>,
    /// The fewest in any domain; 0 if there are fewer domains than there should be.
    least: i64,
    own: i64,
    max_skew: i64,
}

/// `None` when nothing is to be filtered. The snapshot must be prepared for the pod.
pub fn state(pod: &PodInfo, snapshot: &Snapshot, order: &[NodeId]) -> Option<State> {
    if pod.hard_spread.is_empty() {
        return None;
    }
    let topologies: Vec<Arc<Topology>> = pod.hard_spread.iter().map(|spread| snapshot.topology(&spread.term.topology_key)).collect();
    let tallies: Vec<&[u32]> = pod.hard_spread.iter().map(|spread| snapshot.counts(&spread.matcher)).collect();
    let mut counts: Vec<Vec<Option<i64>>> = topologies.iter().map(|topology| vec![None; topology.len]).collect();
    for id in order {
        if topologies.iter().any(|topology| topology.domain(*id).is_none()) {
            continue;
        }
        let facts = snapshot.facts(*id);
        for (at, spread) in pod.hard_spread.iter().enumerate() {
            if let Some(domain) = topologies[at].domain(*id)
                && includes(spread, pod, facts)
            {
                *counts[at][domain].get_or_insert(0) += tallies[at].get(*id).map_or(0, |count| i64::from(*count));
            }
        }
    }
    let constraints = pod.hard_spread.iter().zip(topologies).zip(counts).map(|((spread, topology), counts)| {
        let eligible = counts.iter().flatten();
        let least = if eligible.clone().count() < spread.min_domains { 0 } else { eligible.copied().min().unwrap_or(0) };
        let own = i64::from(spread.term.matches(pod, snapshot.namespaces()));
        Counted { topology, counts: counts.into_iter().map(|count| count.unwrap_or(0)).collect(), least, own, max_skew: spread.max_skew }
    });
    Some(State { constraints: constraints.collect() })
}

/// Whether pods on this node are counted.
fn includes(spread: &Spread, pod: &PodInfo, node: &NodeFacts) -> bool {
    (!spread.honor_affinity || pod.nodes.matches(&node.name, &node.labels)) && (!spread.honor_taints || node.untolerated(pod.tolerations()).is_none())
}

pub fn filter(state: &State, id: NodeId) -> Result<(), Rejection> {
    for constraint in &state.constraints {
        let Some(domain) = constraint.topology.domain(id) else {
            let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
            return Err(Rejection::unresolvable(Plugin::PodTopologySpread, reason));
        };
        if constraint.counts[domain] + constraint.own - constraint.least > constraint.max_skew {
            return Err(Rejection::resolvable(Plugin::PodTopologySpread, "node(s) didn't match pod topology spread constraints"));
        }
    }
    Ok(())
}

/// Domains with fewer matching pods are better. `soft` is what [`soft_constraints`] answered, and the snapshot is prepared for it.
pub fn score(pod: &PodInfo, soft: &[Spread], require_all: bool, snapshot: &Snapshot, order: &[NodeId], nodes: &[NodeId]) -> Option<Vec<i64>> {
    if soft.is_empty() {
        return None;
    }
    let topologies: Vec<Arc<Topology>> = soft.iter().map(|spread| snapshot.topology(&spread.term.topology_key)).collect();
    let complete = |id: NodeId| topologies.iter().all(|topology| topology.domain(id).is_some());
    let ignored: Vec<bool> = nodes.iter().map(|id| require_all && !complete(*id)).collect();
    let mut scores = vec![0.0; nodes.len()];
    for (spread, topology) in soft.iter().zip(&topologies) {
        let tally = snapshot.counts(&spread.matcher);
        let per_node = |id: NodeId| tally.get(id).map_or(0, |count| i64::from(*count));
        let by_host = spread.term.topology_key == HOSTNAME;
        let counted = nodes.iter().zip(&ignored).filter(|(_, ignored)| !**ignored).map(|(id, _)| *id);
        let (size, sums) = if by_host {
            (counted.count(), Vec::new())
        } else {
            let mut sums: Vec<Option<i64>> = vec![None; topology.len];
            let mut unlabelled = 0;
            for id in counted {
                match topology.domain(id) {
                    Some(domain) => sums[domain] = Some(0),
                    None => unlabelled = 1,
                }
            }
            for id in order.iter().filter(|id| !require_all || complete(**id)) {
                if let Some(domain) = topology.domain(*id)
                    && let Some(sum) = &mut sums[domain]
                    && includes(spread, pod, snapshot.facts(*id))
                {
                    *sum += per_node(*id);
                }
            }
            (sums.iter().flatten().count() + unlabelled, sums)
        };
        let weight = ((size + 2) as f64).ln();
        for ((score, id), _) in scores.iter_mut().zip(nodes).zip(&ignored).filter(|(_, ignored)| !**ignored) {
            let Some(domain) = topology.domain(*id) else { continue };
            let count = if by_host { per_node(*id) } else { sums[domain].unwrap_or(0) };
            *score += count as f64 * weight + (spread.max_skew - 1) as f64;
        }
    }
    let rounded: Vec<i64> = scores.iter().map(|score| score.round() as i64).collect();
    Some(reversed(&rounded, &ignored))
}

/// The best score goes to the fewest pods; a node that is ignored gets none.
fn reversed(scores: &[i64], ignored: &[bool]) -> Vec<i64> {
    let counted = || scores.iter().zip(ignored).filter(|(_, ignored)| !**ignored).map(|(score, _)| *score);
    let (least, most) = (counted().min().unwrap_or(0), counted().max().unwrap_or(0));
    let one = |(score, ignored): (&i64, &bool)| match (ignored, most) {
        (true, _) => 0,
        (false, 0) => MAX_SCORE,
        (false, _) => MAX_SCORE * (most + least - score) / most,
    };
    scores.iter().zip(ignored).map(one).collect()
}

pub fn helps(pod: &PodInfo, change: &Change) -> bool {
    match change {
        Change::Pod { old, new } => {
            let selects = |other: &PodInfo| {
                pod.hard_spread
                    .iter()
                    .any(|spread| other.namespace() == pod.namespace() && wheelhouse_kinds::owned::matches(&spread.term.selector, other.labels()))
            };
            let counted = |other: &Option<Arc<PodInfo>>| other.as_ref().is_some_and(|other| selects(other) && !other.deleting());
            match (old, new) {
                (Some(_), Some(_)) => counted(old) != counted(new),
                (Some(old), None) => selects(old),
                _ => counted(new),
            }
        }
        Change::Node { old, new } => {
            let labels =
                |node: &NodeFacts| pod.hard_spread.iter().map(|spread| node.labels.get(&spread.term.topology_key).cloned()).collect::<Vec<_>>();
            let complete = |node: &Option<Arc<NodeFacts>>| node.as_ref().is_some_and(|node| labels(node).iter().all(Option::is_some));
            match (old, new) {
                // A change of labels or taints can change which nodes are counted.
                (Some(was), Some(is)) => (complete(old) || complete(new)) && (was.labels != is.labels || was.taints != is.taints),
                _ => complete(old) || complete(new),
            }
        }
        Change::NamespaceLabels => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod};
    use serde_json::{Value, json};

    fn spread(name: &str, mode: &str, more: Value) -> Arc<PodInfo> {
        let mut constraint = json!({
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": mode, "labelSelector": {"matchLabels": {"app": "a"}},
        });
        constraint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pod(name, json!({"metadata": {"labels": {"app": "a"}}, "spec": {"topologySpreadConstraints": [constraint]}}))
    }

    fn zones() -> World {
        let mut world = World::default();
        for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
            world.node(name, json!({"metadata": {"labels": {"zone": zone, HOSTNAME: name}}}));
        }
        world.node("c", json!({}));
        world
    }

    fn outcomes(world: &mut World, pod: &PodInfo) -> Vec<(String, String)> {
        let order = world.prepare(pod);
        let state = state(pod, &world.snapshot, &order).unwrap();
        let one = |id: &NodeId| match filter(&state, *id) {
            Ok(()) => "ok".to_owned(),
            Err(rejection) => rejection.reasons.join(","),
        };
        let mut all: Vec<_> = order.iter().map(|id| (world.snapshot.node(*id).name.to_string(), one(id))).collect();
        all.sort();
        all
    }

    const SKEWED: &str = "node(s) didn't match pod topology spread constraints";

    #[test]
    fn the_skew_is_kept() {
        let mut world = zones();
        world.snapshot.place(spread("x", "DoNotSchedule", json!({})), "a1");
        let got = outcomes(&mut world, &spread("p", "DoNotSchedule", json!({})));
        let texts: Vec<&str> = got.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, [SKEWED, SKEWED, "ok", "node(s) didn't match pod topology spread constraints (missing required label)"]);
    }

    #[test]
    fn too_few_domains_count_as_an_empty_one() {
        let mut world = zones();
        world.snapshot.place(spread("x", "DoNotSchedule", json!({})), "a1");
        world.snapshot.place(spread("y", "DoNotSchedule", json!({})), "b1");
        assert!(outcomes(&mut world, &spread("p", "DoNotSchedule", json!({}))).iter().any(|(_, text)| text == "ok"));
        assert!(outcomes(&mut world, &spread("p", "DoNotSchedule", json!({"minDomains": 3}))).iter().all(|(_, text)| text != "ok"));
    }

    #[test]
    fn pods_of_a_service_are_spread_without_being_asked() {
        let mut world = zones();
        let member = |name: &str| pod(name, json!({"metadata": {"labels": {"app": "a"}}}));
        let key = wheelhouse_kinds::view::Key::new("default", "web");
        world.snapshot.set_service(&key, Some(std::collections::BTreeMap::from([("app".to_owned(), "a".to_owned())])));
        world.snapshot.place(member("x"), "a1");
        let wanted = member("p");
        let (soft, require_all) = soft_constraints(&wanted, &world.snapshot);
        assert_eq!((soft.len(), require_all), (2, false));
        let order = world.prepare(&wanted);
        let scores = score(&wanted, &soft, require_all, &world.snapshot, &order, &order).unwrap();
        let by_name = |name: &str| scores[order.iter().position(|id| &*world.snapshot.node(*id).name == name).unwrap()];
        assert!(by_name("a1") < by_name("a2"), "{scores:?}");
        assert_eq!(by_name("a2"), by_name("b1"), "no zone label that upstream knows");
    }

    #[test]
    fn soft_constraints_prefer_the_emptier_domain() {
        let mut world = zones();
        world.snapshot.place(spread("x", "ScheduleAnyway", json!({})), "a1");
        let wanted = spread("p", "ScheduleAnyway", json!({}));
        let order = world.prepare(&wanted);
        let (soft, require_all) = soft_constraints(&wanted, &world.snapshot);
        let scores = score(&wanted, &soft, require_all, &world.snapshot, &order, &order).unwrap();
        let by_name = |name: &str| scores[order.iter().position(|id| &*world.snapshot.node(*id).name == name).unwrap()];
        assert_eq!((by_name("a1"), by_name("a2"), by_name("b1"), by_name("c")), (0, 0, 100, 0));
    }

    #[test]
    fn a_matching_pod_that_comes_or_goes_may_help() {
        let wanted = spread("p", "DoNotSchedule", json!({}));
        let other = pod("o", json!({"metadata": {"labels": {"app": "b"}}}));
        assert!(helps(&wanted, &Change::Pod { old: None, new: Some(spread("x", "DoNotSchedule", json!({}))) }));
        assert!(!helps(&wanted, &Change::Pod { old: Some(other), new: None }));
    }
}
