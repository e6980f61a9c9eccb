//! What changed between two objects, as sets of paths.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use wheelhouse_schema::{List, Schema};

use super::path::PathElement;
use super::set::{Node, Set};
use super::typed::{Shape, associative, child_schema, is_atomic_map, named_items, shape, shared_names};

/// The difference between an old and a new object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub removed: Set,
    pub modified: Set,
    pub added: Set,
}

impl Comparison {
    /// Leaves out fields that are reset on every write, and all below them.
    pub(super) fn without(mut self, reset: &Set) -> Self {
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            set.subtract_below(reset);
        }
        self
    }
}

/// Compares two objects of one type. `metadata.managedFields`, which nobody owns, is passed over.
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
    fn add_to(&self, set: &mut Set, node: Node) {
        match self {
            // The whole object is nobody's; only what lies below it can be.
            Self::Root => set.extend(node.children),
            Self::Field(parent, name) => parent.below(set).add(PathElement::field(*name), node),
            Self::Item(parent, element) => parent.below(set).add((*element).clone(), node),
        }
    }

    fn below<'s>(&self, set: &'s mut Set) -> &'s mut Set {
        match self {
            Self::Root => set,
            Self::Field(parent, name) => parent.below(set).below(PathElement::field(*name)),
            Self::Item(parent, element) => parent.below(set).below((*element).clone()),
        }
    }

    fn is_metadata(&self) -> bool {
        matches!(self, Self::Field(Trail::Root, "metadata"))
    }
}

fn member() -> Node {
    Node { member: true, children: Set::new() }
}

fn walk(old: Option<&Value>, new: Option<&Value>, schema: &Schema, at: &Trail<'_>, out: &mut Comparison) {
    match (old, new) {
        (old, new) if old == new => return,
        (None, Some(new)) => return at.add_to(&mut out.added, every_path(new, schema)),
        (Some(old), None) => return at.add_to(&mut out.removed, every_path(old, schema)),
        _ => {}
    }
    // A value whose type changed, which only untyped ones can, is visited as both: its old parts go, its new parts come.
    let (left, right) = (shape(schema, old), shape(schema, new));
    visit(left, old, new, schema, at, out);
    if left != right {
        visit(right, old, new, schema, at, out);
    }
}

/// A value that is there on one side only: all its parts, down to the leaves, and the value itself.
fn every_path(value: &Value, schema: &Schema) -> Node {
    let mut children = Set::new();
    match (shape(schema, Some(value)), value) {
        (Shape::Map, Value::Object(map)) if !is_atomic_map(schema) => {
            for (key, item) in map {
                children.put(PathElement::field(key), every_path(item, child_schema(schema, key)));
            }
        }
        (Shape::List, Value::Array(items)) => {
            if let Some(list) = associative(schema) {
                let items = named_items(list, items);
                let shared = shared_names(&items);
                for (element, item) in items {
                    let node = if shared.contains(&element) { member() } else { every_path(item, &list.items) };
                    children.put(element, node);
                }
            }
        }
        _ => {}
    }
    Node { member: true, children }
}

fn visit(shape: Shape, old: Option<&Value>, new: Option<&Value>, schema: &Schema, at: &Trail<'_>, out: &mut Comparison) {
    match shape {
        Shape::Scalar => at.add_to(&mut out.modified, member()),
        Shape::Map => {
            let (left, right) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let both_empty = left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty);
            if is_atomic_map(schema) || both_empty {
                at.add_to(&mut out.modified, member());
            } else {
                walk_maps(left, right, schema, at, out);
            }
        }
        Shape::List => {
            let (left, right) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            let both_empty = left.is_none_or(Vec::is_empty) && right.is_none_or(Vec::is_empty);
            match associative(schema) {
                Some(list) if !both_empty => {
                    walk_lists(left.map_or(&[], Vec::as_slice), right.map_or(&[], Vec::as_slice), list, at, out);
                }
                _ => at.add_to(&mut out.modified, member()),
            }
        }
    }
}

fn walk_maps(old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, schema: &Schema, at: &Trail<'_>, out: &mut Comparison) {
    let is_passed_over = |key: &str| key == "managedFields" && at.is_metadata();
    for (key, value) in old.into_iter().flatten().filter(|(key, _)| !is_passed_over(key)) {
        walk(Some(value), new.and_then(|m| m.get(key)), child_schema(schema, key), &Trail::Field(at, key), out);
    }
    let is_new = |key: &String| !old.is_some_and(|m| m.contains_key(key)) && !is_passed_over(key);
    for (key, value) in new.into_iter().flatten().filter(|(key, _)| is_new(key)) {
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
            (2.., 2..) => item.add_to(&mut out.modified, member()),
            // Between one item and several of a name, the parts of the one and the item as a whole change hands.
            (2.., _) => {
                if let Some(only) = right.first() {
                    compare_one(None, Some(only));
                }
                item.add_to(&mut out.removed, member());
            }
            (_, 2..) => {
                if let Some(only) = left.first() {
                    compare_one(Some(only), None);
                }
                item.add_to(&mut out.added, member());
            }
        }
    }
}
