//! Rules as data: the constant frame of a family's table, and the elements and chains that one service asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use wheelhouse_net::{Chain, Cidr, Family, Ruleset, Set};

use crate::chains::{LOCAL_BIT, LOCAL_SLOTS, MASQUERADE_BIT, Pool, SharedChain};
use crate::facts::{Protocol, ServiceFacts};
use crate::resolve::ResolvedPort;

/// Endpoints of a service with session affinity: their ids must fit below [`LOCAL_BIT`] with room for probing. Those beyond it are left out.
const MAX_STICKY_ENDPOINTS: usize = 4096;

/// Endpoints of any one port. Slots of all endpoints end where those of local ones begin.
const MAX_ENDPOINTS: usize = LOCAL_SLOTS as usize;

/// Clients that are remembered over all services with affinity. When it is full, more clients are spread at random.
const MAX_CLIENTS: u32 = 65_536;

/// A port's id between its lookups: unique on this node, neither 0 nor all ones, which nftables prints as words.
pub type PortId = u32;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    pub set: &'static str,
    pub key: String,
    pub value: String,
}

/// What a port of a service contributes to its family's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    pub elements: BTreeSet<Element>,
    pub chains: BTreeSet<SharedChain>,
}

/// The table without any service. `pods` are the networks of all pods of the cluster, in CIDR notation.
pub fn frame(family: Family, pods: &[String]) -> Ruleset {
    let ip = family.keyword();
    let address = family.address_type();
    let mut frame = Ruleset::new(format!("{ip} {}", crate::TABLE));
    let flags = "flags dynamic, timeout;";
    let sets = [
        ("services", Set::map(format!("type {address} . inet_proto . inet_service : verdict;"))),
        ("service-ids", Set::map(format!("type {address} . inet_proto . inet_service : classid;"))),
        ("node-ports", Set::map("type inet_proto . inet_service : verdict;")),
        ("node-port-ids", Set::map("type inet_proto . inet_service : classid;")),
        ("affinity", Set::map(format!("type {address} . classid : mark; size {MAX_CLIENTS}; {flags}"))),
        ("affinity-ids", Set::map("typeof meta priority . numgen random mod 2 : meta mark;")),
        ("affinity-endpoints", Set::map(format!("type classid . mark : {address} . inet_service;"))),
        ("cluster-ips", Set::plain(format!("type {address};"))),
        ("no-endpoints", Set::plain(format!("type {address} . inet_proto . inet_service;"))),
        ("no-endpoints-node-ports", Set::plain("type inet_proto . inet_service;")),
        ("hairpin", Set::plain(format!("type {address} . {address};"))),
        ("restricted", Set::plain(format!("type {address} . inet_proto . inet_service;"))),
        ("allowed-sources", Set::plain(format!("type {address} . inet_proto . inet_service . {address}; flags interval;"))),
        (
            "pods",
            Set {
                elements: pods.iter().map(|cidr| (cidr.clone(), String::new())).collect(),
                ..Set::plain(format!("type {address}; flags interval;"))
            },
        ),
    ];
    frame.sets.extend(sets.map(|(name, set)| (name.to_owned(), set)));
    for protocol in Protocol::ALL {
        let declaration = format!("typeof meta priority . numgen random mod 2 : {ip} daddr . {} dport;", protocol.keyword());
        frame.sets.insert(protocol.endpoints_map().to_owned(), Set::map(declaration));
    }
    let target = format!("{ip} daddr . meta l4proto . th dport");
    let node_port = format!("fib daddr type local {ip} daddr != {}", family.loopback());
    let clean_mark =
        format!("ct state new ct status dnat meta mark & {:#x} != 0 meta mark set meta mark & {:#x}", MASQUERADE_BIT - 1, !(MASQUERADE_BIT - 1));
    let chains = [
        // Lookups that miss end their rule, not the chain.
        (
            "dispatch",
            "",
            vec![
                format!("meta priority set {target} map @service-ids"),
                format!("{target} vmap @services"),
                format!("{node_port} meta priority set meta l4proto . th dport map @node-port-ids"),
                format!("{node_port} meta l4proto . th dport vmap @node-ports"),
            ],
        ),
        (
            "refuse",
            "",
            // A reset tells every caller at once; of "port unreachable" the kernel sends one a second to each. The last pair is for ports that a service
            // does not have, and for ping.
            [
                format!("{target} @no-endpoints"),
                format!("{node_port} meta l4proto . th dport @no-endpoints-node-ports"),
                format!("{ip} daddr @cluster-ips"),
            ]
            .into_iter()
            .flat_map(|what| [format!("{what} meta l4proto tcp reject with tcp reset"), format!("{what} reject")])
            .collect(),
        ),
        ("nat-prerouting", "type nat hook prerouting priority dstnat; policy accept;", vec!["jump dispatch".to_owned()]),
        ("nat-output", "type nat hook output priority -100; policy accept;", vec!["jump dispatch".to_owned()]),
        (
            "nat-postrouting",
            "type nat hook postrouting priority srcnat; policy accept;",
            vec![
                format!("meta mark & {MASQUERADE_BIT:#x} != 0 meta mark set meta mark & {:#x} masquerade fully-random", !MASQUERADE_BIT),
                // A pod that calls its own service must not see its own address as the caller's.
                format!("ct status dnat {ip} saddr . {ip} daddr @hairpin masquerade fully-random"),
            ],
        ),
        ("clean-prerouting", "type filter hook prerouting priority -95; policy accept;", vec![clean_mark.clone()]),
        ("clean-output", "type filter hook output priority -95; policy accept;", vec![clean_mark]),
        (
            "source-ranges",
            "type filter hook prerouting priority -110; policy accept;",
            vec![format!("{target} @restricted {target} . {ip} saddr != @allowed-sources drop")],
        ),
        ("filter-input", "type filter hook input priority filter; policy accept;", vec!["ct state new jump refuse".to_owned()]),
        ("filter-forward", "type filter hook forward priority filter; policy accept;", vec!["ct state new jump refuse".to_owned()]),
        ("filter-output", "type filter hook output priority filter; policy accept;", vec!["ct state new jump refuse".to_owned()]),
    ];
    frame.chains.extend(chains.map(|(name, hook, rules)| (name.to_owned(), Chain { hook: hook.to_owned(), rules })));
    frame
}

