//! How this node reaches the pods of the others: pure.
//!
//! A node whose address is on one of this node's links gets a plain route. The others are reached through VXLAN. Everything about a peer's end of the tunnel follows
//! from its first pod network: the link address from its bytes, and the inner next hop is the network's own address.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use wheelhouse_net::{Cidr, Family, alone};

/// The tunnel's interface.
pub const TUNNEL: &str = "wheelhouse-vx";

/// VXLAN's network identifier and port: the port that Linux has always used, which does not meet a VXLAN of IANA's port.
const VNI: u32 = 4077;
const PORT: u16 = 8472;

/// The routing protocol number that marks routes as ours: they are recognised after a restart.
pub const PROTOCOL: u8 = 87;

/// What of a Node matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNetwork {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    pub pod_cidrs: Vec<Cidr>,
}

impl NodeNetwork {
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let one = spec.and_then(|spec| spec.pod_cidr.as_ref()).into_iter();
        let listed = spec.and_then(|spec| spec.pod_cidrs.as_ref()).into_iter().flatten();
        let mut pod_cidrs: Vec<Cidr> = listed.chain(one).filter_map(|text| text.parse().ok()).collect();
        let mut seen = BTreeSet::new();
        pod_cidrs.retain(|cidr| seen.insert(*cidr));
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            addresses: addresses.filter(|address| address.type_ == "InternalIP").filter_map(|address| address.address.parse().ok()).collect(),
            pod_cidrs,
        }
    }
}

/// When peers are reached without a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// Where the peer is on one of this node's links.
    #[default]
    Auto,
    /// Never: for networks that drop packets with addresses other than their machines' own, as clouds do unless told otherwise.
    Tunnel,
}

/// What the kernel should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    /// This node's address under the tunnel, and its own first pod network, where a tunnel is needed.
    pub tunnel: Option<(IpAddr, Cidr)>,
    /// By destination: what follows it in `ip route`.
    pub routes: BTreeMap<Cidr, String>,
    /// Link addresses of next hops in the tunnel.
    pub neighbours: BTreeMap<IpAddr, String>,
    /// Where link addresses are, under the tunnel.
    pub forwarding: BTreeMap<String, IpAddr>,
}

/// `links` are the networks of this node's own interfaces.
pub fn plan(me: &NodeNetwork, others: &[NodeNetwork], links: &[Cidr], routing: Routing) -> Fabric {
    let mut fabric = Fabric::default();
    let (Some(own_address), Some(own_network)) = (me.addresses.first(), me.pod_cidrs.first()) else { return fabric };
    for peer in others.iter().filter(|peer| peer.name != me.name) {
        let Some(first) = peer.pod_cidrs.first() else { continue };
        let on_link = |family: Family| {
            let reachable = |address: &&IpAddr| Family::of(address) == family && links.iter().any(|link| link.contains(address));
            peer.addresses.iter().find(reachable).filter(|_| routing == Routing::Auto)
        };
        for cidr in &peer.pod_cidrs {
            if let Some(address) = on_link(cidr.family()) {
                fabric.routes.insert(*cidr, format!("via {address}"));
                continue;
            }
            let Some(under) = peer.addresses.iter().find(|address| Family::of(address) == Family::of(own_address)) else { continue };
            let hop = cidr.first();
            fabric.tunnel = Some((*own_address, *own_network));
            fabric.routes.insert(*cidr, format!("via {hop} dev {TUNNEL} onlink"));
            fabric.neighbours.insert(hop, link_address(first));
            fabric.forwarding.insert(link_address(first), *under);
        }
    }
    fabric
}

/// The link address of the tunnel's end on the node that has this pod network first.
fn link_address(network: &Cidr) -> String {
    crate::plugin::derived_mac(0xb8, network)
}

