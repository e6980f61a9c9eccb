//! What a NetworkPolicy must be.

use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use wheelhouse_meta::validation as names;

use crate::prelude::*;

pub fn policy(object: &NetworkPolicy) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    if let Some(selector) = &spec.pod_selector {
        validation::label_selector(selector, &path.child("podSelector"), &mut errors);
    }
    let here = path.child("ingress");
    for (at, rule) in items(&spec.ingress).iter().enumerate() {
        let path = here.index(at);
        ports(items(&rule.ports), &path.child("ports"), &mut errors);
        peers(items(&rule.from), &path.child("from"), &mut errors);
    }
    let here = path.child("egress");
    for (at, rule) in items(&spec.egress).iter().enumerate() {
        let path = here.index(at);
        ports(items(&rule.ports), &path.child("ports"), &mut errors);
        peers(items(&rule.to), &path.child("to"), &mut errors);
    }
    let (types, here) = (items(&spec.policy_types), path.child("policyTypes"));
    if types.len() > 2 {
        errors.push(FieldError::invalid(&here, BadValue::typed(&types), "may not specify more than two policyTypes"));
        return errors;
    }
    for (at, type_) in types.iter().enumerate() {
        if !matches!(type_.as_str(), "Ingress" | "Egress") {
            errors.push(FieldError::not_supported(&here.index(at), type_, &["Ingress", "Egress"]));
        }
    }
    errors
}

fn ports(list: &[NetworkPolicyPort], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, port) in list.iter().enumerate() {
        let path = path.index(at);
        if let Some(protocol) = &port.protocol
            && !matches!(protocol.as_str(), "TCP" | "UDP" | "SCTP")
        {
            errors.push(FieldError::not_supported(&path.child("protocol"), protocol, &["TCP", "UDP", "SCTP"]));
        }
        let (number, end) = (path.child("port"), path.child("endPort"));
        match (&port.port, port.end_port) {
            (Some(IntOrString::Int(first)), last) => {
                validation::port(*first, &number, errors);
                if let Some(last) = last {
                    if last < *first {
                        errors.push(FieldError::invalid(&end, *first, "must be greater than or equal to `port`"));
                    }
                    validation::port(last, &end, errors);
                }
            }
            (Some(IntOrString::String(name)), last) => {
                if let Some(last) = last {
                    errors.push(FieldError::invalid(&end, last, "may not be specified when `port` is non-numeric"));
                }
                validation::texts(names::port_name(name), name, &number, errors);
            }
            (None, Some(last)) => errors.push(FieldError::invalid(&end, last, "may not be specified when `port` is not specified")),
            (None, None) => {}
        }
    }
}

fn peers(list: &[NetworkPolicyPeer], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, peer) in list.iter().enumerate() {
        let path = path.index(at);
        let mut selectors = 0;
        for (field, selector) in [("podSelector", &peer.pod_selector), ("namespaceSelector", &peer.namespace_selector)] {
            if let Some(selector) = selector {
                selectors += 1;
                validation::label_selector(selector, &path.child(field), errors);
            }
        }
        match (&peer.ip_block, selectors) {
            (None, 0) => errors.push(FieldError::required(&path, "must specify a peer")),
            (None, _) => {}
            (Some(block), selectors) => {
                ip_block(block, &path.child("ipBlock"), errors);
                if selectors > 0 {
                    errors.push(FieldError::forbidden(&path, "may not specify both ipBlock and another peer"));
                }
            }
        }
    }
}

fn ip_block(block: &IPBlock, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("cidr");
    if block.cidr.is_empty() {
        errors.push(FieldError::required(&here, ""));
        return;
    }
    errors.extend(names::cidr(&block.cidr, &here));
    let Some((network, length)) = names::parse_cidr(&block.cidr) else { return };
    let here = path.child("except");
    for (at, except) in items(&block.except).iter().enumerate() {
        let path = here.index(at);
        errors.extend(names::cidr(except, &path));
        let Some((ip, inner)) = names::parse_cidr(except) else { continue };
        // The prefix of the exception, cut to the block's length, is the block.
        let within = names::parse_cidr(&format!("{ip}/{length}")).is_some_and(|(cut, _)| cut == network);
        if !within || inner <= length || ip.is_ipv4() != network.is_ipv4() {
            errors.push(FieldError::invalid(&path, except, "must be a strict subset of `cidr`"));
        }
    }
}
