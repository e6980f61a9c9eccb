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

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use wheelhouse_schema::{Scalar, Schema};

use super::{PatchError, parse_object};
use crate::gotext::{plain, quote};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVES: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

type Object = Map<String, Value>;

/// Applies a strategic merge patch to an object of the given type.
pub fn strategic_merge_patch(target: &Value, patch: &[u8], schema: &Schema) -> Result<Value, PatchError> {
    let patch = parse_object(patch)?;
    let target = target.as_object().cloned().unwrap_or_default();
    strategic_merge(target, patch, schema).map(Value::Object)
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

/// Where the elements of a list are: maps by their merge key, scalars by themselves. Of equal ones the first counts.
struct Places<'a> {
    key: &'a str,
    are_maps: bool,
    by_name: HashMap<String, usize>,
}

impl<'a> Places<'a> {
    fn of(list: &[Value], key: &'a str, are_maps: bool) -> Self {
        let mut places = Self { key, are_maps, by_name: HashMap::with_capacity(list.len()) };
        for (i, element) in list.iter().enumerate() {
            places.insert(element, i);
        }
        places
    }

    /// The name as JSON, so that `1` and `"1"` differ. A map without the key has the name of an absent one.
    fn name(&self, element: &Value) -> String {
        match (self.are_maps, element.get(self.key)) {
            (false, _) => element.to_string(),
            (true, Some(value)) => value.to_string(),
            (true, None) => String::new(),
        }
    }

    fn insert(&mut self, element: &Value, at: usize) {
        let name = self.name(element);
        self.by_name.entry(name).or_insert(at);
    }

    fn find(&self, element: &Value) -> Option<usize> {
        self.by_name.get(&self.name(element)).copied()
    }
}

fn merge_scalars(old: Vec<Value>, new: Vec<Value>, deletes: bool) -> Vec<Value> {
    let in_patch = Places::of(&new, "", false);
    if deletes {
        return old.into_iter().filter(|v| in_patch.find(v).is_none()).collect();
    }
    let mut seen = HashSet::new();
    let merged: Vec<Value> = old.iter().chain(&new).filter(|v| seen.insert(v.to_string())).cloned().collect();
    let (patched, server_only): (Vec<Value>, Vec<Value>) = merged.into_iter().partition(|v| in_patch.find(v).is_some());
    let by_server = Places::of(&old, "", false);
    let patched = sort_by_order(patched, &in_patch);
    let server_only = sort_by_order(server_only, &by_server);
    interleave(server_only, patched, &by_server)
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

/// Executes every `$setElementOrder/field`, together with the patch's own list of that field, which it takes out of the patch.
fn set_element_order(target: &mut Object, patch: &mut Object, schema: &Schema) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = patch.remove(&directive).unwrap_or_default();
        let order = expect_array(order)?;
        let field = directive_field(&directive, SET_ELEMENT_ORDER, "invalid patch format of setElementOrder list")?;
        let old = target.get(&field).cloned().map(expect_array).transpose()?;
        let new = patch.get(&field).cloned().map(expect_array).transpose()?;
        let rule = rule(schema, &field)?;
        check_order(new.as_deref().unwrap_or_default(), &order, rule.key)?;

        let server_order = old.clone().unwrap_or_default();
        let types = [server_order.clone(), new.clone().unwrap_or_default()];
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => match without_directives(Value::Array(new)) {
                Some(Value::Array(new)) => new,
                _ => continue,
            },
            (Some(old), Some(new)) => merge_list(old, new, &rule, false)?,
        };
        let (listed, server_only) = partition(merged, &order, rule.key, !rule.key.is_empty())?;
        let are_maps = element_type(&[&types[0], &types[1]])?;
        let ordered = order_elements(listed, server_only, &order, &server_order, rule.key, are_maps)?;
        target.insert(field.clone(), Value::Array(ordered));
        patch.remove(&field);
    }
    Ok(())
}

