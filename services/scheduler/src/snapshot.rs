//! The cluster as a cycle sees it: nodes with what their pods use, kept up to date change by change.
//!
//! A pod that was given a node counts there at once ("assumed"), before its binding is written and seen; if the binding fails it is taken out again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use wheelhouse_kinds::owned;
use wheelhouse_kinds::view::Key;
use wheelhouse_meta::selector::{LabelSelector, Operator, Requirement};

use crate::index::{Demands, Tallies, Topology};
use crate::node::{NodeFacts, NodeInfo};
use crate::pod::PodInfo;
use crate::terms::{Namespaces, PodMatcher};

/// A node's place in [`Snapshot`]; reused after the node is gone.
pub type NodeId = usize;

type Labels = BTreeMap<String, String>;

/// A PodDisruptionBudget as preemption reads it.
#[derive(Debug)]
pub struct Budget {
    pub selector: LabelSelector,
    pub allowed: i32,
    /// Pods whose eviction is under way and already counted.
    pub disrupted: Vec<String>,
}

struct Placed {
    node: NodeId,
    pod: Arc<PodInfo>,
    assumed: bool,
}

#[derive(Default)]
pub struct Snapshot {
    nodes: Vec<NodeInfo>,
    /// When each node came, for an order that does not depend on names.
    arrivals: Vec<u64>,
    arrived: u64,
    free: Vec<NodeId>,
    ids: HashMap<Arc<str>, NodeId>,
    order: Option<Arc<[NodeId]>>,
    placed: HashMap<Key, Placed>,
    nominated: HashMap<String, BTreeMap<Key, Arc<PodInfo>>>,
    namespaces: Namespaces,
    /// Selectors of services, by namespace and name.
    services: HashMap<Arc<str>, BTreeMap<Arc<str>, Labels>>,
    /// Selectors of workloads that own pods, by kind and key.
    owners: HashMap<(&'static str, Key), LabelSelector>,
    budgets: BTreeMap<Key, Budget>,
    /// On how many nodes an image is.
    image_nodes: HashMap<String, usize>,
    tallies: Tallies,
    demands: Demands,
    topologies: HashMap<String, Arc<Topology>>,
}

impl Snapshot {
    pub fn node(&self, id: NodeId) -> &NodeInfo {
        &self.nodes[id]
    }

    pub fn facts(&self, id: NodeId) -> &NodeFacts {
        self.nodes[id].facts.as_ref().expect("only nodes with an object are in the order that ids are taken from")
    }

    pub fn id(&self, name: &str) -> Option<NodeId> {
        self.ids.get(name).copied().filter(|id| self.nodes[*id].facts.is_some())
    }

    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    pub fn demands(&self) -> &Demands {
        &self.demands
    }

    pub fn budgets(&self) -> impl Iterator<Item = (&Key, &Budget)> {
        self.budgets.iter()
    }

    pub fn image_nodes(&self, image: &str) -> usize {
        self.image_nodes.get(image).copied().unwrap_or(0)
    }

    /// All nodes, one zone after another in turn, so that looking at the first so many spreads over zones.
    pub fn order(&mut self) -> Arc<[NodeId]> {
        if let Some(order) = &self.order {
            return order.clone();
        }
        let mut ids: Vec<NodeId> = (0..self.nodes.len()).filter(|id| self.nodes[*id].facts.is_some()).collect();
        ids.sort_unstable_by_key(|id| self.arrivals[*id]);
        let mut zones: Vec<Vec<NodeId>> = Vec::new();
        let mut known: HashMap<(&str, &str), usize> = HashMap::new();
        for id in ids {
            let zone = *known.entry(self.facts(id).zone()).or_insert_with(|| {
                zones.push(Vec::new());
                zones.len() - 1
            });
            zones[zone].push(id);
        }
        let longest = zones.iter().map(Vec::len).max().unwrap_or(0);
        let order: Arc<[NodeId]> = (0..longest).flat_map(|turn| zones.iter().filter_map(move |zone| zone.get(turn).copied())).collect();
        self.order = Some(order.clone());
        order
    }

