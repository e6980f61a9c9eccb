//! The few shapes that the fleet's schemas are made of.

use std::sync::Arc;

use wheelhouse_schema::{Field, List, ListKind, Scalar, Schema, Struct, catalog};

pub(super) fn string() -> Schema {
    Schema::Scalar(Scalar::String)
}

pub(super) fn int() -> Schema {
    Schema::Scalar(Scalar::Int64)
}

pub(super) fn boolean() -> Schema {
    Schema::Scalar(Scalar::Bool)
}

pub(super) fn time() -> Schema {
    Schema::Scalar(Scalar::Time)
}

pub(super) fn structure<const N: usize>(fields: [(&'static str, Schema); N]) -> Schema {
    Struct::new(fields.into_iter().map(|(name, schema)| Field::verbatim(name, schema)).collect()).into()
}

/// A list whose items `key` identifies, so that apply merges it item by item.
pub(super) fn map_list(items: Schema, key: &'static str) -> Schema {
    Schema::List(Arc::new(List { items, kind: ListKind::Map, declared: true, keys: vec![key.into()], nullable_items: false, wrapped: false }))
}

/// A list that is replaced as a whole.
pub(super) fn atomic_list(items: Schema) -> Schema {
    Schema::List(Arc::new(List { items, kind: ListKind::Atomic, declared: false, keys: Vec::new(), nullable_items: false, wrapped: false }))
}

/// `metav1.Condition`s, keyed by their type.
pub(super) fn conditions() -> Schema {
    let condition = structure([
        ("type", string()),
        ("status", string()),
        ("observedGeneration", int()),
        ("lastTransitionTime", time()),
        ("reason", string()),
        ("message", string()),
    ]);
    map_list(condition, "type")
}

/// A whole object around its spec and, for kinds that have one, its status.
pub(super) fn object(spec: Schema, status: Option<Schema>) -> Schema {
    let mut fields = vec![
        Field::verbatim("apiVersion", string()),
        Field::verbatim("kind", string()),
        Field::verbatim("metadata", catalog().object_meta()),
        Field::verbatim("spec", spec),
    ];
    fields.extend(status.map(|status| Field::verbatim("status", status)));
    Struct::new(fields).into()
}
