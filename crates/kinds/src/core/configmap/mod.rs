//! ConfigMap: configuration as text and bytes, read by pods.
//!
//! A key stands in `data` or in `binaryData`, never in both. Once `immutable` is set, neither the data nor the flag changes again.

mod columns;
mod validate;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use wheelhouse_base::Timestamp;

use crate::kind::{Column, KindInfo, RequestContext, TypedKind, Verdict};

pub struct ConfigMapKind;

impl TypedKind for ConfigMapKind {
    type Object = ConfigMap;

    const INFO: KindInfo = KindInfo { short_names: &["cm"], ..KindInfo::namespaced("", "v1", "ConfigMap", "configmaps", "configmap") };

    fn prepare_create(object: &mut ConfigMap, _: &RequestContext<'_>) -> Verdict {
        validate::create(object).into()
    }

    fn prepare_update(new: &mut ConfigMap, old: &ConfigMap, _: &RequestContext<'_>) -> Verdict {
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &ConfigMap, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