    /// Sets what a node's object says, or that it is gone; answers what was said before.
    pub fn set_node(&mut self, name: &str, facts: Option<Arc<NodeFacts>>) -> Option<Arc<NodeFacts>> {
        if facts.is_none() && !self.ids.contains_key(name) {
            return None;
        }
        let id = self.slot(name);
        let old = std::mem::replace(&mut self.nodes[id].facts, facts.clone());
        if old.is_none() && facts.is_some() {
            self.arrived += 1;
            self.arrivals[id] = self.arrived;
        }
        let labels = |facts: &Option<Arc<NodeFacts>>| facts.as_ref().map(|facts| facts.labels.clone());
        if labels(&old) != labels(&facts) {
            self.order = None;
            self.topologies.clear();
        }
        for image in old.iter().flat_map(|facts| facts.images.keys()) {
            if let Some(count) = self.image_nodes.get_mut(image) {
                *count -= 1;
                if *count == 0 {
                    self.image_nodes.remove(image);
                }
            }
        }
        for image in facts.iter().flat_map(|facts| facts.images.keys()) {
            *self.image_nodes.entry(image.clone()).or_default() += 1;
        }
        self.release(id);
        old
    }

    fn slot(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let name: Arc<str> = Arc::from(name);
        let node = NodeInfo { name: name.clone(), ..NodeInfo::default() };
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.arrivals.push(0);
                self.nodes.len() - 1
            }
        };
        self.ids.insert(name, id);
        id
    }

    fn release(&mut self, id: NodeId) {
        if self.nodes[id].facts.is_none() && self.nodes[id].pods.is_empty() && self.ids.remove(&self.nodes[id].name).is_some() {
            self.free.push(id);
        }
    }

    /// Counts a pod on a node, instead of wherever it counted before.
    pub fn place(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.put(pod, node, false);
    }

    /// As [`Snapshot::place`], until the binding is seen or fails.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.put(pod, node, true);
    }

    fn put(&mut self, pod: Arc<PodInfo>, node: &str, assumed: bool) {
        self.remove(&pod.key);
        let id = self.slot(node);
        self.tallies.add(&pod, id, &self.namespaces);
        self.demands.add(&pod, id);
        self.nodes[id].add(pod.clone());
        self.placed.insert(pod.key.clone(), Placed { node: id, pod, assumed });
    }

    /// Takes a pod off its node; answers it with the node's name.
    pub fn remove(&mut self, key: &Key) -> Option<(Arc<PodInfo>, Arc<str>)> {
        let placed = self.placed.remove(key)?;
        let name = self.nodes[placed.node].name.clone();
        self.tallies.remove(&placed.pod, placed.node, &self.namespaces);
        self.demands.remove(&placed.pod, placed.node);
        self.nodes[placed.node].remove(key);
        self.release(placed.node);
        Some((placed.pod, name))
    }

    pub fn placed(&self, key: &Key) -> Option<&Arc<PodInfo>> {
        self.placed.get(key).map(|placed| &placed.pod)
    }

    pub fn is_assumed(&self, key: &Key) -> bool {
        self.placed.get(key).is_some_and(|placed| placed.assumed)
    }

    /// Notes that a pod without a node is promised room on one, which its victims are making.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.nominated.entry(node.to_owned()).or_default().insert(pod.key.clone(), pod);
    }

    pub fn withdraw_nomination(&mut self, key: &Key) {
        self.nominated.retain(|_, pods| {
            pods.remove(key);
            !pods.is_empty()
        });
    }

    /// The node that a pod was nominated for here, unless the pod's status already said so.
    pub fn unconfirmed_nomination(&self, key: &Key) -> Option<String> {
        let mut nominations = self.nominated.iter();
        nominations.find_map(|(node, pods)| pods.get(key).filter(|pod| pod.nominated_node().is_empty()).map(|_| node.clone()))
    }

    /// Pods promised room on a node that come no later than one of `priority`; `except` is left out.
    pub fn nominated(&self, node: &str, priority: i32, except: &Key) -> Vec<Arc<PodInfo>> {
        let pods = self.nominated.get(node).into_iter().flat_map(BTreeMap::values);
        pods.filter(|pod| pod.priority >= priority && pod.key != *except).cloned().collect()
    }

    pub fn has_nominations(&self) -> bool {
        !self.nominated.is_empty()
    }

    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) -> bool {
        if self.namespaces.get(name) == labels.as_ref() {
            return false;
        }
        self.tallies.forget_namespace_selectors();
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        true
    }

    pub fn set_service(&mut self, key: &Key, selector: Option<BTreeMap<String, String>>) {
        let services = self.services.entry(key.namespace.clone()).or_default();
        match selector.filter(|selector| !selector.is_empty()) {
            Some(selector) => services.insert(key.name.clone(), selector),
            None => services.remove(&key.name),
        };
        if services.is_empty() {
            self.services.remove(&key.namespace);
        }
    }

    /// `kind` is `ReplicaSet`, `StatefulSet` or `ReplicationController`.
    pub fn set_owner(&mut self, kind: &'static str, key: &Key, selector: Option<LabelSelector>) {
        match selector {
            Some(selector) => self.owners.insert((kind, key.clone()), selector),
            None => self.owners.remove(&(kind, key.clone())),
        };
    }

    pub fn set_budget(&mut self, key: &Key, budget: Option<Budget>) {
        match budget {
            Some(budget) => self.budgets.insert(key.clone(), budget),
            None => self.budgets.remove(key),
        };
    }

    /// What a pod's services and its owner select, merged: the pods that it is spread among by default. `None` when nothing selects it.
    pub fn default_selector(&self, pod: &PodInfo) -> Option<LabelSelector> {
        let labels = pod.labels();
        let mut merged: BTreeMap<&str, &str> = BTreeMap::new();
        for selector in self.services.get(&pod.key.namespace).into_iter().flat_map(BTreeMap::values) {
            if selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value)) {
                merged.extend(selector.iter().map(|(key, value)| (key.as_str(), value.as_str())));
            }
        }
        let equal = |(key, value): (&str, &str)| Requirement::new(key, Operator::Equals, vec![value.to_owned()]).ok();
        let mut requirements: Vec<Requirement> = merged.into_iter().filter_map(equal).collect();
        if let Some(owner) = owned::controller_of(&pod.pod.metadata)
            && let Some(kind) = ["ReplicaSet", "StatefulSet", "ReplicationController"].into_iter().find(|kind| *kind == owner.kind)
            && let Some(selector) = self.owners.get(&(kind, Key::new(pod.key.namespace.clone(), owner.name.as_str())))
        {
            requirements
                .extend(selector.requirements().iter().filter(|requirement| !requirements.contains(requirement)).cloned().collect::<Vec<_>>());
        }
        (!requirements.is_empty()).then(|| LabelSelector::from_requirements(requirements))
    }

    /// Makes the counts and domains ready that a cycle is going to read. What an earlier call made may be dropped.
    pub fn prepare<'a>(&mut self, matchers: impl IntoIterator<Item = &'a Arc<PodMatcher>>, labels: impl IntoIterator<Item = &'a str>) {
        self.tallies.begin();
        for matcher in matchers {
            self.tallies.prepare(matcher, &self.nodes, &self.namespaces);
        }
        let demanded: Vec<String> = {
            let demands = self.demands.forbidding.values().chain(self.demands.scoring.values());
            demands.map(|demand| &demand.term.topology_key).filter(|label| !self.topologies.contains_key(*label)).cloned().collect()
        };
        for label in labels.into_iter().map(str::to_owned).chain(demanded) {
            if !self.topologies.contains_key(&label) {
                let topology = Arc::new(Topology::build(&label, &self.nodes));
                self.topologies.insert(label, topology);
            }
        }
    }

    /// Matching pods per node; see [`Snapshot::prepare`].
    pub fn counts(&self, matcher: &PodMatcher) -> &[u32] {
        self.tallies.counts(matcher)
    }

    /// The domains of a label; see [`Snapshot::prepare`].
    pub fn topology(&self, label: &str) -> Arc<Topology> {
        self.topologies.get(label).cloned().unwrap_or_default()
    }

    /// Checks the counts against what the pods say. For tests.
    #[cfg(test)]
    pub fn check(&self) {
        use crate::resources::Resources;
        for (id, node) in self.nodes.iter().enumerate() {
            let mut requested = Resources::default();
            node.pods.iter().for_each(|pod| requested.add(&pod.requests));
            requested.scalar.retain(|(_, amount)| *amount != 0);
            assert_eq!(node.requested, requested, "requests of node {}", node.name);
            assert_eq!(node.host_ports.len(), node.pods.iter().map(|pod| pod.host_ports.len()).sum::<usize>());
            for pod in &node.pods {
                assert_eq!(self.placed.get(&pod.key).map(|placed| placed.node), Some(id));
            }
        }
        assert_eq!(self.placed.len(), self.nodes.iter().map(|node| node.pods.len()).sum::<usize>());
        let anti: usize = self.placed.values().map(|placed| placed.pod.anti_affinity.len()).sum();
        let held: u32 = self.demands.forbidding.values().flat_map(|demand| demand.nodes.values()).sum();
        assert_eq!(anti, held as usize, "demands of pods");
    }
}
