//! Values seen through a schema: which parts are atomic, how list items are named, what a client's object owns, and what is wrong with it.
//!
//! A value without a schema is typed by its looks: objects merge by key, lists are atomic.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use wheelhouse_schema::{List, ListKind, Scalar as ScalarType, Schema};

use super::path::{PathElement, Scalar};
use super::set::{Node, Set};
use crate::gotext::{plain, quote};

/// Which of the three merge rules a value follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Map,
    List,
    Scalar,
}

/// The rule for a value of this schema; untyped values decide by themselves, and an untyped null counts as a map.
pub(super) fn shape(schema: &Schema, value: Option<&Value>) -> Shape {
    match schema {
        Schema::Struct(_) | Schema::Map(_) | Schema::Scalar(ScalarType::RawObject | ScalarType::FieldsV1) => Shape::Map,
        Schema::List(_) => Shape::List,
        Schema::Scalar(_) => Shape::Scalar,
        Schema::Any | Schema::Choice(_) => match value {
            Some(Value::Array(_)) => Shape::List,
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Shape::Scalar,
            _ => Shape::Map,
        },
    }
}

pub(super) fn is_atomic_map(schema: &Schema) -> bool {
    match schema {
        Schema::Struct(s) => s.atomic,
        Schema::Map(m) => m.atomic,
        Schema::Scalar(ScalarType::RawObject | ScalarType::FieldsV1) => true,
        _ => false,
    }
}

/// The list's schema if its items have an identity.
pub(super) fn associative(schema: &Schema) -> Option<&List> {
    schema.as_list().filter(|list| list.kind != ListKind::Atomic)
}

/// Whether a set can own only the whole: atomic lists, maps and structs.
pub(super) fn is_atomic(schema: &Schema) -> bool {
    is_atomic_map(schema) || schema.as_list().is_some_and(|list| list.kind == ListKind::Atomic)
}

/// Whether the name is a declared field, as against a key of a map.
pub(super) fn is_named_field(schema: &Schema, name: &str) -> bool {
    schema.field(name).is_some()
}

/// The schema under a key; undeclared ones are untyped.
pub(super) fn child_schema<'a>(schema: &'a Schema, key: &str) -> &'a Schema {
    schema.child(key).unwrap_or(&Schema::Any)
}

/// How an item of a set or associative list is named in paths.
pub(super) fn item_element(list: &List, item: &Value) -> Result<PathElement, String> {
    if list.kind == ListKind::Set {
        return match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(PathElement::Value(Scalar(scalar.clone()))),
        };
    }
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut key = Vec::with_capacity(list.keys.len());
    for name in &list.keys {
        let value = map.get(name.as_ref()).cloned().or_else(|| default_of(list, name));
        key.extend(value.map(|v| (name.to_string(), Scalar(v))));
    }
    if key.is_empty() {
        let names: Vec<String> = list.keys.iter().map(|k| quote(k)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    key.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(PathElement::Key(key))
}

fn default_of(list: &List, name: &str) -> Option<Value> {
    list.items.field(name)?.default.as_deref().cloned()
}

/// The items with their names; items without one are left out, which only objects that were never validated have.
pub(super) fn named_items<'a>(list: &List, items: &'a [Value]) -> Vec<(PathElement, &'a Value)> {
    items.iter().filter_map(|item| item_element(list, item).ok().map(|element| (element, item))).collect()
}

/// The names that several items share. Nobody can own parts of such an item.
pub(super) fn shared_names(items: &[(PathElement, &Value)]) -> BTreeSet<PathElement> {
    let mut seen = BTreeSet::new();
    items.iter().filter(|(element, _)| !seen.insert(element)).map(|(element, _)| element.clone()).collect()
}

/// What an object that a client sends claims to own.
pub(super) fn field_set(value: &Value, schema: &Schema) -> Set {
    field_node(value, schema).children
}

fn member() -> Node {
    Node { member: true, children: Set::new() }
}

fn field_node(value: &Value, schema: &Schema) -> Node {
    match shape(schema, Some(value)) {
        Shape::Scalar => member(),
        Shape::Map if is_atomic_map(schema) => member(),
        Shape::Map => Node { member: false, children: map_fields(value, schema) },
        Shape::List => match associative(schema) {
            None => member(),
            Some(list) => Node { member: false, children: list_fields(value, list) },
        },
    }
}

