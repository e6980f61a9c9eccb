//! The canonical layout of Endpoints: addresses that offer the same ports, in the same state, share a subset.
//!
//! Upstream orders ports and subsets by a hash, so nobody can rely on their order; here they are sorted by name and number.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};

use crate::validation::{items, text};

/// Two pods may have one address, as on a host's network.
type AddressKey = (String, Option<String>);
/// Name, number, protocol and application protocol.
type PortKey = (String, i32, String, Option<String>);
/// Which addresses offer a port, and whether each is ready.
type Offer = BTreeMap<AddressKey, bool>;

/// The same endpoints in canonical layout. An address that is somewhere not ready for a port is not ready for it.
pub fn repack(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<AddressKey, EndpointAddress> = BTreeMap::new();
    // Headless services may have no ports; such addresses stand under None.
    let mut by_port: BTreeMap<Option<PortKey>, Offer> = BTreeMap::new();
    for subset in subsets {
        let ports: Vec<Option<PortKey>> = match items(&subset.ports) {
            [] => vec![None],
            ports => ports.iter().map(|port| Some(port_key(port))).collect(),
        };
        let ready = items(&subset.addresses).iter().map(|address| (address, true));
        let not_ready = items(&subset.not_ready_addresses).iter().map(|address| (address, false));
        for (address, ready) in ready.chain(not_ready) {
            let key: AddressKey = (address.ip.clone(), address.target_ref.as_ref().and_then(|target| target.uid.clone()));
            addresses.entry(key.clone()).or_insert_with(|| address.clone());
            for port in &ports {
                let offer = by_port.entry(port.clone()).or_default();
                offer.entry(key.clone()).and_modify(|known| *known &= ready).or_insert(ready);
            }
        }
    }
    let mut by_offer: BTreeMap<Offer, Vec<PortKey>> = BTreeMap::new();
    for (port, offer) in by_port {
        by_offer.entry(offer).or_default().extend(port);
    }
    let pick = |offer: &Offer, wanted: bool| {
        let picked = offer.iter().filter(|(_, ready)| **ready == wanted);
        let picked: Vec<EndpointAddress> = picked.filter_map(|(key, _)| addresses.get(key).cloned()).collect();
        (!picked.is_empty()).then_some(picked)
    };
    let mut packed: Vec<(Vec<PortKey>, EndpointSubset)> = Vec::new();
    for (offer, ports) in by_offer {
        let list: Vec<EndpointPort> = ports.iter().cloned().map(port).collect();
        let ports_field = (!list.is_empty()).then_some(list);
        let subset = EndpointSubset { addresses: pick(&offer, true), not_ready_addresses: pick(&offer, false), ports: ports_field };
        packed.push((ports, subset));
    }
    packed.sort_by(|a, b| a.0.cmp(&b.0));
    packed.into_iter().map(|(_, subset)| subset).collect()
}

fn port_key(port: &EndpointPort) -> PortKey {
    (text(&port.name).to_owned(), port.port, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), port.app_protocol.clone())
}

fn port((name, port, protocol, app_protocol): PortKey) -> EndpointPort {
    EndpointPort { name: (!name.is_empty()).then_some(name), port, protocol: Some(protocol), app_protocol }
}

/// Cuts the subsets to `most` addresses, ready ones first, each subset in proportion. Whether there was anything to cut.
pub fn truncate(subsets: &mut Vec<EndpointSubset>, most: usize) -> bool {
    let count =
        |of: fn(&EndpointSubset) -> &[EndpointAddress], subsets: &[EndpointSubset]| subsets.iter().map(|subset| of(subset).len()).sum::<usize>();
    let ready = count(|subset| items(&subset.addresses), subsets);
    let not_ready = count(|subset| items(&subset.not_ready_addresses), subsets);
    if ready + not_ready <= most {
        return false;
    }
    let cut_ready = ready > most;
    let (room, total) = if cut_ready { (most, ready) } else { (most - ready, not_ready) };
    let mut left = room;
    for subset in subsets.iter_mut() {
        if cut_ready {
            subset.not_ready_addresses = None;
        }
        let list = if cut_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let Some(members) = list else { continue };
        members.truncate((members.len() * room).div_ceil(total).min(left));
        left -= members.len();
        if members.is_empty() {
            *list = None;
        }
    }
    // A subset must have an address.
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subset(ready: &[&str], not_ready: &[&str], ports: &[i32]) -> EndpointSubset {
        let list = |ips: &[&str]| -> Option<Vec<EndpointAddress>> {
            let list: Vec<EndpointAddress> = ips.iter().map(|ip| EndpointAddress { ip: (*ip).to_owned(), ..EndpointAddress::default() }).collect();
            (!list.is_empty()).then_some(list)
        };
        let ports: Vec<EndpointPort> =
            ports.iter().map(|port| EndpointPort { port: *port, protocol: Some("TCP".to_owned()), ..EndpointPort::default() }).collect();
        EndpointSubset { addresses: list(ready), not_ready_addresses: list(not_ready), ports: (!ports.is_empty()).then_some(ports) }
    }

    #[test]
    fn addresses_with_the_same_ports_share_a_subset() {
        let scattered = [subset(&["1.1.1.2"], &[], &[80]), subset(&["1.1.1.1"], &[], &[80]), subset(&["1.1.1.1", "1.1.1.2"], &[], &[443])];
        assert_eq!(repack(&scattered), [subset(&["1.1.1.1", "1.1.1.2"], &[], &[80, 443])]);
        let differing = [subset(&["1.1.1.1"], &[], &[80]), subset(&["1.1.1.2"], &[], &[443])];
        assert_eq!(repack(&differing), differing);
    }

    #[test]
    fn not_ready_outweighs_ready_and_no_ports_are_kept() {
        assert_eq!(repack(&[subset(&["1.1.1.1"], &["1.1.1.1"], &[80])]), [subset(&[], &["1.1.1.1"], &[80])]);
        let portless = [subset(&["1.1.1.1"], &["1.1.1.2"], &[])];
        assert_eq!(repack(&portless), portless);
    }

    #[test]
    fn ready_addresses_are_cut_last() {
        let mut subsets = vec![subset(&["1.1.1.1"], &["1.1.1.2", "1.1.1.3"], &[80]), subset(&["1.1.1.4"], &["1.1.1.5"], &[443])];
        assert!(!truncate(&mut subsets, 5));
        assert!(truncate(&mut subsets, 3));
        assert_eq!(subsets, [subset(&["1.1.1.1"], &["1.1.1.2"], &[80]), subset(&["1.1.1.4"], &[], &[443])]);
        assert!(truncate(&mut subsets, 1));
        assert_eq!(subsets, [subset(&["1.1.1.1"], &[], &[80])]);
    }
}
