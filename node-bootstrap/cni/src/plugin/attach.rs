//! One pod's wire: a veth pair from its namespace to an isolated port of the node's bridge.

use std::fmt::Write;
use std::net::IpAddr;

use serde_json::Value;
use wheelhouse_net::{Cidr, alone};

use crate::BRIDGE;
use crate::plugin::protocol::{Attachment, Bandwidth, CniError, code};
use crate::programs::{ProgramError, Programs, to_cni};

/// Smallest burst that a shaper is given, in bytes: one packet of the largest size that offloading makes.
const MIN_BURST: u64 = 65_536;

/// The bridge's link address is fixed: by default it would change with the ports, and pods would send to the old one.
const BRIDGE_PURPOSE: u8 = 0xb7;

/// How long a packet may wait for its turn in the shaper before it is dropped.
const SHAPER_LATENCY: &str = "25ms";

/// What ADD makes.
pub struct Wiring {
    /// This node's pod networks.
    pub networks: Vec<Cidr>,
    /// One of each network.
    pub addresses: Vec<IpAddr>,
    pub mtu: u32,
    pub attachment: Attachment,
    /// Path of the pod's namespace.
    pub netns: String,
}

/// The host's end of an attachment's pair: derived, so that DEL finds it without a record.
pub fn host_interface(attachment: &Attachment) -> String {
    let text = format!("{}/{}", attachment.container_id, attachment.ifname);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // 11 characters of hash: interfaces' names have at most 15.
    format!("whl{:011x}", hash >> 20)
}

/// A link address of our own (locally administered), from a pod network, which is unique in the cluster; `purpose` tells several of one node apart.
pub fn derived_mac(purpose: u8, network: &Cidr) -> String {
    let bytes = match network.first() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => {
            let o = ip.octets();
            [o[4], o[5], o[6], o[7]]
        }
    };
    format!("02:{purpose:02x}:{:02x}:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2], bytes[3])
}

/// Lines of `ip` that make the bridge of a node with these pod networks.
pub fn bridge_lines(networks: &[Cidr], mtu: u32) -> String {
    let mut lines = format!("link add {BRIDGE} mtu {mtu} address {} type bridge\n", derived_mac(BRIDGE_PURPOSE, &networks[0]));
    for network in networks {
        let nodad = if network.gateway().is_some_and(|ip| ip.is_ipv6()) { " nodad" } else { "" };
        // Writing to a string does not fail.
        let _ =
            writeln!(lines, "addr add {}/{} dev {BRIDGE}{nodad}", network.gateway().expect("pod networks have room for a gateway"), network.length());
    }
    let _ = writeln!(lines, "link set {BRIDGE} up");
    lines
}

