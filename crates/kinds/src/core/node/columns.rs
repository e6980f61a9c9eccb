//! `kubectl get nodes`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Status", "Whether it is ready, and whether pods may be placed on it."),
    table::text("Roles", "What it is for."),
    table::AGE,
    table::text("Version", "The kubelet's version."),
    table::wide("Internal-IP", "Its address inside."),
    table::wide("External-IP", "Its address outside."),
    table::wide("OS-Image", "What it runs."),
    table::wide("Kernel-Version", "The kernel, and the machine's architecture."),
    table::wide("Container-Runtime", "What runs its containers."),
];

pub fn row(object: &Node, now: Timestamp) -> Vec<Value> {
    let status = object.status.clone().unwrap_or_default();
    let info = status.node_info.clone().unwrap_or_default();
    let address = |type_: &str| -> Value {
        let found = items(&status.addresses).iter().find(|a| a.type_ == type_);
        found.map_or("<none>", |a| a.address.as_str()).into()
    };
    let or_unknown = |value: String| -> Value { if value.is_empty() { "<unknown>".into() } else { value.into() } };
    let mut kernel = info.kernel_version;
    if !kernel.is_empty() && !info.architecture.is_empty() {
        kernel = format!("{kernel} ({})", info.architecture);
    }
    vec![
        table::name(&object.metadata),
        readiness(object).into(),
        roles(object).into(),
        table::age(&object.metadata, now),
        info.kubelet_version.into(),
        address("InternalIP"),
        address("ExternalIP"),
        or_unknown(info.os_image),
        or_unknown(kernel),
        or_unknown(info.container_runtime_version),
    ]
}

fn readiness(object: &Node) -> String {
    let conditions = object.status.as_ref().map(|s| items(&s.conditions)).unwrap_or_default();
    let mut out = match conditions.iter().find(|c| c.type_ == "Ready") {
        Some(ready) if ready.status == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object.spec.as_ref().and_then(|s| s.unschedulable) == Some(true) {
        out.push_str(",SchedulingDisabled");
    }
    out
}

fn roles(object: &Node) -> String {
    let labels = object.metadata.labels.iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role),
            _ if key == "kubernetes.io/role" && !value.is_empty() => Some(value.as_str()),
            _ => None,
        })
        .collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}
