//! Sets of field paths, and FieldsV1, their JSON form.
//!
//! A set is a tree: a node says whether its own path is in the set and holds the sets below it. In FieldsV1 a node is an object with one
//! key per child, and `".": {}` where the node itself is a member beside its children.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use wheelhouse_schema::Schema;

use super::path::{ParsePathElementError, PathElement};
use super::typed::{child_schema, is_atomic, is_named_field};

/// FieldsV1 nests at most this deep when read. Real objects stay below 30; the bound keeps the recursion off the end of the stack.
const MAX_DEPTH: usize = 100;

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    nodes: BTreeMap<PathElement, Node>,
}

/// What a set knows about one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub member: bool,
    pub children: Set,
}

/// Why a FieldsV1 is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    #[error("a field set must be a JSON object")]
    NotAnObject,
    #[error("a field set nests deeper than {MAX_DEPTH}")]
    TooDeep,
    #[error(transparent)]
    Element(#[from] ParsePathElementError),
}

impl Node {
    pub fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl Set {
    pub fn new() -> Self {
        Self::default()
    }

    /// From paths of plain field names, as reset fields and metadata are given.
    pub fn from_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(*name)).collect();
            set.insert(&path);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path; its parents are not added. The empty path is the whole object, which nobody owns.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.nodes.entry(first.clone()).or_default();
        if rest.is_empty() { node.member = true } else { node.children.insert(rest) }
    }

    /// Puts a node under an element, unless it is empty.
    pub fn put(&mut self, element: PathElement, node: Node) {
        if !node.is_empty() {
            self.nodes.insert(element, node);
        }
    }

    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.nodes.get(last).is_some_and(|n| n.member),
            [first, rest @ ..] => self.nodes.get(first).is_some_and(|n| n.children.contains(rest)),
        }
    }

    pub fn get(&self, element: &PathElement) -> Option<&Node> {
        self.nodes.get(element)
    }

    /// Adds all of another set.
    pub fn extend(&mut self, other: Self) {
        if self.nodes.is_empty() {
            self.nodes = other.nodes;
            return;
        }
        for (element, node) in other.nodes {
            let into = self.nodes.entry(element).or_default();
            into.member |= node.member;
            into.children.extend(node.children);
        }
    }

    /// Takes out the paths of another set, but not what lies below them: removing `a` leaves `a.b`.
    pub fn subtract(&mut self, other: &Self) {
        for (element, theirs) in &other.nodes {
            let Some(node) = self.nodes.get_mut(element) else { continue };
            node.member &= !theirs.member;
            node.children.subtract(&theirs.children);
            if node.is_empty() {
                self.nodes.remove(element);
            }
        }
    }

    /// As [`Set::subtract`], but a path takes all below it along.
    pub fn subtract_below(&mut self, other: &Self) {
        for (element, theirs) in &other.nodes {
            let Some(node) = self.nodes.get_mut(element) else { continue };
            if !theirs.member {
                node.children.subtract_below(&theirs.children);
            }
            if theirs.member || node.is_empty() {
                self.nodes.remove(element);
            }
        }
    }

    pub fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.extend(other.clone());
        out
    }

    pub fn difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.subtract(other);
        out
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let (small, large) = if self.nodes.len() <= other.nodes.len() { (self, other) } else { (other, self) };
        let mut out = Self::new();
        for (element, node) in &small.nodes {
            if let Some(found) = large.nodes.get(element) {
                let member = node.member && found.member;
                out.put(element.clone(), Node { member, children: node.children.intersection(&found.children) });
            }
        }
        out
    }

    /// Whether every path is also in the other set.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.nodes.iter().all(|(element, node)| match other.nodes.get(element) {
            Some(found) => (!node.member || found.member) && node.children.is_subset(&found.children),
            None => false,
        })
    }

    /// The set below an element, made if absent. What the caller leaves empty it must not leave behind.
    pub(super) fn below(&mut self, element: PathElement) -> &mut Self {
        &mut self.nodes.entry(element).or_default().children
    }

    /// Adds a node's paths at an element.
    pub(super) fn add(&mut self, element: PathElement, node: Node) {
        if node.is_empty() {
            return;
        }
        let into = self.nodes.entry(element).or_default();
        into.member |= node.member;
        into.children.extend(node.children);
    }

    /// Every path, a level's own members before what lies below them: the order of upstream's conflict messages.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>) {
        for element in self.nodes.iter().filter(|(_, node)| node.member).map(|(element, _)| element) {
            let mut path = prefix.clone();
            path.push(element.clone());
            out.push(path);
        }
        for (element, node) in self.nodes.iter().filter(|(_, node)| !node.children.is_empty()) {
            prefix.push(element.clone());
            node.children.collect(prefix, out);
            prefix.pop();
        }
    }

    /// Adds the struct fields that have members below them. Sets name them only through their children, but removing the last child must
    /// take the field along.
    pub fn with_named_fields(&self, schema: &Schema) -> Self {
        let mut out = Self::new();
        for (element, node) in &self.nodes {
            let named = matches!(element, PathElement::Field(name) if is_named_field(schema, name));
            let below = match element {
                PathElement::Field(name) => child_schema(schema, name),
                PathElement::Key(_) => schema.items().unwrap_or(&Schema::Any),
                _ => &Schema::Any,
            };
            let member = node.member || (named && !node.children.is_empty());
            out.put(element.clone(), Node { member, children: node.children.with_named_fields(below) });
        }
        out
    }

    /// Ownership recorded when the schema was granular, of what has become atomic since: the parts collapse into the whole.
    pub fn reconcile_with(&mut self, schema: &Schema) {
        for (element, node) in &mut self.nodes {
            if node.children.is_empty() {
                continue;
            }
            let below = match element {
                PathElement::Field(name) => child_schema(schema, name),
                _ => schema.items().unwrap_or(&Schema::Any),
            };
            if is_atomic(below) {
                *node = Node { member: true, children: Self::new() };
            } else {
                node.children.reconcile_with(below);
            }
        }
    }

    pub fn to_fields_v1(&self) -> Value {
        let mut map = Map::new();
        for (element, node) in &self.nodes {
            let mut below = node.children.to_fields_v1();
            if node.member
                && !node.children.is_empty()
                && let Value::Object(map) = &mut below
            {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            map.insert(element.encode(), below);
        }
        Value::Object(map)
    }

    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        Self::read(fields, 0).map(|node| node.children)
    }

    /// A node without children is a member; one with children only if it says so with a dot.
    fn read(fields: &Value, depth: usize) -> Result<Node, FieldsError> {
        if depth > MAX_DEPTH {
            return Err(FieldsError::TooDeep);
        }
        let map = fields.as_object().ok_or(FieldsError::NotAnObject)?;
        let mut node = Node::default();
        for (key, below) in map {
            if key == "." {
                node.member = true;
                continue;
            }
            let mut child = Self::read(below, depth + 1)?;
            child.member |= child.children.is_empty();
            node.children.nodes.insert(PathElement::decode(key)?, child);
        }
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn sets_combine() {
        let set = |paths: &[&[&str]]| Set::from_fields(paths);
        let a = set(&[&["a"], &["a", "b"], &["c"]]);
        assert_eq!(a.difference(&set(&[&["a"]])), set(&[&["a", "b"], &["c"]]));
        let mut below = a.clone();
        below.subtract_below(&set(&[&["a"]]));
        assert_eq!(below, set(&[&["c"]]));
        assert!(set(&[&["a", "b"]]).is_subset(&a) && !a.is_subset(&set(&[&["a"], &["c"]])));
        assert_eq!(a.intersection(&set(&[&["a", "b"], &["c", "d"]])), set(&[&["a", "b"]]));
        assert_eq!(a.to_fields_v1(), json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        assert!(a.contains(&[PathElement::field("a"), PathElement::field("b")]));
    }

    #[test]
    fn bad_fields_are_refused() {
        assert_eq!(Set::from_fields_v1(&json!([])), Err(FieldsError::NotAnObject));
        assert!(Set::from_fields_v1(&json!({"odd": {}})).is_err());
        let mut deep = json!({});
        for _ in 0..200 {
            deep = json!({"f:a": deep});
        }
        assert_eq!(Set::from_fields_v1(&deep), Err(FieldsError::TooDeep));
    }

    fn elements() -> impl Strategy<Value = PathElement> {
        prop_oneof![
            "[a-z./\"]{1,4}".prop_map(PathElement::Field),
            ("[a-z]{1,3}", "[a-z<\"]{0,3}").prop_map(|(k, v)| PathElement::Key(vec![(k, super::super::path::Scalar(v.into()))])),
            any::<i32>().prop_map(|v| PathElement::Value(super::super::path::Scalar(v.into()))),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn fields_v1_round_trips(paths in prop::collection::vec(prop::collection::vec(elements(), 1..5), 0..20)) {
            let mut set = Set::new();
            for path in &paths {
                set.insert(path);
            }
            prop_assert_eq!(Set::from_fields_v1(&set.to_fields_v1()), Ok(set.clone()));
            prop_assert!(paths.iter().all(|p| set.contains(p)));
            prop_assert!(set.difference(&set).is_empty());
            prop_assert_eq!(set.intersection(&set), set);
        }
    }
}
