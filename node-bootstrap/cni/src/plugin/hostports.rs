//! Ports of the node that lead to a pod (`hostPort`): elements of verdict-free maps, one lookup per connection.
//!
//! What an attachment opened is recorded beside its addresses, so that DEL can close it without the runtime's help.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use wheelhouse_net::{Chain, Family, Ruleset, Set};

use crate::plugin::protocol::{Attachment, CniError, PortMapping, code};
use crate::programs::{ProgramError, Programs, to_cni};

/// Table of both families.
pub const TABLE: &str = "wheelhouse-hostports";

/// Maps by node address and port, and by port alone.
const WITH_ADDRESS: &str = "by-address";
const ANY_ADDRESS: &str = "by-port";

/// One open port: a map, a key in it, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Opening {
    family: Family,
    map: &'static str,
    key: String,
    value: String,
}

/// The table without openings. Its rules come after those of services: a service's address is never a host port.
pub fn frame(family: Family) -> Ruleset {
    let (ip, address) = (family.keyword(), family.address_type());
    let mut frame = Ruleset::new(format!("{ip} {TABLE}"));
    frame.sets.insert(WITH_ADDRESS.into(), Set::map(format!("type {address} . inet_proto . inet_service : {address} . inet_service;")));
    frame.sets.insert(ANY_ADDRESS.into(), Set::map(format!("type inet_proto . inet_service : {address} . inet_service;")));
    frame.sets.insert("hairpin".into(), Set::plain(format!("type {address} . {address};")));
    let transports = "meta l4proto { tcp, udp, sctp }";
    let open = vec![
        format!("{transports} dnat {ip} to {ip} daddr . meta l4proto . th dport map @{WITH_ADDRESS}"),
        format!("fib daddr type local {ip} daddr != {} {transports} dnat {ip} to meta l4proto . th dport map @{ANY_ADDRESS}", family.loopback()),
    ];
    let jump = || ["jump open".to_owned()];
    frame.chains.insert("open".into(), Chain::plain(open));
    frame.chains.insert("prerouting".into(), Chain::base("type nat hook prerouting priority -95; policy accept;", jump()));
    frame.chains.insert("output".into(), Chain::base("type nat hook output priority -95; policy accept;", jump()));
    // A pod that reaches itself through its node must not see its own address as the caller's.
    let hairpin = [format!("ct status dnat {ip} saddr . {ip} daddr @hairpin masquerade")];
    frame.chains.insert("postrouting".into(), Chain::base("type nat hook postrouting priority srcnat; policy accept;", hairpin));
    frame
}

/// Text that makes the frame where it is missing and keeps the elements of a present one.
fn frame_text(family: Family) -> String {
    let frame = frame(family);
    format!("add table {}\n{}", frame.table, frame.diff(&Ruleset::new(frame.table.clone())).render())
}

fn record(directory: &Path, attachment: &Attachment) -> PathBuf {
    directory.join(format!("ports-{}-{}", attachment.container_id, attachment.ifname))
}

fn openings(addresses: &[IpAddr], mappings: &[PortMapping]) -> Result<BTreeSet<Opening>, CniError> {
    let mut openings = BTreeSet::new();
    for mapping in mappings.iter().filter(|mapping| mapping.host_port != 0) {
        let protocol = match mapping.protocol.to_ascii_lowercase().as_str() {
            "" | "tcp" => "tcp",
            "udp" => "udp",
            "sctp" => "sctp",
            other => return Err(CniError::new(code::INVALID_CONFIG, "portMappings", format!("unknown protocol {other}"))),
        };
        let host: Option<IpAddr> = match mapping.host_ip.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| CniError::new(code::INVALID_CONFIG, "portMappings", format!("{text} is no address")))?),
        };
        let host = host.filter(|ip| !ip.is_unspecified());
        for address in addresses.iter().filter(|address| host.is_none_or(|host| Family::of(&host) == Family::of(address))) {
            let port = format!("{protocol} . {}", mapping.host_port);
            let (map, key) = match host {
                Some(host) => (WITH_ADDRESS, format!("{host} . {port}")),
                None => (ANY_ADDRESS, port),
            };
            openings.insert(Opening { family: Family::of(address), map, key, value: format!("{address} . {}", mapping.container_port) });
        }
    }
    Ok(openings)
}

/// Opens what `mappings` ask for. The record is written first, so that a crash in between leaves nothing that DEL does not know.
pub fn open(attachment: &Attachment, addresses: &[IpAddr], mappings: &[PortMapping], directory: &Path) -> Result<(), CniError> {
    let openings = openings(addresses, mappings)?;
    if openings.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    let families: BTreeSet<Family> = openings.iter().map(|opening| opening.family).collect();
    for family in &families {
        text.push_str(&frame_text(*family));
    }
    let mut lines = String::new();
    for opening in &openings {
        let ip = opening.family.keyword();
        text.push_str(&format!("add element {ip} {TABLE} {} {{ {} : {} }}\n", opening.map, opening.key, opening.value));
        lines.push_str(&format!("{ip} {} {{ {} : {} }}\n", opening.map, opening.key, opening.value));
    }
    for address in addresses.iter().filter(|address| families.contains(&Family::of(address))) {
        let element = format!("hairpin {{ {address} . {address} }}");
        text.push_str(&format!("add element {} {TABLE} {element}\n", Family::of(address).keyword()));
        lines.push_str(&format!("{} {element}\n", Family::of(address).keyword()));
    }
    let path = record(directory, attachment);
    fs::write(&path, lines).map_err(|error| CniError::new(code::IO, format!("cannot write {}", path.display()), error))?;
    Programs::here().nft(&text).map_err(to_cni)
}

/// Closes what the attachment opened; none is fine, as is a table that is gone.
pub fn close(attachment: &Attachment, directory: &Path) -> Result<(), CniError> {
    let path = record(directory, attachment);
    let lines = match fs::read_to_string(&path) {
        Ok(lines) => lines,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(CniError::new(code::IO, format!("cannot read {}", path.display()), error)),
    };
    for line in lines.lines() {
        let Some((ip, element)) = line.split_once(' ') else { continue };
        // One by one: each may be gone already.
        match Programs::here().nft(&format!("delete element {ip} {TABLE} {element}\n")) {
            Ok(()) => {}
            Err(ProgramError::Failed { message, .. }) if message.contains("No such file") || message.contains("does not exist") => {}
            Err(error) => return Err(to_cni(error)),
        }
    }
    fs::remove_file(&path).map_err(|error| CniError::new(code::IO, format!("cannot remove {}", path.display()), error))
}
