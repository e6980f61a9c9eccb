//! What an EndpointSlice must be.

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use wheelhouse_meta::validation as names;

use crate::core::endpoints::validate::{ordinary_ip, protocol};
use crate::prelude::*;

/// What one slice may hold.
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_ZONE_HINTS: usize = 8;

pub fn create(object: &EndpointSlice) -> ErrorList {
    let mut errors = ErrorList::new();
    let type_ = object.address_type.as_str();
    if type_.is_empty() {
        errors.push(FieldError::required(&Path::new("addressType"), ""));
    } else if !matches!(type_, "FQDN" | "IPv4" | "IPv6") {
        errors.push(FieldError::not_supported(&Path::new("addressType"), type_, &["FQDN", "IPv4", "IPv6"]));
    }
    content(object, &mut errors);
    errors
}

pub fn update(new: &EndpointSlice, old: &EndpointSlice) -> ErrorList {
    let mut errors = ErrorList::new();
    if new.address_type != old.address_type {
        errors.push(FieldError::immutable(&Path::new("addressType"), &new.address_type));
        return errors;
    }
    content(new, &mut errors);
    errors
}

fn content(object: &EndpointSlice, errors: &mut ErrorList) {
    let path = Path::new("endpoints");
    let endpoints = items(&object.endpoints);
    if endpoints.len() > MAX_ENDPOINTS {
        errors.push(FieldError::too_many(&path, endpoints.len(), MAX_ENDPOINTS));
    } else {
        for (at, endpoint_) in endpoints.iter().enumerate() {
            endpoint(endpoint_, &object.address_type, &path.index(at), errors);
        }
    }
    let path = Path::new("ports");
    let ports = items(&object.ports);
    if ports.len() > MAX_PORTS {
        errors.push(FieldError::too_many(&path, ports.len(), MAX_PORTS));
        return;
    }
    let mut taken: Vec<&str> = Vec::new();
    for (at, port_) in ports.iter().enumerate() {
        port(port_, &mut taken, &path.index(at), errors);
    }
}

fn endpoint(endpoint: &Endpoint, type_: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let addresses = path.child("addresses");
    if endpoint.addresses.is_empty() {
        errors.push(FieldError::required(&addresses, "must contain at least 1 address"));
    } else if endpoint.addresses.len() > MAX_ADDRESSES {
        errors.push(FieldError::too_many(&addresses, endpoint.addresses.len(), MAX_ADDRESSES));
    }
    for (at, value) in endpoint.addresses.iter().enumerate() {
        address(value, type_, &addresses.index(at), errors);
    }
    if let Some(node) = &endpoint.node_name {
        validation::texts(names::dns1123_subdomain(node), node, &path.child("nodeName"), errors);
    }
    if let Some(hostname) = &endpoint.hostname {
        validation::texts(names::dns1123_label(hostname), hostname, &path.child("hostname"), errors);
    }
    let zones = endpoint.hints.as_ref().map(|h| items(&h.for_zones)).unwrap_or_default();
    let hints = path.child("hints");
    let hints = hints.child("forZones");
    if zones.len() > MAX_ZONE_HINTS {
        errors.push(FieldError::too_many(&hints, zones.len(), MAX_ZONE_HINTS));
        return;
    }
    for (at, zone) in zones.iter().enumerate() {
        let path = hints.index(at);
        if zones[..at].iter().any(|z| z.name == zone.name) {
            errors.push(FieldError::duplicate(&path.child("name"), &zone.name));
        }
        validation::texts(names::label_value(&zone.name), &zone.name, &path.child("name"), errors);
    }
}

fn address(value: &str, type_: &str, path: &Path<'_>, errors: &mut ErrorList) {
    match type_ {
        "FQDN" => validation::texts(names::dns1123_subdomain(value.trim_end_matches('.')), value, path, errors),
        "IPv4" | "IPv6" => {
            let problems = names::ip(value, path);
            let sound = problems.is_empty();
            errors.extend(problems);
            let fits = matches!((type_, names::parse_ip(value)), ("IPv4", Some(IpAddr::V4(_))) | ("IPv6", Some(IpAddr::V6(_))));
            if sound && !fits {
                errors.push(FieldError::invalid(path, value, format!("must be an {type_} address")));
            } else if sound {
                ordinary_ip(value, path, errors);
            }
        }
        _ => {}
    }
}

fn port<'a>(port: &'a EndpointPort, taken: &mut Vec<&'a str>, path: &Path<'_>, errors: &mut ErrorList) {
    let name = text(&port.name);
    if !name.is_empty() {
        validation::texts(names::dns1123_label(name), name, &path.child("name"), errors);
    }
    if taken.contains(&name) {
        errors.push(FieldError::duplicate(&path.child("name"), name));
    } else {
        taken.push(name);
    }
    protocol(text(&port.protocol), &path.child("protocol"), errors);
    if let Some(number) = port.port {
        validation::port(number, &path.child("port"), errors);
    }
    if let Some(protocol) = &port.app_protocol {
        validation::texts(names::qualified_name(protocol), protocol, &path.child("appProtocol"), errors);
    }
}
