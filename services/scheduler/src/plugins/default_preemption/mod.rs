//! Makes room for a pod by evicting pods of lower priority from one node.
//!
//! ```text
//! per candidate node: take off all lower pods -> does it fit? -> put back as many as possible, those under a disruption budget first -> victims
//! over the candidates: fewest broken budgets, lowest highest victim, lowest sum, fewest victims, latest start
//! ```
//!
//! Pure: pods are taken off and put back in the snapshot that is passed in, which is as before when the call returns.

use std::cmp::Reverse;
use std::sync::Arc;

use wheelhouse_base::Timestamp;
use wheelhouse_kinds::owned;

use crate::cycle::{self, Filters};
use crate::diagnosis::Diagnosis;
use crate::plugins::Rejection;
use crate::pod::PodInfo;
use crate::snapshot::{Budget, NodeId, Snapshot};

/// The dry run stops after this many candidates, or a tenth of the nodes if that is more.
const LEAST_CANDIDATES: usize = 100;

#[derive(Clone, Debug)]
pub enum Preemption {
    /// Evict these, in this order, and keep the node for the pod.
    Evict { node: Arc<str>, victims: Vec<Arc<PodInfo>> },
    /// Evicting helps nowhere, or the pod may not. `waiting`: an earlier eviction for it is still under way, so its nomination stands.
    Not { message: String, waiting: bool },
}

struct Candidate {
    node: NodeId,
    /// From the most important down.
    victims: Vec<Arc<PodInfo>>,
    broken_budgets: usize,
}

/// Looks for room among `failed.candidates`, the nodes that rejected the pod for a reason that its pods are to blame for.
pub fn preempt(pod: &PodInfo, snapshot: &mut Snapshot, failed: &Diagnosis, seed: u64) -> Preemption {
    if !pod.may_preempt() {
        return Preemption::Not { message: "not eligible due to preemptionPolicy=Never.".to_owned(), waiting: false };
    }
    if victims_are_leaving(pod, snapshot, failed) {
        return Preemption::Not { message: "not eligible due to a terminating pod on the nominated node.".to_owned(), waiting: true };
    }
    let mut helpless = Diagnosis { nodes: failed.nodes, ..Diagnosis::default() };
    let candidates = candidates(pod, snapshot, failed, seed, &mut helpless);
    match candidates.into_iter().min_by_key(rank) {
        Some(best) => Preemption::Evict { node: snapshot.node(best.node).name.clone(), victims: best.victims },
        None => Preemption::Not { message: helpless.to_string(), waiting: false },
    }
}

/// Whether pods are already being deleted to make room where this one is nominated.
fn victims_are_leaving(pod: &PodInfo, snapshot: &Snapshot, failed: &Diagnosis) -> bool {
    let Some(id) = snapshot.id(pod.nominated_node()) else { return false };
    failed.candidates.contains(&id) && snapshot.node(id).pods.iter().any(|other| other.priority < pod.priority && other.deleting())
}

fn candidates(pod: &PodInfo, snapshot: &mut Snapshot, failed: &Diagnosis, seed: u64, helpless: &mut Diagnosis) -> Vec<Candidate> {
    let nodes = &failed.candidates;
    let enough = LEAST_CANDIDATES.max(nodes.len() / 10);
    let offset = usize::try_from(seed % nodes.len().max(1) as u64).unwrap_or(0);
    let mut found: Vec<Candidate> = Vec::new();
    let mut clean = false;
    let mut asked = 0;
    for id in nodes[offset..].iter().chain(&nodes[..offset]) {
        asked += 1;
        match victims_on(pod, snapshot, *id) {
            Ok(candidate) => {
                clean |= candidate.broken_budgets == 0;
                found.push(candidate);
            }
            Err(reasons) => helpless.count(reasons),
        }
        // Any number of candidates that break a budget is worth less than one that does not.
        if clean && found.len() >= enough {
            break;
        }
    }
    let rest = failed.nodes - asked;
    if rest > 0 {
        helpless.reasons.insert("Preemption is not helpful for scheduling".into(), rest);
    }
    found
}

