//! Pods that must or would like to run near or far from others.
//!
//! Both directions count: what the new pod wants of those that run, and what those that run demand of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::change::Change;
use crate::index::{Demand, Topology};
use crate::node::NodeFacts;
use crate::plugins::{MAX_SCORE, Plugin, Rejection};
use crate::pod::PodInfo;
use crate::snapshot::{NodeId, Snapshot};

pub const WEIGHT: i64 = 2;

/// What decides about each domain.
#[derive(Debug)]
pub struct State {
    /// Per required term, the pods of each domain that match all required terms.
    near: Vec<Counts>,
    /// No such pod runs anywhere, and the new pod matches its own terms: it is the first of its kind and may go anywhere that has the labels.
    first: bool,
    far: Vec<Counts>,
    /// Domains that running pods forbid.
    forbidden: Vec<Counts>,
}

#[derive(Debug)]
struct Counts {
    topology: Arc<Topology>,
    pods: Vec<i64>,
}

impl Counts {
    fn at(&self, node: NodeId) -> Option<i64> {
        self.topology.domain(node).map(|domain| self.pods[domain])
    }
}

/// `None` when nothing is to be filtered. The snapshot must be prepared for the pod.
pub fn state(pod: &PodInfo, snapshot: &Snapshot) -> Option<State> {
    let namespaces = snapshot.namespaces();
    let demands = snapshot.demands().forbidding.values().filter(|demand| demand.term.matches(pod, namespaces));
    let forbidden: Vec<Counts> = demands.map(|demand| held(demand, snapshot)).collect();
    if forbidden.is_empty() && pod.affinity.is_empty() && pod.anti_affinity.is_empty() {
        return None;
    }
    let counted = |label: &str, matcher| {
        let topology = snapshot.topology(label);
        let pods = topology.sum(snapshot.counts(matcher));
        Counts { topology, pods }
    };
    let near: Vec<Counts> = match &pod.affinity_matcher {
        Some(matcher) => pod.affinity.iter().map(|term| counted(&term.topology_key, matcher)).collect(),
        None => Vec::new(),
    };
    let nobody = near.iter().all(|counts| counts.pods.iter().all(|pods| *pods == 0));
    let first = !near.is_empty() && nobody && pod.affinity.iter().all(|term| term.matches(pod, namespaces));
    let far = pod.anti_affinity.iter().zip(&pod.anti_affinity_matchers).map(|(term, matcher)| counted(&term.topology_key, matcher)).collect();
    Some(State { near, first, far, forbidden })
}

fn held(demand: &Demand, snapshot: &Snapshot) -> Counts {
    let topology = snapshot.topology(&demand.term.topology_key);
    let mut pods = vec![0; topology.len];
    for (node, count) in &demand.nodes {
        if let Some(domain) = topology.domain(*node) {
            pods[domain] += i64::from(*count);
        }
    }
    Counts { topology, pods }
}

pub fn filter(state: &State, id: NodeId) -> Result<(), Rejection> {
    let labelled = state.near.iter().all(|counts| counts.at(id).is_some());
    let near = labelled && (state.first || state.near.iter().all(|counts| counts.at(id) > Some(0)));
    if !near {
        return Err(Rejection::unresolvable(Plugin::InterPodAffinity, "node(s) didn't match pod affinity rules"));
    }
    if state.far.iter().any(|counts| counts.at(id) > Some(0)) {
        return Err(Rejection::resolvable(Plugin::InterPodAffinity, "node(s) didn't match pod anti-affinity rules"));
    }
    if state.forbidden.iter().any(|counts| counts.at(id) > Some(0)) {
        return Err(Rejection::resolvable(Plugin::InterPodAffinity, "node(s) didn't satisfy existing pods anti-affinity rules"));
    }
    Ok(())
}

