//! What an Endpoints must be.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, Endpoints};
use wheelhouse_meta::validation as names;

use crate::prelude::*;

pub fn endpoints(object: &Endpoints) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("subsets");
    for (at, subset) in items(&object.subsets).iter().enumerate() {
        let path = path.index(at);
        let (ready, not_ready) = (items(&subset.addresses), items(&subset.not_ready_addresses));
        if ready.is_empty() && not_ready.is_empty() {
            errors.push(FieldError::required(&path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for (field, list) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
            let path = path.child(field);
            for (at, address_) in list.iter().enumerate() {
                address(address_, &path.index(at), &mut errors);
            }
        }
        let ports = items(&subset.ports);
        let path = path.child("ports");
        for (at, port_) in ports.iter().enumerate() {
            port(port_, ports.len() > 1, &path.index(at), &mut errors);
        }
    }
    errors
}

fn address(address: &EndpointAddress, path: &Path<'_>, errors: &mut ErrorList) {
    let ip = path.child("ip");
    let problems = names::ip(&address.ip, &ip);
    let sound = problems.is_empty();
    errors.extend(problems);
    if let Some(name) = address.hostname.as_ref().filter(|h| !h.is_empty()) {
        validation::texts(names::dns1123_label(name), name, &path.child("hostname"), errors);
    }
    if let Some(node) = &address.node_name {
        validation::texts(names::dns1123_subdomain(node), node, &path.child("nodeName"), errors);
    }
    if sound {
        ordinary_ip(&address.ip, &ip, errors);
    }
}

/// Addresses that mean something else on every machine cannot be a destination.
pub fn ordinary_ip(address: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(ip) = names::parse_ip(address) else { return };
    let (link_local, link_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0 == 0xfe80, ip.segments()[0] & 0xff0f == 0xff02),
    };
    let mut refuse = |why: String| errors.push(FieldError::invalid(path, address, why));
    if ip.is_unspecified() {
        refuse(format!("may not be unspecified ({address})"));
    }
    if ip.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    if link_local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if link_multicast {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
}

fn port(port: &EndpointPort, name_required: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let name = text(&port.name);
    if name_required && name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else if !name.is_empty() {
        validation::texts(names::dns1123_label(name), name, &path.child("name"), errors);
    }
    validation::port(port.port, &path.child("port"), errors);
    protocol(text(&port.protocol), &path.child("protocol"), errors);
    if let Some(protocol) = &port.app_protocol {
        validation::texts(names::qualified_name(protocol), protocol, &path.child("appProtocol"), errors);
    }
}

pub fn protocol(protocol: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if protocol.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !matches!(protocol, "SCTP" | "TCP" | "UDP") {
        errors.push(FieldError::not_supported(path, protocol, &["SCTP", "TCP", "UDP"]));
    }
}