/// Elements and chains of one port. `own` are addresses that this node itself answers at (DNS): they get no rules.
pub fn fragment(service: &ServiceFacts, resolved: &ResolvedPort, id: PortId, own: &BTreeSet<IpAddr>) -> Fragment {
    let mut out = Fragment::default();
    let cluster = &resolved.cluster[..resolved.cluster.len().min(limit(service))];
    let local = &resolved.local[..resolved.local.len().min(limit(service))];
    let frontends = Frontends::of(service, resolved, own);
    if frontends.is_empty() {
        return out;
    }
    for ip in &frontends.cluster_ips {
        out.set("cluster-ips", ip.to_string());
    }
    out.frontends(service, resolved, &frontends, (count(cluster), count(local)), id);
    out.source_ranges(service, resolved, &frontends);
    if service.affinity.is_some() {
        out.affinity(id, cluster, local);
    } else {
        let map = resolved.port.protocol.endpoints_map();
        out.slots(map, id, 0, cluster.iter().map(destination));
        out.slots(map, id, LOCAL_SLOTS, local.iter().map(destination));
    }
    for endpoint in &resolved.on_this_node {
        out.set("hairpin", format!("{ip} . {ip}", ip = endpoint.ip()));
    }
    out
}

fn limit(service: &ServiceFacts) -> usize {
    if service.affinity.is_some() { MAX_STICKY_ENDPOINTS } else { MAX_ENDPOINTS }
}

fn count(endpoints: &[SocketAddr]) -> u32 {
    u32::try_from(endpoints.len()).expect("endpoints were cut to MAX_ENDPOINTS")
}

fn destination(endpoint: &SocketAddr) -> String {
    format!("{} . {}", endpoint.ip(), endpoint.port())
}

/// Where one port of a service is reached, in one family.
pub struct Frontends {
    pub cluster_ips: Vec<IpAddr>,
    /// External and load balancer addresses.
    pub external_ips: Vec<IpAddr>,
    load_balancer_ips: Vec<IpAddr>,
    /// 0: none.
    pub node_port: u16,
}

