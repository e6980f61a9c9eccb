//! `kubectl get namespaces`.

use k8s_openapi::api::core::v1::Namespace;
use serde_json::Value;
use wheelhouse_base::Timestamp;

use crate::kind::Column;
use crate::table;

pub const COLUMNS: &[Column] = &[table::NAME, table::text("Status", "Active, or Terminating while being deleted."), table::AGE];

pub fn row(object: &Namespace, now: Timestamp) -> Vec<Value> {
    vec![table::name(&object.metadata), phase(object).into(), table::age(&object.metadata, now)]
}

pub fn phase(object: &Namespace) -> &str {
    object.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}
