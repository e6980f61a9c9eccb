//! From a definition's `openAPIV3Schema` to the schema that decoding, pruning and apply run on.

use std::sync::Arc;

use serde_json::Value;
use wheelhouse_schema::{Field, List, ListKind, Name, Scalar, Schema, Struct, catalog};

/// The schema of a whole object: type header and metadata stand beside what the definition says.
pub fn of_object(props: &Value) -> Schema {
    let mut fields = vec![
        Field::verbatim("apiVersion", Schema::Scalar(Scalar::String)),
        Field::verbatim("kind", Schema::Scalar(Scalar::String)),
        Field::verbatim("metadata", catalog().object_meta()),
    ];
    let own = properties(props).into_iter().filter(|f| !matches!(f.name.as_ref(), "apiVersion" | "kind" | "metadata"));
    fields.extend(own);
    structure(props, fields)
}

fn of(props: &Value) -> Schema {
    if props["x-kubernetes-int-or-string"] == true {
        return Schema::Scalar(Scalar::IntOrString);
    }
    match props["type"].as_str().unwrap_or_default() {
        "object" => match &props["additionalProperties"] {
            values @ Value::Object(_) => Schema::map(of(values), props["x-kubernetes-map-type"] == "atomic"),
            _ => structure(props, properties(props)),
        },
        "array" => list(props),
        "string" => Schema::Scalar(Scalar::String),
        "integer" => Schema::Scalar(Scalar::Int64),
        "number" => Schema::Scalar(Scalar::Float),
        "boolean" => Schema::Scalar(Scalar::Bool),
        _ => Schema::Any,
    }
}

fn structure(props: &Value, fields: Vec<Field>) -> Schema {
    let mut structure = Struct::new(fields);
    structure.preserve_unknown = props["x-kubernetes-preserve-unknown-fields"] == true || props["additionalProperties"] == true;
    structure.embedded_resource = props["x-kubernetes-embedded-resource"] == true;
    structure.atomic = props["x-kubernetes-map-type"] == "atomic";
    structure.into()
}

fn properties(props: &Value) -> Vec<Field> {
    let required = |name: &str| props["required"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
    let properties = props["properties"].as_object().into_iter().flatten();
    let fields = properties.map(|(name, props)| {
        let mut field = Field::verbatim(name.clone(), of(props));
        field.nullable = props["nullable"] == true;
        field.required = required(name);
        field.default = props.get("default").map(|default| Arc::new(default.clone()));
        field
    });
    fields.collect()
}

fn list(props: &Value) -> Schema {
    let kind = match props["x-kubernetes-list-type"].as_str() {
        Some("map") => ListKind::Map,
        Some("set") => ListKind::Set,
        _ => ListKind::Atomic,
    };
    let keys = props["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
    let keys: Vec<Name> = keys.filter_map(Value::as_str).map(|key| Name::from(key.to_owned())).collect();
    let declared = !props["x-kubernetes-list-type"].is_null();
    Schema::List(Arc::new(List { items: of(&props["items"]), kind, declared, keys, nullable_items: false, wrapped: false }))
}