/// The fewest, least important pods of a node whose eviction lets `pod` in.
fn victims_on(pod: &PodInfo, snapshot: &mut Snapshot, id: NodeId) -> Result<Candidate, Vec<std::borrow::Cow<'static, str>>> {
    let node = snapshot.node(id).name.clone();
    let mut lower: Vec<Arc<PodInfo>> = snapshot.node(id).pods.iter().filter(|other| other.priority < pod.priority).cloned().collect();
    if lower.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".into()]);
    }
    lower.sort_by(|a, b| importance(a).cmp(&importance(b)));
    let assumed: Vec<bool> = lower.iter().map(|other| snapshot.is_assumed(&other.key)).collect();
    for other in &lower {
        snapshot.remove(&other.key);
    }
    let found = match fits(pod, snapshot, id) {
        Err(rejection) => Err(rejection.reasons),
        Ok(()) => Ok(reprieve(pod, snapshot, id, &node, &lower)),
    };
    for (other, assumed) in lower.into_iter().zip(assumed) {
        if assumed { snapshot.assume(other, &node) } else { snapshot.place(other, &node) }
    }
    found
}

/// Puts back whom it can, the most important first and those whose budget would break before the others. The rest are the victims.
fn reprieve(pod: &PodInfo, snapshot: &mut Snapshot, id: NodeId, node: &str, lower: &[Arc<PodInfo>]) -> Candidate {
    let breaks = breaks_budget(lower, snapshot);
    let mut candidate = Candidate { node: id, victims: Vec::new(), broken_budgets: 0 };
    for breaking in [true, false] {
        for (other, _) in lower.iter().zip(&breaks).filter(|(_, breaks)| **breaks == breaking) {
            snapshot.place(other.clone(), node);
            if fits(pod, snapshot, id).is_err() {
                snapshot.remove(&other.key);
                candidate.victims.push(other.clone());
                candidate.broken_budgets += usize::from(breaking);
            }
        }
    }
    candidate.victims.sort_by(|a, b| importance(a).cmp(&importance(b)));
    candidate
}

fn fits(pod: &PodInfo, snapshot: &mut Snapshot, id: NodeId) -> Result<(), Rejection> {
    let order = snapshot.order();
    cycle::prepare(pod, &[], snapshot);
    Filters::new(pod, snapshot, &order).check_beside_promised(pod, snapshot, &order, id)
}

/// Sorts the more important first: higher priority, then earlier start.
fn importance(pod: &PodInfo) -> (Reverse<i32>, Timestamp, &str) {
    (Reverse(pod.priority), pod.started(), &pod.uid)
}

/// For each pod in turn, whether evicting it after those before it goes beyond a budget.
fn breaks_budget(pods: &[Arc<PodInfo>], snapshot: &Snapshot) -> Vec<bool> {
    let budgets: Vec<(&str, &Budget)> = snapshot.budgets().map(|(key, budget)| (&*key.namespace, budget)).collect();
    let mut left: Vec<i32> = budgets.iter().map(|(_, budget)| budget.allowed).collect();
    let one = |pod: &Arc<PodInfo>| {
        let mut broken = false;
        for (at, (namespace, budget)) in budgets.iter().enumerate() {
            let covers = *namespace == pod.namespace() && !budget.selector.is_everything() && owned::matches(&budget.selector, pod.labels());
            if !covers || pod.labels().is_none_or(|labels| labels.is_empty()) || budget.disrupted.contains(&pod.key.name.to_string()) {
                continue;
            }
            left[at] -= 1;
            broken |= left[at] < 0;
        }
        broken
    };
    pods.iter().map(one).collect()
}

