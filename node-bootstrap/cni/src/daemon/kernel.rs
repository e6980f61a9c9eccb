//! Brings a plan to the kernel, and the runtime's configuration to its directory.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::IpAddr;

use serde_json::{Value, json};
use wheelhouse_net::{Chain, Cidr, Family, Ruleset, Set};

use crate::daemon::fabric::{self, Fabric, NodeNetwork, PROTOCOL, Routing, TUNNEL};
use crate::daemon::{Config, NetworkError};
use crate::plugin::ensure_bridge;
use crate::programs::{ProgramError, Programs};

/// The table that hides pods' addresses from the outside.
const TABLE: &str = "wheelhouse-masquerade";

/// First in the runtime's order of configurations.
const FILE: &str = "05-wheelhouse.conflist";

/// The version that containerd 1.6 and 2 both read.
const CNI_VERSION: &str = "1.0.0";

/// What leaves the cluster carries the node's address; what stays does not.
pub fn masquerade(family: Family, own: &[Cidr], cluster: &[Cidr]) -> Ruleset {
    let (ip, address) = (family.keyword(), family.address_type());
    let mut table = Ruleset::new(format!("{ip} {TABLE}"));
    for (name, cidrs) in [("own", own), ("cluster", cluster)] {
        let mut set = Set::plain(format!("type {address}; flags interval;"));
        set.elements = cidrs.iter().filter(|cidr| cidr.family() == family).map(|cidr| (cidr.to_string(), String::new())).collect();
        table.sets.insert(name.into(), set);
    }
    // Multicast has no place to answer to.
    let multicast = if family == Family::V4 { "224.0.0.0/4" } else { "ff00::/8" };
    let rule = format!("{ip} saddr @own {ip} daddr != @cluster {ip} daddr != {multicast} masquerade fully-random");
    table.chains.insert("postrouting".into(), Chain::base("type nat hook postrouting priority srcnat; policy accept;", [rule]));
    table
}

/// Makes bridge, tunnel and routes what `me` and `others` ask for.
pub fn apply(me: &NodeNetwork, others: &[NodeNetwork], routing: Routing, mtu: u32) -> Result<(), ProgramError> {
    ensure_bridge(&me.pod_cidrs, mtu)?;
    let here = Programs::here();
    let fabric = fabric::plan(me, others, &links(&here, &me.addresses)?, routing);
    ensure_tunnel(&here, &fabric, mtu)?;
    here.ip(&fabric.route_lines(&present_routes(&here)?))?;
    if fabric.tunnel.is_some() {
        here.bridge(&fabric.forwarding_lines(&present_forwarding(&here)?))?;
    }
    Ok(())
}

/// Networks of the links that carry one of `addresses`.
fn links(here: &Programs, addresses: &[IpAddr]) -> Result<Vec<Cidr>, ProgramError> {
    let shown = here.ip_query(&["addr", "show"])?.unwrap_or_default();
    let infos = shown.as_array().into_iter().flatten().flat_map(|link| link["addr_info"].as_array().into_iter().flatten());
    let networks = infos.filter_map(|info| format!("{}/{}", info["local"].as_str()?, info["prefixlen"]).parse::<Cidr>().ok());
    Ok(networks.filter(|network| addresses.iter().any(|address| network.contains(address))).collect())
}

fn ensure_tunnel(here: &Programs, fabric: &Fabric, mtu: u32) -> Result<(), ProgramError> {
    let shown = here.ip_query(&["-d", "link", "show", "dev", TUNNEL])?;
    let local = |shown: &Value| {
        let data = &shown[0]["linkinfo"]["info_data"];
        data["local"].as_str().or(data["local6"].as_str()).and_then(|text| text.parse::<IpAddr>().ok())
    };
    let wanted = fabric.tunnel.map(|(address, _)| address);
    match shown {
        Some(shown) if local(&shown) == wanted => return Ok(()),
        // Not wanted any more, or from another address of this node.
        Some(_) => here.ip(&format!("link del {TUNNEL}\n"))?,
        None => {}
    }
    here.ip(&fabric.tunnel_lines(mtu))
}

fn present_routes(here: &Programs) -> Result<BTreeSet<Cidr>, ProgramError> {
    let mut present = BTreeSet::new();
    let protocol = PROTOCOL.to_string();
    for family in ["-4", "-6"] {
        let shown = here.ip_query(&[family, "route", "show", "proto", &protocol])?.unwrap_or_default();
        let destinations = shown.as_array().into_iter().flatten().filter_map(|route| route["dst"].as_str());
        present.extend(destinations.filter_map(|text| text.parse::<Cidr>().ok()));
    }
    Ok(present)
}

fn present_forwarding(here: &Programs) -> Result<BTreeSet<(String, IpAddr)>, ProgramError> {
    let shown = here.bridge_query(&["fdb", "show", "dev", TUNNEL])?.unwrap_or_default();
    let entries = shown.as_array().into_iter().flatten();
    Ok(entries.filter_map(|entry| Some((entry["mac"].as_str()?.to_owned(), entry["dst"].as_str()?.parse().ok()?))).collect())
}

/// Writes the runtime's configuration where it is not so already: runtimes load it anew at each change.
pub fn write_configuration(config: &Config, pod_cidrs: &[Cidr]) -> Result<(), NetworkError> {
    let plugin = json!({
        "type": crate::PLUGIN,
        "podCIDRs": pod_cidrs.iter().map(Cidr::to_string).collect::<Vec<_>>(),
        "mtu": config.mtu,
        "dataDir": config.data_directory,
        "capabilities": {"portMappings": true, "bandwidth": true},
    });
    let wanted = json!({"cniVersion": CNI_VERSION, "name": crate::NETWORK, "plugins": [plugin]}).to_string();
    let path = config.cni_directory.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(present) if present == wanted => return Ok(()),
        Err(source) if source.kind() != ErrorKind::NotFound => return Err(NetworkError::Write { path, source }),
        _ => {}
    }
    let fresh = config.cni_directory.join(format!(".{FILE}"));
    let written =
        std::fs::create_dir_all(&config.cni_directory).and_then(|()| std::fs::write(&fresh, wanted)).and_then(|()| std::fs::rename(&fresh, &path));
    written.map_err(|source| NetworkError::Write { path, source })
}