/// Makes the bridge if there is none, and switches forwarding on.
pub fn ensure_bridge(networks: &[Cidr], mtu: u32) -> Result<(), ProgramError> {
    let here = Programs::here();
    if here.ip_query(&["link", "show", "dev", BRIDGE])?.is_none() {
        here.ip(&bridge_lines(networks, mtu))?;
        // Packets between pods leave by the interface they came from, which is no news that senders should hear.
        here.sysctl(&format!("ipv4/conf/{BRIDGE}/send_redirects"), "0")?;
    }
    // Bridge netfilter would translate a service's address before the bridge looks at it, and then bridge the packet to a port that is isolated. Whoever loads
    // it switches it on, so this is repeated at every call.
    for family in ["iptables", "ip6tables"] {
        here.sysctl(&format!("bridge/bridge-nf-call-{family}"), "0")?;
    }
    here.sysctl("ipv4/ip_forward", "1")?;
    if networks.iter().any(|network| network.first().is_ipv6()) {
        here.sysctl("ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

impl Wiring {
    /// Answers the link addresses of the host's and the pod's end.
    pub fn attach(&self) -> Result<(String, String), CniError> {
        self.make().map_err(to_cni)
    }

    fn make(&self) -> Result<(String, String), ProgramError> {
        ensure_bridge(&self.networks, self.mtu)?;
        let (here, inside) = (Programs::here(), Programs::inside(&self.netns));
        let host = host_interface(&self.attachment);
        // An ADD that the runtime repeats after a crash finds the remains of the first.
        if here.ip_query(&["link", "show", "dev", &host])?.is_some() {
            here.ip(&format!("link del {host}\n"))?;
        }
        here.ip(&self.host_lines(&host))?;
        // The node's way to a neighbour leads back through the same link, of which IPv6 tells the pod; the shorter way that it hints at is closed.
        inside.sysctl(&format!("ipv6/conf/{}/accept_redirects", self.attachment.ifname), "0")?;
        inside.ip(&self.pod_lines())?;
        let mac = |value: Option<Value>| value.and_then(|links| Some(links[0]["address"].as_str()?.to_owned())).unwrap_or_default();
        Ok((mac(here.ip_query(&["link", "show", "dev", &host])?), mac(inside.ip_query(&["link", "show", "dev", &self.attachment.ifname])?)))
    }

    fn host_lines(&self, host: &str) -> String {
        let (mtu, inside, netns) = (self.mtu, &self.attachment.ifname, &self.netns);
        format!(
            "link add {host} mtu {mtu} type veth peer name {inside} mtu {mtu} netns {netns}\n\
             link set {host} master {BRIDGE}\n\
             link set {host} type bridge_slave isolated on\n\
             link set {host} up\n"
        )
    }

    fn pod_lines(&self) -> String {
        let inside = &self.attachment.ifname;
        let mut lines = format!("link set lo up\nlink set {inside} up\n");
        for (address, network) in self.addresses.iter().zip(&self.networks) {
            let gateway = network.gateway().expect("pod networks have room for a gateway");
            let nodad = if address.is_ipv6() { " nodad" } else { "" };
            let _ = writeln!(lines, "addr add {} dev {inside}{nodad}", alone(address));
            let _ = writeln!(lines, "route add {gateway} dev {inside} scope link");
            let _ = writeln!(lines, "route add default via {gateway} dev {inside}");
        }
        lines
    }

    /// Shapes what goes to the pod, and drops what it sends above its rate.
    pub fn limit(&self, bandwidth: Option<Bandwidth>) -> Result<(), CniError> {
        let Some(bandwidth) = bandwidth else { return Ok(()) };
        let host = host_interface(&self.attachment);
        let burst = |bits: u64| (bits / 8).clamp(MIN_BURST, u64::from(u32::MAX));
        let mut lines = String::new();
        if bandwidth.ingress_rate > 0 {
            let (rate, burst) = (bandwidth.ingress_rate, burst(bandwidth.ingress_burst));
            let _ = writeln!(lines, "qdisc add dev {host} root tbf rate {rate}bit burst {burst} latency {SHAPER_LATENCY}");
        }
        if bandwidth.egress_rate > 0 {
            let (rate, burst) = (bandwidth.egress_rate, burst(bandwidth.egress_burst));
            let _ = writeln!(lines, "qdisc add dev {host} ingress");
            let _ = writeln!(
                lines,
                "filter add dev {host} parent ffff: protocol all matchall action police rate {rate}bit burst {burst} conform-exceed drop"
            );
        }
        if lines.is_empty() { Ok(()) } else { Programs::here().tc(&lines).map_err(to_cni) }
    }
}

/// Removes the pair, where it is still there: with its namespace it goes by itself.
pub fn detach(attachment: &Attachment) -> Result<(), CniError> {
    let (here, host) = (Programs::here(), host_interface(attachment));
    let present = here.ip_query(&["link", "show", "dev", &host]).map_err(to_cni)?.is_some();
    if !present {
        return Ok(());
    }
    match here.ip(&format!("link del {host}\n")) {
        // It went meanwhile, with its namespace.
        Err(ProgramError::Failed { message, .. }) if message.contains("Cannot find device") => Ok(()),
        other => other.map_err(to_cni),
    }
}

/// Fails where an end or an address of the attachment is missing.
pub fn check(attachment: &Attachment, netns: &str, addresses: &[IpAddr]) -> Result<(), CniError> {
    let changed = |what: String| Err(CniError::new(code::CHANGED, "the attachment has changed", what));
    let host = host_interface(attachment);
    if Programs::here()
        .ip_query(&["link", "show", "dev", &host, "master", BRIDGE])
        .map_err(to_cni)?
        .is_none_or(|links| links.as_array().is_none_or(Vec::is_empty))
    {
        return changed(format!("{host} is no port of {BRIDGE}"));
    }
    let Some(inside) = Programs::inside(netns).ip_query(&["addr", "show", "dev", &attachment.ifname]).map_err(to_cni)? else {
        return changed(format!("{} is missing in {netns}", attachment.ifname));
    };
    let present: Vec<&str> = inside[0]["addr_info"].as_array().into_iter().flatten().filter_map(|info| info["local"].as_str()).collect();
    match addresses.iter().find(|address| !present.contains(&address.to_string().as_str())) {
        Some(missing) => changed(format!("{} lacks {missing}", attachment.ifname)),
        None => Ok(()),
    }
}