/// The patch's elements must come in the order of the directive's list.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut kept: Vec<&Value> = Vec::with_capacity(patch.len());
    for element in patch {
        let deleted = !key.is_empty() && expect_object(element)?.get(DIRECTIVE).is_some_and(|d| d == "delete");
        if !deleted && element.get(DIRECTIVE).is_none() {
            kept.push(element);
        }
    }
    let (mut at, mut in_order) = (0, 0);
    while at < kept.len() && in_order < order.len() {
        if equal_by_key(kept[at], &order[in_order], key)? {
            at += 1;
        }
        in_order += 1;
    }
    if at < kept.len() {
        return Err(PatchError::Plain(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
            plain(&Value::Array(patch.to_vec())),
            plain(&Value::Array(order.to_vec())),
        )));
    }
    Ok(())
}

fn equal_by_key(left: &Value, right: &Value, key: &str) -> Result<bool, PatchError> {
    if key.is_empty() {
        return Ok(left == right);
    }
    let (left, right) = (expect_object(left)?, expect_object(right)?);
    let left = left.get(key).ok_or_else(|| no_merge_key(left, key))?;
    let right = right.get(key).ok_or_else(|| no_merge_key(right, key))?;
    Ok(left == right)
}

/// The elements that are in `by`, and the others.
fn partition(list: Vec<Value>, by: &[Value], key: &str, are_maps: bool) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    if are_maps {
        require_merge_key(&list, key)?;
        for element in by {
            expect_object(element)?;
        }
    }
    let by = Places::of(by, key, are_maps);
    Ok(list.into_iter().partition(|element| by.find(element).is_some()))
}

fn require_merge_key(list: &[Value], key: &str) -> Result<(), PatchError> {
    for element in list {
        let map = expect_object(element)?;
        if !map.contains_key(key) {
            return Err(no_merge_key(map, key));
        }
    }
    Ok(())
}

/// The patch's elements in the patch's order, the server's in its own, merged so that known pairs keep the server's order.
fn order_elements(
    patched: Vec<Value>,
    server_only: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: &str,
    are_maps: bool,
) -> Result<Vec<Value>, PatchError> {
    if are_maps {
        for list in [&patched, patch_order, &server_only, server_order] {
            require_merge_key(list, key)?;
        }
    }
    let by_server = Places::of(server_order, key, are_maps);
    let patched = sort_by_order(patched, &Places::of(patch_order, key, are_maps));
    let server_only = sort_by_order(server_only, &by_server);
    Ok(interleave(server_only, patched, &by_server))
}

/// Elements that the order does not name compare as less than everything: no total order, so those lists take an insertion sort, which
/// gives upstream's result.
fn sort_by_order(mut list: Vec<Value>, order: &Places<'_>) -> Vec<Value> {
    let mut deleted = Vec::new();
    if order.are_maps {
        (deleted, list) = list.into_iter().partition(|v| v.get(DIRECTIVE).is_some_and(|d| d == "delete"));
    }
    let places: Vec<Option<usize>> = list.iter().map(|v| order.find(v)).collect();
    let mut sequence: Vec<usize> = (0..list.len()).collect();
    if places.iter().all(Option::is_some) {
        sequence.sort_by_key(|i| places[*i]);
    } else {
        let less = |a: usize, b: usize| match (places[a], places[b]) {
            (Some(a), Some(b)) => a < b,
            _ => true,
        };
        for i in 1..sequence.len() {
            let mut j = i;
            while j > 0 && less(sequence[j], sequence[j - 1]) {
                sequence.swap(j, j - 1);
                j -= 1;
            }
        }
    }
    let mut sorted: Vec<Value> = sequence.into_iter().map(|i| std::mem::take(&mut list[i])).collect();
    sorted.append(&mut deleted);
    sorted
}

/// Merges two ordered lists; where both elements have a place in the server's order, the earlier one comes first, else the patch's.
fn interleave(server_only: Vec<Value>, patched: Vec<Value>, server: &Places<'_>) -> Vec<Value> {
    let mut merged = Vec::with_capacity(server_only.len() + patched.len());
    let mut left = server_only.into_iter().peekable();
    let mut right = patched.into_iter().peekable();
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => return merged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(l), Some(r)) => matches!((server.find(l), server.find(r)), (Some(l), Some(r)) if l < r),
        };
        merged.extend(if take_left { left.next() } else { right.next() });
    }
}

