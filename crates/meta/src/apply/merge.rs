//! Merging an applied object into the live one: the applied value wins, what it does not mention stays.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use wheelhouse_schema::{List, Schema};

use super::path::PathElement;
use super::typed::{Shape, associative, child_schema, is_atomic_map, named_items, shape};

/// The live value with the applied one on top. `None` where nothing is left.
pub(super) fn merge(live: Option<&Value>, applied: Option<&Value>, schema: &Schema) -> Option<Value> {
    if live == applied {
        return live.cloned();
    }
    match shape(schema, applied.or(live)) {
        Shape::Scalar => leaf(live, applied),
        Shape::Map => {
            let (left, right) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            let both_empty = left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty);
            if is_atomic_map(schema) || both_empty {
                return leaf(live, applied);
            }
            let merged = merge_maps(left, right, schema);
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
        Shape::List => {
            let (left, right) = (live.and_then(Value::as_array), applied.and_then(Value::as_array));
            let both_empty = left.is_none_or(Vec::is_empty) && right.is_none_or(Vec::is_empty);
            match associative(schema) {
                Some(list) if !both_empty => {
                    let merged = merge_lists(left.map_or(&[], Vec::as_slice), right.map_or(&[], Vec::as_slice), list);
                    (!merged.is_empty()).then_some(Value::Array(merged))
                }
                _ => leaf(live, applied),
            }
        }
    }
}

fn leaf(live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    applied.or(live).cloned()
}

fn merge_maps(live: Option<&Map<String, Value>>, applied: Option<&Map<String, Value>>, schema: &Schema) -> Map<String, Value> {
    let mut merged = Map::new();
    let keys = live.into_iter().flat_map(Map::keys).chain(applied.into_iter().flat_map(Map::keys));
    for key in keys {
        if merged.contains_key(key) {
            continue;
        }
        let value = merge(live.and_then(|m| m.get(key)), applied.and_then(|m| m.get(key)), child_schema(schema, key));
        if let Some(value) = value {
            merged.insert(key.clone(), value);
        }
    }
    merged
}

/// Walks both lists together. Shared items come in the applied order; an item of the live list alone keeps its place before the next
/// shared one.
fn merge_lists(live: &[Value], applied: &[Value], list: &List) -> Vec<Value> {
    let left = named_items(list, live);
    let right = named_items(list, applied);
    let right_items: BTreeMap<&PathElement, &Value> = right.iter().map(|(e, v)| (e, *v)).collect();
    let mut left_items: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (element, value) in &left {
        // Items of one name cannot be told apart: such a one merges as if it were not there.
        left_items.entry(element).and_modify(|v| *v = None).or_insert(Some(value));
    }
    let mut shared = right.iter().map(|(e, _)| e).filter(|e| left_items.contains_key(e));
    let mut next_shared = shared.next();
    let mut merged_names: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let merge_item = |element: &PathElement| {
        let live = left_items.get(element).copied().flatten();
        merge(live, right_items.get(element).copied(), &list.items)
    };

    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() {
            let element = &left[l].0;
            if *element == right[r].0 {
                merged_names.insert(&right[r].0);
                out.extend(merge_item(element));
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if right_items.contains_key(element) && next_shared.is_some_and(|next| next != element) {
                // Shared, but not its turn yet: it comes where the applied list has it.
                l += 1;
                continue;
            }
        }
        if l < left.len() {
            let (element, value) = &left[l];
            if !right_items.contains_key(element) {
                out.extend(merge(Some(value), None, &list.items));
                l += 1;
                continue;
            }
            if merged_names.contains(element) {
                l += 1;
            }
        }
        if r < right.len() {
            let element = &right[r].0;
            merged_names.insert(element);
            out.extend(merge_item(element));
            r += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    out
}
