//! Removing a set of paths from an object.

use serde_json::{Map, Value};
use wheelhouse_schema::Schema;

use super::path::PathElement;
use super::set::Set;
use super::typed::{Shape, associative, child_schema, is_atomic_map, item_element, shape};

/// The object without the paths. A list or map that loses everything becomes null.
pub(super) fn remove_items(value: &Value, items: &Set, schema: &Schema) -> Value {
    match (shape(schema, Some(value)), value) {
        (Shape::Scalar, value) => value.clone(),
        (Shape::Map, Value::Object(map)) if !is_atomic_map(schema) => {
            let kept: Map<String, Value> = map
                .iter()
                .filter_map(|(key, item)| {
                    remove_one(item, &PathElement::field(key), items, child_schema(schema, key)).map(|item| (key.clone(), item))
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Shape::List, Value::Array(list_items)) => {
            let Some(list) = associative(schema) else { return Value::Null };
            let kept: Vec<Value> = list_items
                .iter()
                .filter_map(|item| match item_element(list, item) {
                    Ok(element) => remove_one(item, &element, items, &list.items),
                    Err(_) => Some(item.clone()),
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        _ => Value::Null,
    }
}

fn remove_one(item: &Value, element: &PathElement, items: &Set, schema: &Schema) -> Option<Value> {
    match items.get(element) {
        None => Some(item.clone()),
        Some(node) if node.member => None,
        Some(node) => Some(remove_items(item, &node.children, schema)),
    }
}
