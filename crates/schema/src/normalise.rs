//! The form upstream stores and serves: what Go's encoder would write for the decoded struct.
//!
//! Upstream keeps objects as Go structs, so an absent field and an empty one are often the same thing, and which of the
//! two a client sees is decided by the field's tags alone. [`Presence`] has those. An empty list or map that must be
//! written appears as `null`, because upstream's objects have been through protobuf, which cannot tell empty from nil;
//! only list kinds, which are never stored, show an empty `items` as it is.

use serde_json::{Map, Number, Value};

use crate::scalar;
use crate::time::Layout;
use crate::types::{Field, Presence, Scalar, Schema, Struct};

/// Above this an integer is not exact in a float, and keeps the float's text.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Drops nulls and empty `omitempty` fields, writes the zero value of fields that are always there, and brings
/// quantities and times to their canonical text. Idempotent. Text that does not parse and fields without a schema are
/// left alone: refusing them is [`crate::decode`]'s.
pub fn normalise(value: &mut Value, schema: &Schema) {
    match (&mut *value, schema) {
        (Value::Object(object), Schema::Struct(of)) => structure(object, of),
        (Value::Array(items), Schema::List(list)) if has_form(&list.items) => {
            items.iter_mut().for_each(|item| normalise(item, &list.items));
        }
        (Value::Object(entries), Schema::Map(map)) if has_form(&map.values) => {
            entries.values_mut().for_each(|entry| normalise(entry, &map.values));
        }
        (Value::String(text), Schema::Scalar(of)) => {
            let canonical = match of {
                Scalar::Quantity => scalar::quantity(text),
                Scalar::Time => scalar::time(text, Layout::Seconds),
                Scalar::MicroTime => scalar::time(text, Layout::Micros),
                _ => return,
            };
            if let Ok(canonical) = canonical {
                *text = canonical;
            }
        }
        (Value::Number(number), Schema::Scalar(Scalar::Quantity)) => {
            if let Ok(canonical) = scalar::quantity(&number.to_string()) {
                *value = Value::String(canonical);
            }
        }
        // Go writes a float without a fraction as an integer.
        (Value::Number(number), Schema::Scalar(Scalar::Float)) => {
            if let Some(float) = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < MAX_EXACT) {
                *number = Number::from(float as i64);
            }
        }
        (Value::Object(_), Schema::Choice(_)) => {
            if let Some(props) = crate::catalog().definition(crate::types::JSON_SCHEMA_PROPS) {
                normalise(value, &props);
            }
        }
        (Value::Array(items), Schema::Choice(_)) => items.iter_mut().for_each(|item| normalise(item, schema)),
        _ => {}
    }
}

/// Whether anything inside can be out of form; spares a walk over label maps and string lists.
fn has_form(schema: &Schema) -> bool {
    !schema.is_raw()
        && !matches!(
            schema,
            Schema::Scalar(Scalar::String | Scalar::Bool | Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::Bytes | Scalar::IntOrString)
        )
}

fn structure(object: &mut Map<String, Value>, of: &Struct) {
    for field in &of.fields {
        let Some(value) = object.get_mut(field.name.as_ref()) else {
            if let Some(zero) = written_when_unset(field) {
                object.insert(field.name.to_string(), zero);
            }
            continue;
        };
        normalise(value, &field.schema);
        if is_unset(value, field) {
            if value.is_array() && field.presence == Presence::Always && is_list_kind(of) {
                continue;
            }
            match written_when_unset(field) {
                Some(zero) => *value = zero,
                None => {
                    object.remove(field.name.as_ref());
                }
            }
        }
    }
}

fn is_list_kind(of: &Struct) -> bool {
    let metadata = of.field("metadata").and_then(|field| field.schema.as_struct());
    metadata.is_some_and(|metadata| metadata.go_name == "v1.ListMeta")
}

/// Whether Go would hold the zero value.
fn is_unset(value: &Value, field: &Field) -> bool {
    if field.presence == Presence::Verbatim {
        return value.is_null() && !field.nullable;
    }
    if value.is_null() {
        return true;
    }
    if field.pointer {
        return false;
    }
    match (value, &field.schema) {
        (Value::Array(items), Schema::List(_)) => items.is_empty(),
        (Value::Object(entries), Schema::Map(_)) => entries.is_empty(),
        (Value::String(text), Schema::Scalar(Scalar::String | Scalar::Bytes)) => text.is_empty(),
        (Value::Bool(on), Schema::Scalar(Scalar::Bool)) => !on,
        (Value::Number(number), Schema::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Float)) => number.as_f64() == Some(0.0),
        // An unset struct value is written as `{}` with its own constants inside; only `omitzero` hides it.
        (Value::Object(_), Schema::Struct(_)) => field.presence == Presence::OmitZero && zero(&field.schema).as_ref() == Some(value),
        _ => false,
    }
}

