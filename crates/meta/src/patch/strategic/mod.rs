//! Strategic merge patch: merge by type, with directives.
//!
//! The schema says for each list whether a patch replaces or merges it, and by which key. Directives in the patch change that:
//!
//! ```text
//! $patch: replace | delete          on a map, or as an element of a list of maps
//! $retainKeys: [a, b]               drops every other key of a map
//! $deleteFromPrimitiveList/f: [..]  removes scalars from the merged list f
//! $setElementOrder/f: [..]          orders the merged list f
//! ```
//!
//! Merging a list keeps the server's order for elements that the patch does not name and the patch's order for those it does. The rules
//! are those of the Kubernetes API document on strategic merge patch; error texts and corner cases are upstream's.

mod order;

use std::collections::HashSet;

use serde_json::{Map, Value};
use wheelhouse_schema::{Scalar, Schema};

use self::order::{Places, element_type, merge_scalars, order_elements, partition, same_type, set_element_order};
use super::{PatchError, convert, parse_object};
use crate::gotext::{plain, quote};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVES: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

type Object = Map<String, Value>;

/// Applies a strategic merge patch to an object of the given type. The result fits the type but for what decoding checks.
pub fn strategic_merge_patch(target: &Value, patch: &[u8], schema: &Schema) -> Result<Value, PatchError> {
    let patch = parse_object(patch)?;
    let target = target.as_object().cloned().unwrap_or_default();
    let merged = Value::Object(strategic_merge(target, patch.clone(), schema)?);
    convert::check(&merged, schema).map_err(|reason| PatchError::unconvertible(&Value::Object(patch), reason))?;
    Ok(merged)
}

/// The same over parsed maps.
pub fn strategic_merge(target: Object, patch: Object, schema: &Schema) -> Result<Object, PatchError> {
    merge_map(target, patch, schema)
}

/// How the schema merges one field.
struct Rule<'a> {
    schema: &'a Schema,
    merges: bool,
    replaces: bool,
    key: &'a str,
}

fn rule<'a>(schema: &'a Schema, field: &str) -> Result<Rule<'a>, PatchError> {
    let unknown = |name: &str| {
        let field = quote(field);
        PatchError::Plain(format!("unable to find api field in struct {name} for the json field {field}"))
    };
    match schema {
        Schema::Struct(s) => {
            let name = s.go_name.rsplit('.').next().unwrap_or_default();
            let field = s.field(field).ok_or_else(|| unknown(name))?;
            Ok(Rule {
                schema: &field.schema,
                merges: field.patch.merge,
                replaces: field.patch.replace,
                key: field.merge_key.as_deref().unwrap_or_default(),
            })
        }
        Schema::Map(map) => Ok(Rule { schema: &map.values, merges: false, replaces: false, key: "" }),
        Schema::Scalar(Scalar::RawObject) => Err(unknown("RawExtension")),
        Schema::Scalar(Scalar::FieldsV1) => Err(unknown("FieldsV1")),
        Schema::Any => Err(unknown("JSON")),
        other => Ok(Rule { schema: other, merges: false, replaces: false, key: "" }),
    }
}

fn merge_map(mut target: Object, mut patch: Object, schema: &Schema) -> Result<Object, PatchError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Object::new()),
            _ => {
                patch.insert(DIRECTIVE.to_owned(), directive.clone());
                Err(bad_directive(&directive, patch))
            }
        };
    }
    retain_keys(&mut target, &mut patch)?;
    set_element_order(&mut target, &mut patch, schema)?;

    for (mut key, value) in patch {
        let deletes = key.starts_with(DELETE_FROM_PRIMITIVES);
        if deletes {
            key = directive_field(&key, DELETE_FROM_PRIMITIVES, "invalid patch format of primitive list")?;
        }
        if value.is_null() {
            target.remove(&key);
            continue;
        }
        let merged = match (target.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let rule = rule(schema, &key)?;
                Some(Value::Object(if rule.replaces { new } else { merge_map(old, new, rule.schema)? }))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let rule = rule(schema, &key)?;
                Some(Value::Array(merge_list(old, new, &rule, deletes)?))
            }
            (Some(old), new) if deletes && !same_type(&old, &new) => Some(old),
            (None, _) if deletes => None,
            (_, mut new) => {
                discard_nulls(&mut new);
                without_directives(new)
            }
        };
        if let Some(merged) = merged {
            target.insert(key, merged);
        }
    }
    Ok(target)
}

