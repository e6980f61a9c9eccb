//! The planner.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use wheelhouse_kinds::validation::selects;
use wheelhouse_net::{Chain, Cidr, Family, Ruleset, Set};

use crate::policy::{PodFacts, TABLE};

/// Everything that rules follow from.
pub struct World<'a> {
    pub policies: Vec<&'a NetworkPolicy>,
    /// Of the whole cluster: any may be a peer.
    pub pods: Vec<&'a PodFacts>,
    /// Labels of namespaces by name.
    pub namespaces: &'a BTreeMap<String, Option<BTreeMap<String, String>>>,
    pub node: &'a str,
    /// Where DNS is served on this node.
    pub dns: &'a [IpAddr],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    fn word(self) -> &'static str {
        match self {
            Direction::Ingress => "Ingress",
            Direction::Egress => "Egress",
        }
    }

    fn map(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }

    /// The side of a packet that the peer is on, and the pod's own.
    fn sides(self) -> (&'static str, &'static str) {
        match self {
            Direction::Ingress => ("saddr", "daddr"),
            Direction::Egress => ("daddr", "saddr"),
        }
    }
}

/// One rule's peers and ports, whichever direction it is of.
struct Rule<'a> {
    namespace: &'a str,
    peers: &'a [NetworkPolicyPeer],
    ports: &'a [NetworkPolicyPort],
}

/// The tables for IPv4 and IPv6.
pub fn plan(world: &World<'_>) -> [Ruleset; 2] {
    Family::BOTH.map(|family| Planner { world, family, ruleset: frame(family, world.dns) }.plan())
}

fn frame(family: Family, dns: &[IpAddr]) -> Ruleset {
    let (ip, address) = (family.keyword(), family.address_type());
    let mut frame = Ruleset::new(format!("{ip} {TABLE}"));
    for direction in [Direction::Ingress, Direction::Egress] {
        frame.sets.insert(direction.map().into(), Set::map(format!("type {address} : verdict;")));
    }
    let mut names = Set::plain(format!("type {address};"));
    names.elements = dns.iter().filter(|ip| Family::of(ip) == family).map(|ip| (ip.to_string(), String::new())).collect();
    frame.sets.insert("dns".into(), names);
    let known = "ct state established,related accept".to_owned();
    let egress = || format!("{ip} saddr vmap @egress");
    let dns = format!("{ip} daddr @dns meta l4proto {{ tcp, udp }} th dport 53 accept");
    frame.chains.insert(
        "forward".into(),
        Chain::base("type filter hook forward priority -5; policy accept;", [known.clone(), egress(), format!("{ip} daddr vmap @ingress")]),
    );
    // To the node itself only what pods send is looked at.
    frame.chains.insert("input".into(), Chain::base("type filter hook input priority -5; policy accept;", [known, dns, egress()]));
    frame
}

struct Planner<'a> {
    world: &'a World<'a>,
    family: Family,
    ruleset: Ruleset,
}

impl<'a> Planner<'a> {
    fn plan(mut self) -> Ruleset {
        let world = self.world;
        for pod in world.pods.iter().filter(|pod| pod.node == world.node) {
            let addresses: Vec<IpAddr> = self.addresses_of(pod).collect();
            if addresses.is_empty() {
                continue;
            }
            let selecting: Vec<(&'a str, &'a NetworkPolicySpec)> = world.policies.iter().filter_map(|policy| selected_by(policy, pod)).collect();
            for direction in [Direction::Ingress, Direction::Egress] {
                if selecting.iter().any(|(_, spec)| applies(spec, direction)) {
                    self.isolate(pod, &addresses, &selecting, direction);
                }
            }
        }
        self.ruleset
    }