impl Frontends {
    pub fn of(service: &ServiceFacts, resolved: &ResolvedPort, own: &BTreeSet<IpAddr>) -> Self {
        let ours =
            |ips: &[IpAddr]| -> Vec<IpAddr> { ips.iter().filter(|ip| Family::of(ip) == resolved.family && !own.contains(ip)).copied().collect() };
        let load_balancer_ips = ours(&service.load_balancer_ips);
        let mut external_ips = ours(&service.external_ips);
        external_ips.extend(&load_balancer_ips);
        external_ips.sort();
        external_ips.dedup();
        Self { cluster_ips: ours(&service.cluster_ips), external_ips, load_balancer_ips, node_port: resolved.port.node_port }
    }

    fn is_empty(&self) -> bool {
        self.cluster_ips.is_empty() && self.external_ips.is_empty() && self.node_port == 0
    }
}

impl Fragment {
    fn set(&mut self, set: &'static str, key: String) {
        self.map(set, key, String::new());
    }

    fn map(&mut self, set: &'static str, key: String, value: String) {
        self.elements.insert(Element { set, key, value });
    }

    fn chain(&mut self, chain: SharedChain) -> String {
        let verdict = format!("goto {}", chain.name());
        let mut waiting = vec![chain];
        while let Some(chain) = waiting.pop() {
            waiting.extend(chain.needs());
            self.chains.insert(chain);
        }
        verdict
    }

    fn frontends(&mut self, service: &ServiceFacts, resolved: &ResolvedPort, frontends: &Frontends, (all, local): (u32, u32), id: PortId) {
        let port = target(resolved);
        let affinity = service.affinity;
        for ip in &frontends.cluster_ips {
            let key = format!("{ip} . {port}");
            let (pool, count) = if service.internal_local { (Pool::Local, local) } else { (Pool::All, all) };
            let verdict = match count {
                // With `Local`, somewhere else may be an endpoint: silence, as upstream, not a refusal.
                0 if service.internal_local && all > 0 => "drop".to_owned(),
                0 => {
                    self.set("no-endpoints", key);
                    continue;
                }
                _ => self.chain(SharedChain::Internal { pool, count, affinity }),
            };
            self.map("service-ids", key.clone(), id.to_string());
            self.map("services", key, verdict);
        }
        if all == 0 && local == 0 {
            for ip in &frontends.external_ips {
                self.set("no-endpoints", format!("{ip} . {port}"));
            }
            if frontends.node_port != 0 {
                self.set("no-endpoints-node-ports", node_port(resolved));
            }
            return;
        }
        if frontends.external_ips.is_empty() && frontends.node_port == 0 {
            return;
        }
        let verdict = match service.external_local {
            true => self.chain(SharedChain::Split { count: all, local, affinity }),
            false => self.chain(SharedChain::External { count: all, affinity }),
        };
        for ip in &frontends.external_ips {
            let key = format!("{ip} . {port}");
            self.map("service-ids", key.clone(), id.to_string());
            self.map("services", key, verdict.clone());
        }
        if frontends.node_port != 0 {
            self.map("node-port-ids", node_port(resolved), id.to_string());
            self.map("node-ports", node_port(resolved), verdict);
        }
    }

    fn source_ranges(&mut self, service: &ServiceFacts, resolved: &ResolvedPort, frontends: &Frontends) {
        if service.source_ranges.is_empty() {
            return;
        }
        let ranges = disjoint(&service.source_ranges, resolved.family);
        for ip in &frontends.load_balancer_ips {
            let key = format!("{ip} . {}", target(resolved));
            for range in &ranges {
                self.set("allowed-sources", format!("{key} . {range}"));
            }
            self.set("restricted", key);
        }
    }

    fn slots(&mut self, map: &'static str, id: PortId, first: u32, values: impl Iterator<Item = String>) {
        for (slot, value) in (first..).zip(values) {
            self.map(map, format!("{id} . {slot}"), value);
        }
    }

    fn affinity(&mut self, id: PortId, cluster: &[SocketAddr], local: &[SocketAddr]) {
        let ids = endpoint_ids(cluster.iter().chain(local));
        self.slots("affinity-ids", id, 0, cluster.iter().map(|endpoint| ids[endpoint].to_string()));
        self.slots("affinity-ids", id, LOCAL_SLOTS, local.iter().map(|endpoint| (ids[endpoint] | LOCAL_BIT).to_string()));
        for endpoint in cluster {
            self.map("affinity-endpoints", format!("{id} . {}", ids[endpoint]), destination(endpoint));
            self.map("affinity-endpoints", format!("{id} . {}", ids[endpoint] | MASQUERADE_BIT), destination(endpoint));
        }
        for endpoint in local {
            for mark in [ids[endpoint] | LOCAL_BIT, ids[endpoint] | LOCAL_BIT | MASQUERADE_BIT] {
                self.map("affinity-endpoints", format!("{id} . {mark}"), destination(endpoint));
            }
        }
    }
}