/// Merges a list as its field's strategy says.
fn merge_list(old: Vec<Value>, new: Vec<Value>, rule: &Rule<'_>, deletes: bool) -> Result<Vec<Value>, PatchError> {
    if !rule.merges && !deletes {
        return Ok(new);
    }
    if old.is_empty() && new.is_empty() {
        return Ok(old);
    }
    if !element_type(&[&old, &new])? {
        return Ok(merge_scalars(old, new, deletes));
    }
    if rule.key.is_empty() {
        let name = rule.schema.items().and_then(Schema::as_struct).map_or("", |s| s.go_name.rsplit('.').next().unwrap_or_default());
        return Err(PatchError::Plain(format!("cannot merge lists without merge key for {name}")));
    }
    let item_schema = rule.schema.items().unwrap_or(&Schema::Any);
    let (old, new) = apply_special_elements(old, new, rule.key)?;
    let mut places = Places::of(&old, rule.key, true);
    let mut merged = old.clone();
    for element in &new {
        let map = expect_object(element)?;
        if !map.contains_key(rule.key) {
            return Err(no_merge_key(map, rule.key));
        }
        match places.find(element) {
            Some(at) => {
                let old = match std::mem::take(&mut merged[at]) {
                    Value::Object(old) => old,
                    _ => Object::new(),
                };
                merged[at] = Value::Object(merge_map(old, map.clone(), item_schema)?);
            }
            None => {
                places.insert(element, merged.len());
                merged.push(element.clone());
            }
        }
    }
    let (patched, server_only) = partition(merged, &new, rule.key, true)?;
    order_elements(patched, server_only, &new, &old, rule.key, true)
}

/// Executes the elements of a patch that are directives, and returns the target's list and the patch's other elements.
fn apply_special_elements(mut old: Vec<Value>, new: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut ordinary = Vec::with_capacity(new.len());
    let mut replaces = false;
    let mut deleted = HashSet::new();
    for element in new {
        let map = expect_object(&element)?;
        let Some(directive) = map.get(DIRECTIVE) else {
            ordinary.push(element);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                deleted.insert(map.get(key).ok_or_else(|| no_merge_key(map, key))?.to_string());
            }
            Some("replace") => replaces = true,
            Some("merge") => {
                return Err(PatchError::Plain("merging lists cannot yet be specified in the patch".to_owned()));
            }
            _ => return Err(bad_directive(directive, map.clone())),
        }
    }
    if !deleted.is_empty() {
        old.retain(|element| !element.get(key).is_some_and(|value| deleted.contains(&value.to_string())));
    }
    Ok(if replaces { (ordinary, Vec::new()) } else { (old, ordinary) })
}

fn retain_keys(target: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(list) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || PatchError::BadRequest("invalid patch format of retainKeys".to_owned());
    let kept: Vec<&str> = list.as_array().ok_or_else(bad)?.iter().filter_map(Value::as_str).collect();
    for (key, value) in patch.iter() {
        let is_directive = key.starts_with(DELETE_FROM_PRIMITIVES) || key.starts_with(SET_ELEMENT_ORDER);
        if !value.is_null() && !is_directive && !kept.contains(&key.as_str()) {
            return Err(bad());
        }
    }
    target.retain(|key, _| kept.contains(&key.as_str()));
    Ok(())
}

/// `None` if the value itself is a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => Some(Value::Object(map.into_iter().filter_map(|(k, v)| without_directives(v).map(|v| (k, v))).collect())),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn directive_field(key: &str, prefix: &str, error: &str) -> Result<String, PatchError> {
    key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned).ok_or_else(|| PatchError::BadRequest(error.to_owned()))
}

fn expect_object(value: &Value) -> Result<&Object, PatchError> {
    value.as_object().ok_or_else(|| bad_type("map[string]interface {}", value))
}

fn expect_array(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(bad_type("[]interface {}", &other)),
    }
}

fn bad_type(expected: &str, found: &Value) -> PatchError {
    let found = match found {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    PatchError::Plain(format!("expected a {expected}, but received a {found}"))
}

fn no_merge_key(map: &Object, key: &str) -> PatchError {
    let map = plain(&Value::Object(map.clone()));
    PatchError::Plain(format!("map: {map} does not contain declared merge key: {key}"))
}

fn bad_directive(directive: &Value, map: Object) -> PatchError {
    PatchError::Plain(format!("unknown patch type: {} in map: {}", plain(directive), plain(&Value::Object(map))))
}

#[cfg(test)]
mod tests;
