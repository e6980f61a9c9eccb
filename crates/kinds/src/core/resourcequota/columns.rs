//! `kubectl get resourcequotas`.

use k8s_openapi::api::core::v1::ResourceQuota;

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Request", "What is used of what is allowed, of requests and counts."),
    table::text("Limit", "The same of limits."),
    table::AGE,
];

pub fn row(object: &ResourceQuota, now: Timestamp) -> Vec<Value> {
    let status = object.status.clone().unwrap_or_default();
    let used = status.used.unwrap_or_default();
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in status.hard.iter().flatten() {
        let entry = format!("{name}: {}/{}", used.get(name).map_or("0", |u| u.0.as_str()), hard.0);
        if name.starts_with("limits") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![table::name(&object.metadata), requests.join(", ").into(), limits.join(", ").into(), table::age(&object.metadata, now)]
}
