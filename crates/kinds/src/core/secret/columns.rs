//! `kubectl get secrets`.

use k8s_openapi::api::core::v1::Secret;

use crate::prelude::*;

pub const COLUMNS: &[Column] =
    &[table::NAME, table::text("Type", "Which keys it must hold."), table::text("Data", "How many keys it holds."), table::AGE];

pub fn row(object: &Secret, now: Timestamp) -> Vec<Value> {
    let keys = object.data.as_ref().map_or(0, |d| d.len());
    vec![table::name(&object.metadata), text(&object.type_).into(), keys.into(), table::age(&object.metadata, now)]
}