/// Whether the elements are maps. All must be of one type, and lists of lists have no meaning here.
fn element_type(lists: &[&[Value]]) -> Result<bool, PatchError> {
    let mut first: Option<&Value> = None;
    for value in lists.iter().flat_map(|l| l.iter()) {
        match first {
            None if value.is_array() => {
                return Err(PatchError::NotApplicable("lists of lists are not supported".to_owned()));
            }
            None => first = Some(value),
            Some(first) if same_type(first, value) => {}
            Some(_) => {
                let printed: Vec<String> = lists.iter().map(|l| plain(&Value::Array(l.to_vec()))).collect();
                return Err(PatchError::Plain(format!("list element types are not identical: [{}]", printed.join(" "))));
            }
        }
    }
    match first {
        Some(value) => Ok(value.is_object()),
        None => Err(PatchError::Plain("no elements in any of the given slices".to_owned())),
    }
}

fn same_type(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.is_f64() == b.is_f64(),
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

/// `None` if the value itself is a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            Some(Value::Object(map.into_iter().filter_map(|(k, v)| without_directives(v).map(|v| (k, v))).collect()))
        }
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
    key.strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('/'))
        .map(str::to_owned)
        .ok_or_else(|| PatchError::BadRequest(error.to_owned()))
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
mod tests {
    use super::*;
    use serde_json::json;
    use wheelhouse_schema::catalog;

    fn patch(target: Value, patch: Value) -> Result<Value, String> {
        let pod = &catalog().kind("", "v1", "Pod").expect("pods are in the table").schema;
        strategic_merge_patch(&target, patch.to_string().as_bytes(), pod).map_err(|e| e.to_string())
    }

    fn names(object: &Value) -> Vec<&str> {
        object["spec"]["containers"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect()
    }

    #[test]
    fn lists_merge_by_key_and_keep_their_order() {
        let live = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "c"}]}});
        let patched = patch(live.clone(), json!({"spec": {"containers": [{"name": "c", "image": "2"}, {"name": "new"}]}})).unwrap();
        assert_eq!(names(&patched), ["a", "b", "c", "new"]);
        assert_eq!(patched["spec"]["containers"][0]["image"], "1");
        let patched = patch(live.clone(), json!({"spec": {"containers": [{"name": "b", "$patch": "delete"}]}})).unwrap();
        assert_eq!(names(&patched), ["a", "c"]);
        let patched = patch(live.clone(), json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}})).unwrap();
        assert_eq!(names(&patched), ["z"]);
        let order = json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}});
        assert_eq!(names(&patch(live, order).unwrap()), ["b", "c", "a"]);
    }

    #[test]
    fn scalar_lists_merge_as_sets() {
        let live = json!({"metadata": {"finalizers": ["a", "b"]}});
        let patched = patch(live.clone(), json!({"metadata": {"finalizers": ["b", "c"]}})).unwrap();
        assert_eq!(patched["metadata"]["finalizers"], json!(["a", "b", "c"]));
        let patched = patch(live, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}})).unwrap();
        assert_eq!(patched["metadata"]["finalizers"], json!(["b"]));
    }

    #[test]
    fn bad_directives_are_refused() {
        let live = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}]}});
        let error = |p: Value| patch(live.clone(), p).unwrap_err();
        assert_eq!(error(json!({"spec": {"$patch": "odd"}})), "unknown patch type: odd in map: map[$patch:odd]");
        assert_eq!(
            error(json!({"spec": {"containers": [{"image": "x"}]}})),
            "map: map[image:x] does not contain declared merge key: name"
        );
        assert_eq!(
            error(json!({"spec": {"containers": ["x"]}})),
            "list element types are not identical: [[map[name:a]] [x]]"
        );
        assert_eq!(error(json!({"spec": {"$setElementOrder/containers": "x"}})), "expected a []interface {}, but received a string");
        assert_eq!(error(json!({"metadata": {"$deleteFromPrimitiveList": []}})), "invalid patch format of primitive list");
    }
}