/// The weights of the preferences that would hold, of the new pod and of those that run. The snapshot must be prepared for the pod.
pub fn score(pod: &PodInfo, snapshot: &Snapshot, nodes: &[NodeId]) -> Option<Vec<i64>> {
    let mut sums: BTreeMap<&str, (Arc<Topology>, Vec<i64>)> = BTreeMap::new();
    let mut add = |label, weight: i64, counts: Counts| {
        let (_, sum) = sums.entry(label).or_insert_with(|| (counts.topology.clone(), vec![0; counts.topology.len]));
        for (sum, pods) in sum.iter_mut().zip(&counts.pods) {
            *sum += weight * pods;
        }
    };
    for (weight, term, matcher) in &pod.preferred_pods {
        let topology = snapshot.topology(&term.topology_key);
        let pods = topology.sum(snapshot.counts(matcher));
        add(term.topology_key.as_str(), *weight, Counts { topology, pods });
    }
    for demand in snapshot.demands().scoring.values().filter(|demand| demand.term.matches(pod, snapshot.namespaces())) {
        add(demand.term.topology_key.as_str(), demand.weight, held(demand, snapshot));
    }
    if sums.values().all(|(_, sums)| sums.iter().all(|sum| *sum == 0)) {
        return None;
    }
    let one = |id: &NodeId| sums.values().filter_map(|(topology, sums)| Some(sums[topology.domain(*id)?])).sum::<i64>();
    let scores: Vec<i64> = nodes.iter().map(one).collect();
    let (least, most) = (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
    let scaled = |score: &i64| if most == least { 0 } else { (MAX_SCORE as f64 * ((score - least) as f64 / (most - least) as f64)) as i64 };
    Some(scores.iter().map(scaled).collect())
}

/// Selectors of namespaces are taken to match here: looking again once too often does no harm.
pub fn helps(pod: &PodInfo, change: &Change) -> bool {
    let may_match = |term: &crate::terms::PodTerm, other: &PodInfo| {
        let near = !term.namespace_selector.is_nothing() || term.namespaces.contains(other.namespace());
        near && wheelhouse_kinds::owned::matches(&term.selector, other.labels())
    };
    let wanted = |other: &PodInfo| pod.affinity.iter().all(|term| may_match(term, other)) && !pod.affinity.is_empty();
    match change {
        Change::Pod { old: None, new: Some(new) } => wanted(new),
        Change::Pod { old: Some(old), new: Some(new) } => {
            let shunned = |other: &PodInfo| pod.anti_affinity.iter().any(|term| may_match(term, other));
            (wanted(new) && !wanted(old)) || (shunned(old) && !shunned(new))
        }
        Change::Pod { old: Some(old), new: None } => {
            pod.anti_affinity.iter().any(|term| may_match(term, old)) || old.anti_affinity.iter().any(|term| may_match(term, pod))
        }
        Change::Pod { old: None, new: None } => false,
        Change::Node { old, new: Some(new) } => {
            let label = |node: &NodeFacts, key: &str| node.labels.get(key).cloned();
            let mut terms = pod.affinity.iter().chain(&pod.anti_affinity);
            match old {
                // Without terms of its own it was rejected by those of others, and any new place may do.
                None => terms.clone().count() == 0 || terms.any(|term| new.labels.contains_key(&term.topology_key)),
                Some(old) if pod.affinity.is_empty() && pod.anti_affinity.is_empty() => old.labels != new.labels,
                Some(old) => terms.any(|term| label(old, &term.topology_key) != label(new, &term.topology_key)),
            }
        }
        Change::Node { new: None, .. } => false,
        Change::NamespaceLabels => pod.affinity.iter().chain(&pod.anti_affinity).any(|term| !term.namespace_selector.is_nothing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod};
    use serde_json::{Value, json};

    fn term(app: &str) -> Value {
        json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}})
    }

    fn labelled(name: &str, app: &str, affinity: Value) -> Arc<PodInfo> {
        pod(name, json!({"metadata": {"labels": {"app": app}}, "spec": {"affinity": affinity}}))
    }

    fn near(name: &str, app: &str, other: &str) -> Arc<PodInfo> {
        labelled(name, app, json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(other)]}}))
    }

    fn far(name: &str, app: &str, other: &str) -> Arc<PodInfo> {
        labelled(name, app, json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(other)]}}))
    }

    fn zones() -> World {
        let mut world = World::default();
        for (name, zone) in [("a", "a"), ("b", "b")] {
            world.node(name, json!({"metadata": {"labels": {"zone": zone}}}));
        }
        world
    }

    fn outcomes(world: &mut World, pod: &PodInfo) -> Vec<String> {
        let order = world.prepare(pod);
        let Some(state) = state(pod, &world.snapshot) else { return vec!["ok".to_owned(); order.len()] };
        let one = |id: &NodeId| match filter(&state, *id) {
            Ok(()) => "ok".to_owned(),
            Err(rejection) => rejection.reasons.join(","),
        };
        order.iter().map(one).collect()
    }

    #[test]
    fn affinity_follows_its_pods_and_the_first_goes_anywhere() {
        let mut world = zones();
        assert_eq!(outcomes(&mut world, &near("p", "x", "x")), ["ok", "ok"], "it is the first of its kind");
        let lonely = "node(s) didn't match pod affinity rules";
        assert_eq!(outcomes(&mut world, &near("p", "x", "y")), [lonely, lonely]);
        world.snapshot.place(labelled("y", "y", json!({})), "b");
        assert_eq!(outcomes(&mut world, &near("p", "x", "y")), [lonely, "ok"]);
    }

    #[test]
    fn anti_affinity_counts_both_ways() {
        let mut world = zones();
        world.snapshot.place(far("x", "x", "y"), "a");
        let demanded = "node(s) didn't satisfy existing pods anti-affinity rules";
        assert_eq!(outcomes(&mut world, &labelled("p", "y", json!({}))), [demanded, "ok"]);
        assert_eq!(outcomes(&mut world, &far("p", "z", "x")), ["node(s) didn't match pod anti-affinity rules", "ok"]);
        world.snapshot.remove(&wheelhouse_kinds::view::Key::new("default", "x"));
        assert_eq!(outcomes(&mut world, &labelled("p", "y", json!({}))), ["ok", "ok"]);
    }

    #[test]
    fn other_namespaces_count_only_where_they_are_named_or_selected() {
        let mut world = zones();
        let other = pod("o", json!({"metadata": {"namespace": "other", "labels": {"app": "x"}}}));
        world.snapshot.place(other, "a");
        let shun = |extra: Value| {
            let mut term = term("x");
            term.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            labelled("p", "p", json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}))
        };
        let shunned = "node(s) didn't match pod anti-affinity rules";
        assert_eq!(outcomes(&mut world, &shun(json!({}))), ["ok", "ok"]);
        assert_eq!(outcomes(&mut world, &shun(json!({"namespaces": ["other"]}))), [shunned, "ok"]);
        let selected = shun(json!({"namespaceSelector": {"matchLabels": {"team": "t"}}}));
        assert_eq!(outcomes(&mut world, &selected), ["ok", "ok"]);
        world.snapshot.set_namespace("other", Some(BTreeMap::from([("team".to_owned(), "t".to_owned())])));
        assert_eq!(outcomes(&mut world, &selected), [shunned, "ok"]);
    }

    #[test]
    fn preferences_of_both_sides_add_up() {
        let mut world = zones();
        let prefer = |kind: &str, weight: i32, app: &str| json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term(app)}]}});
        world.snapshot.place(labelled("x", "x", prefer("podAntiAffinity", 10, "p")), "a");
        world.snapshot.place(labelled("y", "y", json!({})), "b");
        let wanted = labelled("p", "p", prefer("podAffinity", 5, "y"));
        let order = world.prepare(&wanted);
        assert_eq!(score(&wanted, &world.snapshot, &order), Some(vec![0, 100]));
        assert_eq!(score(&labelled("q", "q", json!({})), &world.snapshot, &order), None);
    }

    #[test]
    fn hints_look_at_the_pod_that_came_or_went() {
        let gone = |pod: Arc<PodInfo>| Change::Pod { old: Some(pod), new: None };
        assert!(helps(&far("p", "p", "x"), &gone(labelled("x", "x", json!({})))));
        assert!(helps(&labelled("p", "p", json!({})), &gone(far("x", "x", "p"))));
        assert!(!helps(&far("p", "p", "x"), &gone(labelled("y", "y", json!({})))));
        assert!(helps(&near("p", "p", "x"), &Change::Pod { old: None, new: Some(labelled("x", "x", json!({}))) }));
    }
}
