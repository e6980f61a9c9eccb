//! What changed between two objects, as sets of paths.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use wheelhouse_schema::{List, Schema};

use super::path::PathElement;
use super::set::Set;
use super::typed::{Shape, associative, child_schema, is_atomic_map, named_items, shape};

/// The difference between an old and a new object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub removed: Set,
    pub modified: Set,
    pub added: Set,
}

impl Comparison {
    /// Leaves out fields that are reset on every write, and all below them.
    pub(super) fn without(&self, reset: &Set) -> Self {
        Self {
            removed: self.removed.recursive_difference(reset),
            modified: self.modified.recursive_difference(reset),
            added: self.added.recursive_difference(reset),
        }
    }

    pub(super) fn changed(&self) -> Set {
        self.modified.union(&self.added)
    }
}

pub(super) fn compare(old: &Value, new: &Value, schema: &Schema) -> Comparison {
    let mut comparison = Comparison::default();
    walk(Some(old), Some(new), schema, &Trail::Root, &mut comparison);
    comparison
}

/// The way down, on the stack: a path is built only where something changed.
enum Trail<'a> {
    Root,
    Field(&'a Trail<'a>, &'a str),
    Item(&'a Trail<'a>, &'a PathElement),
}

impl Trail<'_> {
    fn path(&self) -> Vec<PathElement> {
        match self {
            Self::Root => Vec::new(),
            Self::Field(parent, name) => {
                let mut path = parent.path();
                path.push(PathElement::field(*name));
                path
            }
            Self::Item(parent, element) => {
                let mut path = parent.path();
                path.push((*element).clone());
                path
            }
        }
    }
}

fn walk(old: Option<&Value>, new: Option<&Value>, schema: &Schema, at: &Trail<'_>, out: &mut Comparison) {
    if old == new {
        return;
    }
    // A value whose type changed, which only untyped ones can, is visited as both: its old parts go, its new parts come.
    let (left, right) = (shape(schema, old), shape(schema, new));
    let is_leaf = match (old, new) {
        (Some(_), Some(_)) if left != right => {
            let left_is_leaf = visit(left, old, new, schema, at, out);
            visit(right, old, new, schema, at, out) || left_is_leaf
        }
        (_, Some(_)) => visit(right, old, new, schema, at, out),
        _ => visit(left, old, new, schema, at, out),
    };
    if is_leaf {
        return;
    }
    match (old, new) {
        (None, _) => out.added.insert(&at.path()),
        (_, None) => out.removed.insert(&at.path()),
        _ => {}
    }
}

/// Descends; true if the value was taken as a whole.
fn visit(shape: Shape, old: Option<&Value>, new: Option<&Value>, schema: &Schema, at: &Trail<'_>, out: &mut Comparison) -> bool {
    match shape {
        Shape::Scalar => leaf(old, new, at, out),
        Shape::Map => {
            let (left, right) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let both_empty = left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty);
            if is_atomic_map(schema) || both_empty {
                return leaf(old, new, at, out);
            }
            walk_maps(left, right, schema, at, out);
            false
        }
        Shape::List => {
            let (left, right) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            let both_empty = left.is_none_or(Vec::is_empty) && right.is_none_or(Vec::is_empty);
            match associative(schema) {
                Some(list) if !both_empty => {
                    walk_lists(left.map_or(&[], Vec::as_slice), right.map_or(&[], Vec::as_slice), list, at, out);
                    false
                }
                _ => leaf(old, new, at, out),
            }
        }
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>, at: &Trail<'_>, out: &mut Comparison) -> bool {
    match (old, new) {
        (None, _) => out.added.insert(&at.path()),
        (_, None) => out.removed.insert(&at.path()),
        (Some(old), Some(new)) if old != new => out.modified.insert(&at.path()),
        _ => {}
    }
    true
}

fn walk_maps(
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    schema: &Schema,
    at: &Trail<'_>,
    out: &mut Comparison,
) {
    for (key, value) in old.into_iter().flatten() {
        walk(Some(value), new.and_then(|m| m.get(key)), child_schema(schema, key), &Trail::Field(at, key), out);
    }
    for (key, value) in new.into_iter().flatten().filter(|(key, _)| !old.is_some_and(|m| m.contains_key(*key))) {
        walk(None, Some(value), child_schema(schema, key), &Trail::Field(at, key), out);
    }
}

fn walk_lists(old: &[Value], new: &[Value], list: &List, at: &Trail<'_>, out: &mut Comparison) {
    let mut names: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for (element, value) in named_items(list, old) {
        names.entry(element).or_default().0.push(value);
    }
    for (element, value) in named_items(list, new) {
        names.entry(element).or_default().1.push(value);
    }
    for (element, (left, right)) in &names {
        let item = Trail::Item(at, element);
        let mut compare_one = |l: Option<&&Value>, r: Option<&&Value>| walk(l.copied(), r.copied(), &list.items, &item, out);
        match (left.len(), right.len()) {
            (0 | 1, 0 | 1) => compare_one(left.first(), right.first()),
            (2.., 2..) if left == right => {}
            (2.., 2..) => out.modified.insert(&item.path()),
            // Between one item and several of a name, the parts of the one and the item as a whole change hands.
            (2.., _) => {
                if let Some(only) = right.first() {
                    compare_one(None, Some(only));
                }
                out.removed.insert(&item.path());
            }
            (_, 2..) => {
                if let Some(only) = left.first() {
                    compare_one(Some(only), None);
                }
                out.added.insert(&item.path());
            }
        }
    }
}