/// What stands in the output for an unset field; `None` if it is left out.
fn written_when_unset(field: &Field) -> Option<Value> {
    match field.presence {
        Presence::Verbatim | Presence::OmitZero => None,
        Presence::OmitEmpty if field.pointer => None,
        // To encoding/json a struct is never empty, and these scalars are structs.
        Presence::OmitEmpty => match &field.schema {
            Schema::Struct(_) => zero(&field.schema),
            Schema::Scalar(Scalar::Quantity | Scalar::IntOrString | Scalar::Time | Scalar::MicroTime | Scalar::RawObject | Scalar::FieldsV1) => {
                zero(&field.schema)
            }
            _ => None,
        },
        Presence::Always if field.pointer => Some(Value::Null),
        Presence::Always => zero(&field.schema),
    }
}

/// Go's zero value as its encoder writes it.
fn zero(schema: &Schema) -> Option<Value> {
    Some(match schema {
        Schema::Struct(of) => {
            let mut object = Map::new();
            structure(&mut object, of);
            Value::Object(object)
        }
        Schema::Scalar(Scalar::String) => Value::from(""),
        Schema::Scalar(Scalar::Bool) => Value::from(false),
        Schema::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::IntOrString) => Value::from(0),
        Schema::Scalar(Scalar::Quantity) => Value::from("0"),
        _ => Value::Null,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog;

    fn normalised(group: &str, version: &str, kind: &str, mut value: Value) -> Value {
        let schema = &catalog().kind(group, version, kind).unwrap().schema;
        normalise(&mut value, schema);
        let once = value.clone();
        normalise(&mut value, schema);
        assert_eq!(once, value, "idempotent");
        value
    }

    #[test]
    fn empty_omitempty_fields_vanish_and_constant_ones_appear() {
        let pod = json!({"metadata": {"name": "p", "labels": {}, "creationTimestamp": null, "generation": 0, "annotations": null},
            "spec": {"containers": [{"name": "c", "image": "", "ports": [], "stdin": false,
                "securityContext": {"privileged": false}}], "hostNetwork": false, "nodeSelector": {}}});
        assert_eq!(
            normalised("", "v1", "Pod", pod),
            json!({"metadata": {"name": "p"}, "status": {}, "spec": {"containers": [
                {"name": "c", "resources": {}, "securityContext": {"privileged": false}}]}})
        );
    }

    #[test]
    fn lists_without_omitempty_are_null_when_empty() {
        let role = normalised("rbac.authorization.k8s.io", "v1", "Role", json!({"metadata": {"name": "r"}, "rules": []}));
        assert_eq!(role, json!({"metadata": {"name": "r"}, "rules": null}));
        assert_eq!(normalised("", "v1", "PodList", json!({"items": []})), json!({"metadata": {}, "items": []}));
    }

    #[test]
    fn structs_are_never_empty_to_go() {
        let deployment = normalised("apps", "v1", "Deployment", json!({"metadata": {"name": "d"}, "spec": {}}));
        assert_eq!(
            deployment,
            json!({"metadata": {"name": "d"}, "status": {}, "spec": {"selector": null, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": null}}}})
        );
        let env = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "valueFrom":
            {"resourceFieldRef": {"resource": "limits.cpu"}}}]}]}});
        let pod = normalised("", "v1", "Pod", env);
        let reference = &pod["spec"]["containers"][0]["env"][0]["valueFrom"]["resourceFieldRef"];
        assert_eq!(*reference, json!({"resource": "limits.cpu", "divisor": "0"}));
    }

    #[test]
    fn canonical_texts() {
        let quota = normalised("", "v1", "ResourceQuota", json!({"spec": {"hard": {"cpu": "1000m", "pods": 10}}}));
        assert_eq!(quota["spec"]["hard"], json!({"cpu": "1", "pods": "10"}));
    }
}