/// The smallest is the best; of equal ones the first.
fn rank(candidate: &Candidate) -> (usize, i64, i64, usize, Reverse<Timestamp>) {
    let highest = candidate.victims.first().map_or(i64::MIN, |victim| i64::from(victim.priority));
    // Shifted so that a few pods of negative priority do not look better than none.
    let sum = candidate.victims.iter().map(|victim| i64::from(victim.priority) + i64::from(i32::MAX) + 1).sum();
    let of_highest = candidate.victims.iter().filter(|victim| i64::from(victim.priority) == highest);
    let earliest = of_highest.map(|victim| victim.started()).min().unwrap_or_default();
    (candidate.broken_budgets, highest, sum, candidate.victims.len(), Reverse(earliest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle::{Cursor, Decision, decide};
    use crate::testing::{World, pod, sized};
    use serde_json::json;
    use wheelhouse_kinds::view::Key;
    use wheelhouse_meta::selector::LabelSelector;

    fn ranked(name: &str, priority: i32, cpu: &str) -> Arc<PodInfo> {
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        pod(name, json!({"metadata": {"labels": {"app": name}}, "spec": {"priority": priority, "containers": containers}}))
    }

    fn attempt(world: &mut World, pod: &PodInfo) -> Preemption {
        let Decision::Unschedulable(failed) = decide(pod, &mut world.snapshot, &mut Cursor::default(), 0) else { panic!("it fits as it is") };
        let outcome = preempt(pod, &mut world.snapshot, &failed, 0);
        world.snapshot.check();
        outcome
    }

    fn evicted(outcome: Preemption) -> (String, Vec<String>) {
        let Preemption::Evict { node, victims } = outcome else { panic!("{outcome:?}") };
        (node.to_string(), victims.iter().map(|victim| victim.key.name.to_string()).collect())
    }

    fn two_nodes() -> World {
        let mut world = World::default();
        world.node("a", sized("4", "8Gi", "10"));
        world.node("b", sized("4", "8Gi", "10"));
        world
    }

    #[test]
    fn the_least_important_pods_go_and_no_more_than_needed() {
        let mut world = two_nodes();
        for (name, priority, cpu, node) in [("a1", 5, "2", "a"), ("a2", 1, "2", "a"), ("b1", 5, "4", "b")] {
            world.snapshot.place(ranked(name, priority, cpu), node);
        }
        assert_eq!(evicted(attempt(&mut world, &ranked("p", 10, "2"))), ("a".into(), vec!["a2".into()]));
    }

    #[test]
    fn budgets_are_kept_where_another_node_allows_it() {
        let mut world = two_nodes();
        world.snapshot.place(ranked("a1", 1, "4"), "a");
        world.snapshot.place(ranked("b1", 5, "4"), "b");
        let selector = LabelSelector::parse("app=a1").unwrap();
        world.snapshot.set_budget(&Key::new("default", "keep"), Some(Budget { selector, allowed: 0, disrupted: Vec::new() }));
        assert_eq!(
            evicted(attempt(&mut world, &ranked("p", 10, "4"))),
            ("b".into(), vec!["b1".into()]),
            "its priority is higher, but no budget breaks"
        );
    }

    #[test]
    fn equals_are_not_evicted() {
        let mut world = two_nodes();
        world.snapshot.place(ranked("a1", 10, "4"), "a");
        world.node("b", sized("1", "1Gi", "10"));
        let Preemption::Not { message, waiting } = attempt(&mut world, &ranked("p", 10, "2")) else { panic!("nobody is less important") };
        let text = "0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.";
        assert_eq!((message.as_str(), waiting), (text, false));
    }

    #[test]
    fn a_pod_may_be_told_not_to_preempt() {
        let mut world = two_nodes();
        world.snapshot.place(ranked("a1", 1, "4"), "a");
        world.snapshot.place(ranked("b1", 1, "4"), "b");
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "4"}}}]);
        let meek = pod("p", json!({"spec": {"priority": 10, "preemptionPolicy": "Never", "containers": containers}}));
        let Preemption::Not { message, .. } = attempt(&mut world, &meek) else { panic!("it may not") };
        assert_eq!(message, "not eligible due to preemptionPolicy=Never.");
    }
}