    fn addresses_of(&self, pod: &'a PodFacts) -> impl Iterator<Item = IpAddr> + use<'a> {
        let family = self.family;
        pod.addresses.iter().copied().filter(move |address| Family::of(address) == family)
    }

    fn isolate(&mut self, pod: &PodFacts, addresses: &[IpAddr], selecting: &[(&'a str, &'a NetworkPolicySpec)], direction: Direction) {
        let ip = self.family.keyword();
        let (peer_side, _) = direction.sides();
        let mut rules: Vec<String> = addresses.iter().map(|address| format!("{ip} {peer_side} {address} return")).collect();
        for (namespace, spec) in selecting.iter().filter(|(_, spec)| applies(spec, direction)) {
            for rule in rules_of(namespace, spec, direction) {
                self.allow(&rule, pod, direction, &mut rules);
            }
        }
        // Equal rules of several policies add nothing; the order does not matter, since all of them allow.
        let mut seen = BTreeSet::new();
        rules.retain(|rule| seen.insert(rule.clone()));
        rules.push("drop".to_owned());
        let chain = format!("{}-{:016x}", direction.map(), fnv1a(&format!("{}/{}", pod.namespace, pod.name)));
        let map = self.ruleset.sets.get_mut(direction.map()).expect("the frame has both maps");
        map.elements.extend(addresses.iter().map(|address| (address.to_string(), format!("jump {chain}"))));
        self.ruleset.chains.insert(chain, Chain::plain(rules));
    }

    /// The rules for every pair of a peer and a port.
    fn allow(&mut self, rule: &Rule<'a>, pod: &PodFacts, direction: Direction, out: &mut Vec<String>) {
        let ip = self.family.keyword();
        let (side, _) = direction.sides();
        let peers: Vec<(String, Option<Vec<&'a PodFacts>>)> = match rule.peers {
            [] => vec![(String::new(), None)],
            peers => peers.iter().filter_map(|peer| self.peer(peer, rule.namespace, side)).collect(),
        };
        for (peer, peer_pods) in peers {
            if rule.ports.is_empty() {
                out.push(format!("{peer}return"));
            }
            for port in rule.ports {
                let protocol = port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
                match &port.port {
                    None => out.push(format!("{peer}meta l4proto {protocol} return")),
                    Some(IntOrString::Int(first)) => {
                        let range = port.end_port.map(|last| format!("-{last}")).unwrap_or_default();
                        out.push(format!("{peer}meta l4proto {protocol} th dport {first}{range} return"));
                    }
                    // The name is the destination's: this pod's, or that of each peer.
                    Some(IntOrString::String(name)) if direction == Direction::Ingress => {
                        let ports = pod.ports.iter().filter(|known| known.name == *name && known.protocol == protocol);
                        out.extend(ports.map(|known| format!("{peer}meta l4proto {protocol} th dport {} return", known.port)));
                    }
                    Some(IntOrString::String(name)) => {
                        let pods = peer_pods.clone().unwrap_or_else(|| self.world.pods.clone());
                        let set = self.named_ports(&pods, name, &protocol);
                        out.push(format!("{ip} daddr . meta l4proto . th dport @{set} return"));
                    }
                }
            }
        }
    }

    /// What matches a peer, with a space behind it; and the pods that it stands for. None for one of the other family.
    fn peer(&mut self, peer: &NetworkPolicyPeer, namespace: &str, side: &str) -> Option<(String, Option<Vec<&'a PodFacts>>)> {
        let ip = self.family.keyword();
        if let Some(block) = &peer.ip_block {
            let network: Cidr = block.cidr.parse().ok().filter(|network: &Cidr| network.family() == self.family)?;
            let mut text = format!("{ip} {side} {network} ");
            for except in block.except.iter().flatten().filter_map(|text| text.parse::<Cidr>().ok()) {
                text.push_str(&format!("{ip} {side} != {except} "));
            }
            return Some((text, Some(Vec::new())));
        }
        let pods: Vec<&'a PodFacts> = self.world.pods.iter().copied().filter(|pod| self.is_peer(pod, peer, namespace)).collect();
        let set = self.peer_set(&pods, peer, namespace);
        Some((format!("{ip} {side} @{set} "), Some(pods)))
    }

    fn is_peer(&self, pod: &PodFacts, peer: &NetworkPolicyPeer, namespace: &str) -> bool {
        let right_namespace = match &peer.namespace_selector {
            None => pod.namespace == namespace,
            Some(selector) => self.world.namespaces.get(&pod.namespace).is_some_and(|labels| selects(selector, labels)),
        };
        right_namespace && peer.pod_selector.as_ref().is_none_or(|selector| selects(selector, &pod.labels))
    }

    /// A set named after the selectors, so that it keeps its name while its elements change.
    fn peer_set(&mut self, pods: &[&'a PodFacts], peer: &NetworkPolicyPeer, namespace: &str) -> String {
        let scope = if peer.namespace_selector.is_some() { "" } else { namespace };
        let selectors = (scope, selector_text(&peer.namespace_selector), selector_text(&peer.pod_selector));
        let name = format!("peers-{:016x}", fnv1a(&format!("{selectors:?}")));
        let mut set = Set::plain(format!("type {};", self.family.address_type()));
        set.elements = pods.iter().flat_map(|pod| self.addresses_of(pod)).map(|address| (address.to_string(), String::new())).collect();
        self.ruleset.sets.insert(name.clone(), set);
        name
    }

    fn named_ports(&mut self, pods: &[&'a PodFacts], port: &str, protocol: &str) -> String {
        let mut set = Set::plain(format!("type {} . inet_proto . inet_service;", self.family.address_type()));
        for pod in pods {
            let ports = pod.ports.iter().filter(|known| known.name == port && known.protocol == protocol);
            for known in ports {
                set.elements.extend(self.addresses_of(pod).map(|address| (format!("{address} . {protocol} . {}", known.port), String::new())));
            }
        }
        // Named after its elements: which pods a name leads to is part of what it means.
        let name = format!("ports-{:016x}", fnv1a(&format!("{port}/{protocol}/{:?}", set.elements.keys().collect::<Vec<_>>())));
        self.ruleset.sets.insert(name.clone(), set);
        name
    }
}

fn selected_by<'a>(policy: &'a NetworkPolicy, pod: &PodFacts) -> Option<(&'a str, &'a NetworkPolicySpec)> {
    let (namespace, spec) = (policy.metadata.namespace.as_deref()?, policy.spec.as_ref()?);
    // An absent selector is an empty one, which selects every pod of the namespace.
    let selected = namespace == pod.namespace && spec.pod_selector.as_ref().is_none_or(|selector| selects(selector, &pod.labels));
    selected.then_some((namespace, spec))
}

fn applies(spec: &NetworkPolicySpec, direction: Direction) -> bool {
    match spec.policy_types.as_deref() {
        Some(types) if !types.is_empty() => types.iter().any(|word| word == direction.word()),
        // What the API server fills in.
        _ => direction == Direction::Ingress || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
    }
}

fn rules_of<'a>(namespace: &'a str, spec: &'a NetworkPolicySpec, direction: Direction) -> Vec<Rule<'a>> {
    match direction {
        Direction::Ingress => spec
            .ingress
            .iter()
            .flatten()
            .map(|rule| Rule { namespace, peers: rule.from.as_deref().unwrap_or_default(), ports: rule.ports.as_deref().unwrap_or_default() })
            .collect(),
        Direction::Egress => spec
            .egress
            .iter()
            .flatten()
            .map(|rule| Rule { namespace, peers: rule.to.as_deref().unwrap_or_default(), ports: rule.ports.as_deref().unwrap_or_default() })
            .collect(),
    }
}

fn selector_text(selector: &Option<LabelSelector>) -> String {
    selector.as_ref().map(|selector| format!("{:?} {:?}", selector.match_labels, selector.match_expressions)).unwrap_or_default()
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