fn map_fields(value: &Value, schema: &Schema) -> Set {
    let mut set = Set::new();
    for (key, item) in value.as_object().into_iter().flatten() {
        let mut node = field_node(item, child_schema(schema, key));
        let is_empty = item.is_null() || item.as_object().is_some_and(Map::is_empty);
        node.member |= is_empty || !is_named_field(schema, key);
        set.put(PathElement::field(key), node);
    }
    set
}

fn list_fields(value: &Value, list: &List) -> Set {
    let items = named_items(list, value.as_array().map(Vec::as_slice).unwrap_or_default());
    let shared = shared_names(&items);
    let mut set = Set::new();
    for (element, item) in items {
        let node = if shared.contains(&element) { member() } else { Node { member: true, ..field_node(item, &list.items) } };
        set.put(element, node);
    }
    set
}

/// Everything wrong with an object that a client applies, with upstream's paths and texts; one error bare, several as a list.
pub(super) fn validate(value: &Value, schema: &Schema) -> Result<(), String> {
    let mut errors = Vec::new();
    check(value, schema, &mut String::new(), &mut errors);
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.remove(0)),
        _ => Err(format!("errors:\n  {}", errors.join("\n  "))),
    }
}

fn report(errors: &mut Vec<String>, path: &str, text: impl std::fmt::Display) {
    errors.push(if path.is_empty() { text.to_string() } else { format!("{path}: {text}") });
}

fn check(value: &Value, schema: &Schema, path: &mut String, errors: &mut Vec<String>) {
    match (shape(schema, Some(value)), value) {
        (_, Value::Null) => {}
        (Shape::Map, Value::Object(map)) => check_map(map, schema, path, errors),
        (Shape::List, Value::Array(items)) => check_list(items, schema, path, errors),
        (Shape::Map, other) => report(errors, path, format_args!("expected map, got &{{{}}}", plain(other))),
        (Shape::List, other) => report(errors, path, format_args!("expected list, got &{{{}}}", plain(other))),
        (Shape::Scalar, value) => check_scalar(value, schema, path, errors),
    }
}

fn check_map(map: &Map<String, Value>, schema: &Schema, path: &mut String, errors: &mut Vec<String>) {
    let length = path.len();
    for (key, item) in map {
        path.push('.');
        path.push_str(key);
        let is_declared = match schema {
            Schema::Struct(s) => {
                let is_implied = s.embedded_resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
                s.preserve_unknown || is_implied || s.field(key).is_some()
            }
            _ => true,
        };
        if is_declared {
            check(item, child_schema(schema, key), path, errors);
        } else {
            report(errors, path, "field not declared in schema");
        }
        path.truncate(length);
        if !is_declared {
            return;
        }
    }
}

fn check_list(items: &[Value], schema: &Schema, path: &mut String, errors: &mut Vec<String>) {
    let length = path.len();
    let list = associative(schema);
    let item_schema = schema.items().unwrap_or(&Schema::Any);
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let element = match list.map(|list| item_element(list, item)) {
            None => PathElement::Index(i64::try_from(i).unwrap_or(i64::MAX)),
            Some(Ok(element)) => {
                if !seen.insert(element.clone()) {
                    report(errors, path, format_args!("duplicate entries for key {element}"));
                }
                element
            }
            Some(Err(error)) => {
                report(errors, path, format_args!("element {i}: {error}"));
                return;
            }
        };
        path.push_str(&element.to_string());
        check(item, item_schema, path, errors);
        path.truncate(length);
    }
}

fn check_scalar(value: &Value, schema: &Schema, path: &str, errors: &mut Vec<String>) {
    let Schema::Scalar(scalar) = schema else { return };
    match scalar {
        ScalarType::Int32 | ScalarType::Int64 | ScalarType::Float if !value.is_number() => {
            report(errors, path, format_args!("expected numeric (int or float), got {}", go_type(value)));
        }
        ScalarType::String | ScalarType::Bytes if !value.is_string() => {
            report(errors, path, format_args!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)));
        }
        ScalarType::Bool if !value.is_boolean() => {
            report(errors, path, format_args!("expected boolean, got &{{{}}}", plain(value)));
        }
        _ if value.is_object() || value.is_array() => {
            report(errors, path, format_args!("expected any scalar, got &{{{}}}", plain(value)));
        }
        _ => {}
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(s) => quote(s),
        Value::Array(items) => format!("[]interface {{}}{{{}}}", items.iter().map(go_syntax).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let fields: Vec<String> = map.iter().map(|(k, v)| format!("{}:{}", quote(k), go_syntax(v))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => plain(other),
    }
}
