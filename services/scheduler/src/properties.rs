//! Random worlds: no decision breaks a rule that is computed anew, in the plainest way, from all pods.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::cycle::{Cursor, Decision, decide};
use crate::node::{NodeFacts, tolerates};
use crate::plugins::default_preemption::{Preemption, preempt};
use crate::pod::PodInfo;
use crate::resources::Resources;
use crate::terms::PodTerm;
use crate::testing::{World, node, pod};

struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

const APPS: [&str; 3] = ["x", "y", "z"];

fn random_node(dice: &mut Dice, name: &str) -> Arc<NodeFacts> {
    let mut value = json!({"status": {"allocatable": {
        "cpu": (1 + dice.below(8)).to_string(), "memory": format!("{}Gi", 1 + dice.below(8)), "pods": (1 + dice.below(8)).to_string(),
    }}});
    if !dice.one_in(6) {
        value["metadata"]["labels"]["zone"] = json!(dice.pick(&["a", "b", "c"]));
    }
    value["metadata"]["labels"]["host"] = json!(name);
    if dice.one_in(5) {
        value["spec"]["taints"] =
            json!([{"key": "t", "value": dice.pick(&["1", "2"]), "effect": dice.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"])}]);
    }
    if dice.one_in(10) {
        value["spec"]["unschedulable"] = json!(true);
    }
    node(name, value)
}

fn random_pod(dice: &mut Dice, name: &str) -> Arc<PodInfo> {
    let mut container =
        json!({"name": "c", "resources": {"requests": {"cpu": format!("{}m", 250 * dice.below(8)), "memory": format!("{}Mi", 256 * dice.below(8))}}});
    if dice.one_in(6) {
        container["ports"] = json!([{"containerPort": 1, "hostPort": 80 + dice.below(2), "hostIP": dice.pick(&["", "10.0.0.1"])}]);
    }
    let mut value = json!({
        "metadata": {"namespace": dice.pick(&["one", "two"]), "labels": {"app": dice.pick(&APPS)}},
        "spec": {"priority": dice.below(3), "containers": [container]},
    });
    if dice.one_in(4) {
        value["spec"]["tolerations"] = json!([{"key": "t", "operator": dice.pick(&["Exists", "Equal"]), "value": "1"}]);
    }
    if dice.one_in(5) {
        value["spec"]["nodeSelector"] = json!({"zone": dice.pick(&["a", "b"])});
    }
    let term = |dice: &mut Dice| {
        let mut term = json!({"topologyKey": dice.pick(&["zone", "host"]), "labelSelector": {"matchLabels": {"app": dice.pick(&APPS)}}});
        if dice.one_in(3) {
            term["namespaces"] = json!(["one", "two"]);
        }
        term
    };
    if dice.one_in(5) {
        value["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term(dice)]);
    }
    if dice.one_in(4) {
        value["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term(dice)]);
    }
    if dice.one_in(4) {
        value["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([{"weight": 1 + dice.below(100), "podAffinityTerm": term(dice)}]);
    }
    if dice.one_in(4) {
        value["spec"]["topologySpreadConstraints"] = json!([{
            "maxSkew": 1 + dice.below(2), "topologyKey": dice.pick(&["zone", "host"]), "whenUnsatisfiable": dice.pick(&["DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": {"matchLabels": {"app": dice.pick(&APPS)}}, "minDomains": 1 + dice.below(3),
        }]);
        if value["spec"]["topologySpreadConstraints"][0]["whenUnsatisfiable"] != "DoNotSchedule" {
            value["spec"]["topologySpreadConstraints"][0]["minDomains"] = Value::Null;
        }
    }
    pod(name, value)
}

/// Everything that is true of the cluster, with no index.
#[derive(Default)]
struct Plain {
    nodes: BTreeMap<String, Arc<NodeFacts>>,
    pods: BTreeMap<String, (Arc<PodInfo>, String)>,
}

impl Plain {
    fn fits(&self, pod: &PodInfo, node: &NodeFacts) -> bool {
        let here: Vec<&Arc<PodInfo>> = self.pods.values().filter(|(_, name)| **name == *node.name).map(|(pod, _)| pod).collect();
        let mut total = pod.requests.clone();
        here.iter().for_each(|other| total.add(&other.requests));
        let within = |wanted: i64, total: i64, has: i64| wanted == 0 || total <= has;
        let has: &Resources = &node.allocatable;
        let tolerated = node
            .taints
            .iter()
            .all(|taint| taint.effect == "PreferNoSchedule" || pod.tolerations().iter().any(|toleration| tolerates(toleration, taint)));
        let ports = pod.host_ports.iter().all(|port| here.iter().all(|other| other.host_ports.iter().all(|used| !port.conflicts(used))));
        here.len() < node.allowed_pods
            && within(pod.requests.milli_cpu, total.milli_cpu, has.milli_cpu)
            && within(pod.requests.memory, total.memory, has.memory)
            && !node.unschedulable
            && tolerated
            && ports
            && pod.nodes.matches(&node.name, &node.labels)
            && self.affinity_holds(pod, node)
            && self.spread_holds(pod, node)
    }

    /// Pods in the same domain as `node`, and whether the node has the label.
    fn in_domain<'a>(&'a self, label: &'a str, node: &'a NodeFacts) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        let value = node.labels.get(label);
        let same = move |name: &String| value.is_some() && self.nodes.get(name).is_some_and(|other| other.labels.get(label) == value);
        self.pods.values().filter(move |(_, name)| same(name)).map(|(pod, _)| pod)
    }

    fn affinity_holds(&self, pod: &PodInfo, node: &NodeFacts) -> bool {
        let none = HashMap::new();
        let all = |other: &PodInfo| pod.affinity.iter().all(|term| term.matches(other, &none));
        let labelled = |name: &String, term: &PodTerm| self.nodes.get(name).is_some_and(|node| node.labels.contains_key(&term.topology_key));
        let nobody = !self.pods.values().any(|(other, name)| all(other) && pod.affinity.iter().any(|term| labelled(name, term)));
        let near = pod.affinity.iter().all(|term| {
            node.labels.contains_key(&term.topology_key) && ((nobody && all(pod)) || self.in_domain(&term.topology_key, node).any(|other| all(other)))
        });
        let far = pod.anti_affinity.iter().all(|term| !self.in_domain(&term.topology_key, node).any(|other| term.matches(other, &none)));
        let allowed = self.pods.values().all(|(other, _)| {
            other
                .anti_affinity
                .iter()
                .all(|term| !(term.matches(pod, &none) && self.in_domain(&term.topology_key, node).any(|there| there.key == other.key)))
        });
        near && far && allowed
    }

    fn spread_holds(&self, pod: &PodInfo, node: &NodeFacts) -> bool {
        let none = HashMap::new();
        let complete = |node: &NodeFacts| pod.hard_spread.iter().all(|spread| node.labels.contains_key(&spread.term.topology_key));
        pod.hard_spread.iter().all(|spread| {
            let key = &spread.term.topology_key;
            let mut domains: BTreeMap<&str, i64> = BTreeMap::new();
            for (name, other) in self.nodes.iter().filter(|(name, other)| complete(other) && pod.nodes.matches(name, &other.labels)) {
                let count = self.pods.values().filter(|(pod, on)| on == name && spread.term.matches(pod, &none)).count();
                *domains.entry(&other.labels[key]).or_default() += count as i64;
            }
            let least = if domains.len() < spread.min_domains { 0 } else { domains.values().copied().min().unwrap_or(0) };
            let own = i64::from(spread.term.matches(pod, &none));
            node.labels.get(key).is_some_and(|value| domains.get(value.as_str()).copied().unwrap_or(0) + own - least <= spread.max_skew)
        })
    }
}

#[test]
fn decisions_agree_with_the_rules_computed_anew() {
    let (mut placed, mut refused, mut evictions) = (0, 0, 0);
    for seed in 0..80 {
        let mut dice = Dice(seed * 7_919 + 1);
        let (mut world, mut plain, mut cursor) = (World::default(), Plain::default(), Cursor::default());
        for i in 0..3 + dice.below(6) {
            let name = format!("n{i}");
            let facts = random_node(&mut dice, &name);
            world.snapshot.set_node(&name, Some(facts.clone()));
            plain.nodes.insert(name, facts);
        }
        for i in 0..40 {
            match dice.below(12) {
                // A pod goes, a node changes or goes and comes back.
                0 | 1 if !plain.pods.is_empty() => {
                    let at = dice.below(plain.pods.len() as u64) as usize;
                    let name = plain.pods.keys().nth(at).unwrap().clone();
                    let (gone, _) = plain.pods.remove(&name).unwrap();
                    world.snapshot.remove(&gone.key);
                }
                2 => {
                    let name = format!("n{}", dice.below(3));
                    if dice.one_in(2) {
                        world.snapshot.set_node(&name, None);
                    }
                    let facts = random_node(&mut dice, &name);
                    world.snapshot.set_node(&name, Some(facts.clone()));
                    plain.nodes.insert(name, facts);
                }
                _ => {
                    let wanted = random_pod(&mut dice, &format!("p{i}"));
                    let fitting: Vec<&str> = plain.nodes.values().filter(|node| plain.fits(&wanted, node)).map(|node| &*node.name).collect();
                    match decide(&wanted, &mut world.snapshot, &mut cursor, dice.below(1_000)) {
                        Decision::Fits(node) => {
                            assert!(fitting.contains(&&*node), "seed {seed}: {} on {node}, but only {fitting:?} fit", wanted.key);
                            world.snapshot.place(wanted.clone(), &node);
                            plain.pods.insert(wanted.key.to_string(), (wanted, node.to_string()));
                            placed += 1;
                        }
                        Decision::Unschedulable(diagnosis) => {
                            assert!(fitting.is_empty(), "seed {seed}: {} fits {fitting:?}, but: {diagnosis}", wanted.key);
                            refused += 1;
                            if let Preemption::Evict { node, victims } = preempt(&wanted, &mut world.snapshot, &diagnosis, seed) {
                                let mut after = Plain { nodes: plain.nodes.clone(), pods: plain.pods.clone() };
                                for victim in &victims {
                                    assert!(victim.priority < wanted.priority, "seed {seed}");
                                    let (_, on) = after.pods.remove(&victim.key.to_string()).unwrap();
                                    assert_eq!(*on, *node, "seed {seed}: victims run on the node that is to be made free");
                                }
                                assert!(after.fits(&wanted, &after.nodes[&*node]), "seed {seed}: {} does not fit {node} after all", wanted.key);
                                evictions += 1;
                            }
                        }
                    }
                }
            }
            world.snapshot.check();
        }
    }
    assert!(placed > 300 && refused > 100 && evictions > 20, "the worlds are worth it: {placed} placed, {refused} refused, {evictions} evictions");
}
