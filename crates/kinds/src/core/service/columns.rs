//! `kubectl get services`.

use k8s_openapi::api::core::v1::{Service, ServicePort};

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Type", "How it can be reached."),
    table::text("Cluster-IP", "Its address inside the cluster."),
    table::text("External-IP", "Its addresses outside."),
    table::text("Port(s)", "Its ports, and after a colon the nodes'."),
    table::AGE,
    table::wide("Selector", "Which pods are behind it."),
];

pub fn row(object: &Service, now: Timestamp) -> Vec<Value> {
    let spec = object.spec.clone().unwrap_or_default();
    let or_none = |value: String| -> Value { if value.is_empty() { "<none>".into() } else { value.into() } };
    let ports: Vec<String> = items(&spec.ports).iter().map(port).collect();
    let selector: Vec<String> = spec.selector.iter().flatten().map(|(k, v)| format!("{k}={v}")).collect();
    vec![
        table::name(&object.metadata),
        text(&spec.type_).into(),
        or_none(items(&spec.cluster_ips).first().cloned().unwrap_or_default()),
        external(object).into(),
        or_none(ports.join(",")),
        table::age(&object.metadata, now),
        or_none(selector.join(",")),
    ]
}

fn port(port: &ServicePort) -> String {
    match port.node_port.filter(|n| *n > 0) {
        Some(node) => format!("{}:{node}/{}", port.port, text(&port.protocol)),
        None => format!("{}/{}", port.port, text(&port.protocol)),
    }
}

fn external(object: &Service) -> String {
    let spec = object.spec.clone().unwrap_or_default();
    let own = items(&spec.external_ips).join(",");
    match text(&spec.type_) {
        "ClusterIP" | "NodePort" => {
            if own.is_empty() {
                "<none>".to_owned()
            } else {
                own
            }
        }
        "LoadBalancer" => {
            let balancer = object.status.as_ref().and_then(|s| s.load_balancer.as_ref());
            let ingress = balancer.map(|b| items(&b.ingress)).unwrap_or_default();
            let mut all: Vec<&str> = ingress.iter().map(|i| if text(&i.ip).is_empty() { text(&i.hostname) } else { text(&i.ip) }).collect();
            all.retain(|a| !a.is_empty());
            all.extend(items(&spec.external_ips).iter().map(String::as_str));
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(&spec.external_name).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}