fn target(resolved: &ResolvedPort) -> String {
    format!("{} . {}", resolved.port.protocol.keyword(), resolved.port.port)
}

fn node_port(resolved: &ResolvedPort) -> String {
    format!("{} . {}", resolved.port.protocol.keyword(), resolved.port.node_port)
}

/// Ids that an endpoint keeps while others come and go: from its address, moved on where two would meet. Between 1 and [`LOCAL_BIT`] - 1.
fn endpoint_ids<'a>(endpoints: impl Iterator<Item = &'a SocketAddr>) -> BTreeMap<SocketAddr, u32> {
    let sorted: BTreeSet<SocketAddr> = endpoints.copied().collect();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeMap::new();
    for endpoint in sorted {
        let mut id = fnv1a(endpoint.to_string().as_bytes()) % (LOCAL_BIT - 1) + 1;
        while !taken.insert(id) {
            id = id % (LOCAL_BIT - 1) + 1;
        }
        ids.insert(endpoint, id);
    }
    ids
}

/// The id that a port would like to have; see `Planner` for what happens when two like the same.
pub fn preferred_id(service: &ServiceFacts, resolved: &ResolvedPort) -> PortId {
    let port = &resolved.port;
    let name = format!("{}/{}/{}/{}", service.name.namespace, service.name.name, port.name, port.protocol.keyword());
    fnv1a(name.as_bytes()).clamp(1, PortId::MAX - 1)
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The ranges of one family as networks, without those that lie within another: intervals of a set must not overlap. What is no network is left out.
fn disjoint(ranges: &[String], family: Family) -> Vec<Cidr> {
    let networks: BTreeSet<Cidr> =
        ranges.iter().filter_map(|range| range.trim().parse().ok()).filter(|network: &Cidr| network.family() == family).collect();
    let covers = |outer: &Cidr, inner: &Cidr| outer.length() < inner.length() && outer.contains(&inner.first());
    networks.iter().filter(|inner| !networks.iter().any(|outer| covers(outer, inner))).copied().collect()
}

/// Where conntrack may hold flows of this port: one address or node port with its protocol.
pub fn flow_targets(resolved: &ResolvedPort, frontends: &Frontends) -> Vec<(Option<IpAddr>, u16)> {
    if resolved.port.protocol != Protocol::Udp {
        return Vec::new();
    }
    let addresses = frontends.cluster_ips.iter().chain(&frontends.external_ips).map(|ip| (Some(*ip), resolved.port.port));
    addresses.chain((frontends.node_port != 0).then_some((None, frontends.node_port))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_source_ranges_become_disjoint_networks() {
        let ranges = ["10.1.2.3/8", "10.5.0.0/16", "192.168.1.1/32", "fd00::/8", "nonsense", "1.1.1.1/40"].map(String::from);
        let texts = |ranges: &[String], family| disjoint(ranges, family).iter().map(Cidr::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&ranges, Family::V4), ["10.0.0.0/8", "192.168.1.1/32"]);
        assert_eq!(texts(&ranges, Family::V6), ["fd00::/8"]);
        assert_eq!(texts(&["0.0.0.0/0".into(), "10.0.0.0/8".into()], Family::V4), ["0.0.0.0/0"]);
    }

    #[test]
    fn an_endpoint_keeps_its_id_while_others_come_and_go() {
        let all: Vec<SocketAddr> = (0..4000u16).map(|n| format!("10.244.{}.{}:80", n / 250, n % 250 + 1).parse().unwrap()).collect();
        let ids = endpoint_ids(all.iter());
        let distinct: BTreeSet<u32> = ids.values().copied().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(distinct.iter().all(|id| (1..LOCAL_BIT).contains(id)));
        let few = endpoint_ids(all[..3].iter());
        assert_eq!(few[&all[0]], endpoint_ids(all[..2].iter())[&all[0]]);
    }
}
