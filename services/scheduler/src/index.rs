//! Counts that save a cycle from looking at every pod.
//!
//! ```text
//! Tallies:    selector            -> matching pods per node    (for the new pod's own terms and spread constraints)
//! Demands:    existing pods' term -> pods that hold it, per node (for what running pods demand of a new one)
//! Topologies: label of nodes      -> each node's domain as a small number
//! ```
//!
//! A selector's tally is counted once over all pods and then follows every pod that comes or goes, so pods of one owner share it. Upstream looks at every pod
//! of every node for each pod that it schedules.

use std::collections::HashMap;
use std::sync::Arc;

use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::snapshot::NodeId;
use crate::terms::{Namespaces, PodMatcher, PodTerm};

/// Selectors counted at once. Each costs four bytes per node and a match per pod that comes or goes; the one not asked for longest makes room.
const MAX_TALLIES: usize = 512;

/// Existing pods' required affinity counts this much when nodes are scored: upstream's `hardPodAffinityWeight`.
const HARD_AFFINITY_WEIGHT: i64 = 1;

#[derive(Debug)]
struct Tally {
    matcher: Arc<PodMatcher>,
    counts: Vec<u32>,
    used: u64,
}

#[derive(Debug, Default)]
pub struct Tallies {
    by_key: HashMap<Arc<str>, Tally>,
    tick: u64,
}

impl Tallies {
    /// What is prepared after this call is kept until the next.
    pub fn begin(&mut self) {
        self.tick += 1;
    }

    /// Counts the pods that match, unless that is known.
    pub fn prepare(&mut self, matcher: &Arc<PodMatcher>, nodes: &[NodeInfo], namespaces: &Namespaces) {
        if let Some(tally) = self.by_key.get_mut(&matcher.key) {
            tally.used = self.tick;
            return;
        }
        if self.by_key.len() >= MAX_TALLIES
            && let Some(oldest) = self.by_key.values().min_by_key(|tally| tally.used).filter(|tally| tally.used < self.tick)
        {
            let key = oldest.matcher.key.clone();
            self.by_key.remove(&key);
        }
        let count = |node: &NodeInfo| node.pods.iter().filter(|pod| matcher.matches(pod, namespaces)).count();
        let counts = nodes.iter().map(|node| u32::try_from(count(node)).unwrap_or(u32::MAX)).collect();
        self.by_key.insert(matcher.key.clone(), Tally { matcher: matcher.clone(), counts, used: self.tick });
    }

    /// Matching pods per node; the slice may be shorter than the nodes, which then have none.
    pub fn counts(&self, matcher: &PodMatcher) -> &[u32] {
        self.by_key.get(&matcher.key).map_or(&[], |tally| &tally.counts)
    }

    pub fn add(&mut self, pod: &PodInfo, node: NodeId, namespaces: &Namespaces) {
        for tally in self.by_key.values_mut().filter(|tally| tally.matcher.matches(pod, namespaces)) {
            if tally.counts.len() <= node {
                tally.counts.resize(node + 1, 0);
            }
            tally.counts[node] += 1;
        }
    }

    pub fn remove(&mut self, pod: &PodInfo, node: NodeId, namespaces: &Namespaces) {
        for tally in self.by_key.values_mut().filter(|tally| tally.matcher.matches(pod, namespaces)) {
            if let Some(count) = tally.counts.get_mut(node) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// A namespace's labels are about to change: what reads them is counted anew when it is asked for again.
    pub fn forget_namespace_selectors(&mut self) {
        self.by_key.retain(|_, tally| !tally.matcher.reads_namespace_labels());
    }
}

/// A term that pods on some nodes hold.
#[derive(Debug)]
pub struct Demand {
    pub term: Arc<PodTerm>,
    /// Its weight when nodes are scored; negative for an anti-affinity.
    pub weight: i64,
    /// Pods that hold it, by node.
    pub nodes: HashMap<NodeId, u32>,
}

#[derive(Debug, Default)]
pub struct Demands {
    /// Required anti-affinity.
    pub forbidding: HashMap<Arc<str>, Demand>,
    /// Required affinity and both kinds of preference.
    pub scoring: HashMap<(Arc<str>, i64), Demand>,
}

impl Demands {
    pub fn add(&mut self, pod: &PodInfo, node: NodeId) {
        self.each(pod, |demand| *demand.nodes.entry(node).or_default() += 1);
    }

    pub fn remove(&mut self, pod: &PodInfo, node: NodeId) {
        self.each(pod, |demand| {
            if let Some(count) = demand.nodes.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    demand.nodes.remove(&node);
                }
            }
        });
        for term in &pod.anti_affinity {
            if self.forbidding.get(&term.key).is_some_and(|demand| demand.nodes.is_empty()) {
                self.forbidding.remove(&term.key);
            }
        }
        for (term, weight) in scored_terms(pod) {
            let key = (term.key.clone(), weight);
            if self.scoring.get(&key).is_some_and(|demand| demand.nodes.is_empty()) {
                self.scoring.remove(&key);
            }
        }
    }

    fn each(&mut self, pod: &PodInfo, change: impl Fn(&mut Demand)) {
        let new = |term: &Arc<PodTerm>, weight| Demand { term: term.clone(), weight, nodes: HashMap::new() };
        for term in &pod.anti_affinity {
            change(self.forbidding.entry(term.key.clone()).or_insert_with(|| new(term, 0)));
        }
        for (term, weight) in scored_terms(pod) {
            change(self.scoring.entry((term.key.clone(), weight)).or_insert_with(|| new(term, weight)));
        }
    }
}

fn scored_terms(pod: &PodInfo) -> impl Iterator<Item = (&Arc<PodTerm>, i64)> {
    let required = pod.affinity.iter().map(|term| (term, HARD_AFFINITY_WEIGHT));
    required.chain(pod.preferred_pods.iter().map(|(weight, term, _)| (term, *weight)))
}

/// The domains that a label divides the nodes into.
#[derive(Debug, Default)]
pub struct Topology {
    /// By node; [`Topology::NONE`] where the label is absent.
    domains: Vec<u32>,
    pub len: usize,
}

impl Topology {
    pub const NONE: u32 = u32::MAX;

    pub fn build(label: &str, nodes: &[NodeInfo]) -> Self {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut domains = Vec::with_capacity(nodes.len());
        for node in nodes {
            let value = node.facts.as_ref().and_then(|facts| facts.labels.get(label));
            domains.push(value.map_or(Self::NONE, |value| {
                let next = u32::try_from(numbers.len()).unwrap_or(Self::NONE);
                *numbers.entry(value.as_str()).or_insert(next)
            }));
        }
        Self { domains, len: numbers.len() }
    }

    /// The node's domain, if it has the label.
    pub fn domain(&self, node: NodeId) -> Option<usize> {
        self.domains.get(node).filter(|domain| **domain != Self::NONE).map(|domain| *domain as usize)
    }

    /// Adds up a number per node into one per domain.
    pub fn sum(&self, counts: &[u32]) -> Vec<i64> {
        let mut sums = vec![0; self.len];
        for (count, domain) in counts.iter().zip(&self.domains).filter(|(count, domain)| **count > 0 && **domain != Self::NONE) {
            sums[*domain as usize] += i64::from(*count);
        }
        sums
    }
}
