//! `kubectl get configmaps`.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use wheelhouse_base::Timestamp;

use crate::kind::Column;
use crate::table;

pub const COLUMNS: &[Column] = &[table::NAME, table::text("Data", "How many keys it holds."), table::AGE];

pub fn row(object: &ConfigMap, now: Timestamp) -> Vec<Value> {
    let keys = object.data.as_ref().map_or(0, |d| d.len()) + object.binary_data.as_ref().map_or(0, |d| d.len());
    vec![table::name(&object.metadata), keys.into(), table::age(&object.metadata, now)]
}