impl Fabric {
    /// Lines of `ip` that make the tunnel's interface.
    pub fn tunnel_lines(&self, mtu: u32) -> String {
        let Some((local, network)) = &self.tunnel else { return String::new() };
        let mut lines =
            format!("link add {TUNNEL} mtu {mtu} address {} type vxlan id {VNI} local {local} dstport {PORT} nolearning\n", link_address(network));
        // The source of what this node itself sends to pods elsewhere: an address that routes lead back to.
        let _ = writeln!(lines, "addr add {} dev {TUNNEL}", alone(&network.first()));
        let _ = writeln!(lines, "link set {TUNNEL} up");
        lines
    }

    /// Lines of `ip` that bring routes and neighbours to this; `present` are the destinations of routes of ours that the kernel has.
    pub fn route_lines(&self, present: &BTreeSet<Cidr>) -> String {
        let mut lines = String::new();
        for (hop, link) in &self.neighbours {
            let _ = writeln!(lines, "neigh replace {hop} lladdr {link} dev {TUNNEL} nud permanent");
        }
        for (cidr, way) in &self.routes {
            let _ = writeln!(lines, "route replace {cidr} {way} proto {PROTOCOL}");
        }
        for cidr in present.iter().filter(|cidr| !self.routes.contains_key(cidr)) {
            let _ = writeln!(lines, "route del {cidr} proto {PROTOCOL}");
        }
        lines
    }

    /// Lines of `bridge` for the tunnel; `present` are entries that the kernel has.
    pub fn forwarding_lines(&self, present: &BTreeSet<(String, IpAddr)>) -> String {
        let mut lines = String::new();
        for (link, address) in present.iter().filter(|(link, address)| self.forwarding.get(link) != Some(address)) {
            let _ = writeln!(lines, "fdb del {link} dev {TUNNEL} dst {address}");
        }
        for (link, address) in self.forwarding.iter().filter(|(link, address)| !present.contains(&((*link).clone(), **address))) {
            let _ = writeln!(lines, "fdb append {link} dev {TUNNEL} dst {address}");
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, address: &str, cidrs: &[&str]) -> NodeNetwork {
        NodeNetwork { name: name.into(), addresses: vec![address.parse().unwrap()], pod_cidrs: cidrs.iter().map(|c| c.parse().unwrap()).collect() }
    }

    #[test]
    fn neighbours_get_routes_and_the_rest_a_tunnel() {
        let me = node("a", "192.0.2.1", &["10.244.0.0/24"]);
        let others =
            [me.clone(), node("b", "192.0.2.2", &["10.244.1.0/24"]), node("c", "198.51.100.3", &["10.244.2.0/24"]), node("new", "192.0.2.9", &[])];
        let links = ["192.0.2.0/24".parse().unwrap()];
        let fabric = plan(&me, &others, &links, Routing::Auto);
        let present = ["10.244.9.0/24".parse().unwrap()].into();
        let expected = "neigh replace 10.244.2.0 lladdr 02:b8:0a:f4:02:00 dev wheelhouse-vx nud permanent\n\
            route replace 10.244.1.0/24 via 192.0.2.2 proto 87\n\
            route replace 10.244.2.0/24 via 10.244.2.0 dev wheelhouse-vx onlink proto 87\n\
            route del 10.244.9.0/24 proto 87\n";
        assert_eq!(fabric.route_lines(&present), expected);
        assert_eq!(
            fabric.forwarding_lines(&[("02:b8:00:00:00:01".into(), "192.0.2.7".parse().unwrap())].into()),
            "fdb del 02:b8:00:00:00:01 dev wheelhouse-vx dst 192.0.2.7\nfdb append 02:b8:0a:f4:02:00 dev wheelhouse-vx dst 198.51.100.3\n"
        );
        assert!(
            fabric
                .tunnel_lines(1450)
                .starts_with("link add wheelhouse-vx mtu 1450 address 02:b8:0a:f4:00:00 type vxlan id 4077 local 192.0.2.1 dstport 8472")
        );
        assert_eq!(plan(&me, &others[..2], &links, Routing::Auto).tunnel, None);
        assert_eq!(plan(&me, &others, &links, Routing::Tunnel).forwarding.len(), 2);
    }
}
