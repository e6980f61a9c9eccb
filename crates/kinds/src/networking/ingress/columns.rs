//! `kubectl get ingresses`.

use k8s_openapi::api::networking::v1::Ingress;

use super::CLASS_ANNOTATION;
use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Class", "Which controller it is for."),
    table::text("Hosts", "Hosts that it answers for."),
    table::text("Address", "Where the controller listens."),
    table::text("Ports", "80, and 443 with certificates."),
    table::AGE,
];

/// How many hosts are shown; the rest is counted.
const SHOWN: usize = 3;

pub fn row(object: &Ingress, now: Timestamp) -> Vec<Value> {
    let spec = object.spec.clone().unwrap_or_default();
    let annotated = object.metadata.annotations.as_ref().and_then(|a| a.get(CLASS_ANNOTATION));
    let class = spec.ingress_class_name.as_ref().or(annotated).map_or("<none>", String::as_str);
    let hosts: Vec<String> = items(&spec.rules).iter().filter_map(|r| r.host.clone()).filter(|h| !h.is_empty()).collect();
    let hosts = if hosts.is_empty() { "*".to_owned() } else { table::some_of(&hosts, SHOWN) };
    let balancer = object.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    let ingress = balancer.map(|b| items(&b.ingress)).unwrap_or_default();
    let addresses: Vec<&str> = ingress.iter().map(|i| if text(&i.ip).is_empty() { text(&i.hostname) } else { text(&i.ip) }).collect();
    vec![
        table::name(&object.metadata),
        class.into(),
        hosts.into(),
        addresses.join(",").into(),
        if items(&spec.tls).is_empty() { "80" } else { "80, 443" }.into(),
        table::age(&object.metadata, now),
    ]
}
