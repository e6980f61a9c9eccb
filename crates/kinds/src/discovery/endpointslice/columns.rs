//! `kubectl get endpointslices`.

use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("AddressType", "IPv4, IPv6 or FQDN."),
    table::text("Ports", "Ports of every endpoint."),
    table::text("Endpoints", "Addresses of the endpoints."),
    table::AGE,
];

/// How many ports, and how many addresses, are shown; the rest is counted.
const SHOWN: usize = 3;

pub fn row(object: &EndpointSlice, now: Timestamp) -> Vec<Value> {
    let or_unset = |all: &[String]| -> Value { if all.is_empty() { "<unset>".into() } else { table::some_of(all, SHOWN).into() } };
    let ports: Vec<String> = items(&object.ports).iter().map(|p| p.port.map_or_else(|| "*".to_owned(), |n| n.to_string())).collect();
    let addresses: Vec<String> = items(&object.endpoints).iter().flat_map(|e| e.addresses.iter().cloned()).collect();
    vec![
        table::name(&object.metadata),
        object.address_type.as_str().into(),
        or_unset(&ports),
        or_unset(&addresses),
        table::age(&object.metadata, now),
    ]
}
