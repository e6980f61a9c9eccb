//! `kubectl get endpoints`.

use k8s_openapi::api::core::v1::Endpoints;

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[table::NAME, table::text("Endpoints", "Addresses and ports behind the service."), table::AGE];

/// How many are shown; the rest is counted.
const SHOWN: usize = 3;

pub fn row(object: &Endpoints, now: Timestamp) -> Vec<Value> {
    vec![table::name(&object.metadata), addresses(object).into(), table::age(&object.metadata, now)]
}

fn addresses(object: &Endpoints) -> String {
    let subsets = items(&object.subsets);
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let ips = || items(&subset.addresses).iter().map(|a| a.ip.as_str());
        // A headless service may have no ports.
        if items(&subset.ports).is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in items(&subset.ports) {
            all.extend(ips().map(|ip| if ip.contains(':') { format!("[{ip}]:{}", port.port) } else { format!("{ip}:{}", port.port) }));
        }
    }
    table::some_of(&all, SHOWN)
}
