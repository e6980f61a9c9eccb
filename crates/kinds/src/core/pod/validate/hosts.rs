//! The node's network, host names and DNS as a pod sees them.

use k8s_openapi::api::core::v1::{HostAlias, PodSpec};
use wheelhouse_meta::validation as names;

use crate::prelude::*;

/// On the node's own network a port of the node is the container's port.
pub fn network_ports(spec: &PodSpec, path: &Path<'_>, errors: &mut ErrorList) {
    if spec.host_network != Some(true) {
        return;
    }
    for (at, container) in spec.containers.iter().enumerate() {
        let path = path.index(at);
        let path = path.child("ports");
        for (at, port) in items(&container.ports).iter().enumerate() {
            let host = port.host_port.unwrap_or_default();
            // A template may leave it open; a pod never does, its defaults see to that.
            if host != 0 && host != port.container_port {
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(&path.index(at).child("hostPort"), host, why));
            }
        }
    }
}

/// What resolvers take: servers, search paths, and the search line's length in characters.
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;

pub fn dns_config(spec: &PodSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let none = text(&spec.dns_policy) == "None";
    let Some(config) = &spec.dns_config else {
        if none {
            errors.push(FieldError::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"));
        }
        return;
    };
    let servers = items(&config.nameservers);
    let servers_path = path.child("nameservers");
    if none && servers.is_empty() {
        errors.push(FieldError::required(&servers_path, "must provide at least one DNS nameserver when `dnsPolicy` is None"));
        return;
    }
    if servers.len() > MAX_NAMESERVERS {
        let why = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        errors.push(FieldError::invalid(&servers_path, BadValue::typed(&servers), why));
    }
    for (at, server) in servers.iter().enumerate() {
        errors.extend(names::ip(server, &servers_path.index(at)));
    }
    let searches = items(&config.searches);
    let searches_path = path.child("searches");
    if searches.len() > MAX_SEARCHES {
        let why = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.push(FieldError::invalid(&searches_path, BadValue::typed(&searches), why));
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARS {
        let why = format!("must not have more than {MAX_SEARCH_CHARS} characters (including spaces) in the search list");
        errors.push(FieldError::invalid(&searches_path, BadValue::typed(&searches), why));
    }
    for (at, search) in searches.iter().enumerate() {
        let bare = search.strip_suffix('.').unwrap_or(search);
        if search != "." {
            validation::texts(names::dns1123_subdomain_with_underscore(bare), bare, &searches_path.index(at), errors);
        }
    }
    for (at, option) in items(&config.options).iter().enumerate() {
        if text(&option.name).is_empty() {
            errors.push(FieldError::required(&path.child("options").index(at), "must not be empty"));
        }
    }
}

pub fn aliases(list: &[HostAlias], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, alias) in list.iter().enumerate() {
        let here = path.index(at);
        errors.extend(names::ip(&alias.ip, &here.child("ip")));
        for hostname in items(&alias.hostnames) {
            validation::texts(names::dns1123_subdomain(hostname), hostname, &here.child("hostnames"), errors);
        }
    }
}
