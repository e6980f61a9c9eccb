//! What every API object has: type, metadata and their accessors.
//!
//! In the generic path an object is a `Value`; [`Object`] reads it without copying. [`PartialObject`] reads the same fields out of
//! bytes and skips the rest, for indexes and precondition checks that need no whole object.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use wheelhouse_base::Timestamp;

use crate::gvk::{GroupVersion, GroupVersionKind};
use crate::time;

/// The longest name that `generateName` makes: a DNS label, so that any kind can take it.
const GENERATED_NAME_MAX: usize = 63;
/// The characters after the prefix.
const SUFFIX_LENGTH: usize = 5;
/// No vowels and no look-alikes, so that a suffix spells nothing and reads well.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Read access to an object that is a `Value`. Absent, null and wrongly typed fields read as empty.
pub trait Object {
    fn field(&self, name: &str) -> Option<&Value>;
    fn metadata(&self) -> Option<&Map<String, Value>>;
    /// `metadata`, made if absent.
    fn metadata_mut(&mut self) -> &mut Map<String, Value>;

    fn meta_text(&self, name: &str) -> &str {
        self.metadata().and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or_default()
    }

    fn meta_map(&self, name: &str) -> Option<&Map<String, Value>> {
        self.metadata().and_then(|m| m.get(name)).and_then(Value::as_object)
    }

    fn meta_list(&self, name: &str) -> &[Value] {
        self.metadata().and_then(|m| m.get(name)).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    fn api_version(&self) -> &str {
        self.field("apiVersion").and_then(Value::as_str).unwrap_or_default()
    }

    fn kind(&self) -> &str {
        self.field("kind").and_then(Value::as_str).unwrap_or_default()
    }

    /// Group, version and kind; `None` if `apiVersion` has two slashes.
    fn group_version_kind(&self) -> Option<GroupVersionKind> {
        GroupVersion::parse(self.api_version()).ok().map(|gv| gv.with_kind(self.kind()))
    }

    fn name(&self) -> &str {
        self.meta_text("name")
    }

    fn namespace(&self) -> &str {
        self.meta_text("namespace")
    }

    fn uid(&self) -> &str {
        self.meta_text("uid")
    }

    fn resource_version(&self) -> &str {
        self.meta_text("resourceVersion")
    }

    fn generation(&self) -> i64 {
        self.metadata().and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or(0)
    }

    fn labels(&self) -> Option<&Map<String, Value>> {
        self.meta_map("labels")
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels().and_then(|l| l.get(key)).and_then(Value::as_str)
    }

    fn annotations(&self) -> Option<&Map<String, Value>> {
        self.meta_map("annotations")
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations().and_then(|a| a.get(key)).and_then(Value::as_str)
    }

    fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.meta_list("finalizers").iter().filter_map(Value::as_str)
    }

    fn owner_references(&self) -> impl Iterator<Item = OwnerRef<'_>> {
        self.meta_list("ownerReferences").iter().map(OwnerRef::from_value)
    }

    /// The one owner with `controller: true`.
    fn controller(&self) -> Option<OwnerRef<'_>> {
        self.owner_references().find(|o| o.controller)
    }

    fn creation_timestamp(&self) -> Option<Timestamp> {
        time::from_json(self.metadata().and_then(|m| m.get("creationTimestamp")))
    }

    fn deletion_timestamp(&self) -> Option<Timestamp> {
        time::from_json(self.metadata().and_then(|m| m.get("deletionTimestamp")))
    }

    fn is_being_deleted(&self) -> bool {
        self.metadata().and_then(|m| m.get("deletionTimestamp")).is_some_and(|t| !t.is_null())
    }
}

impl Object for Value {
    fn field(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }

    fn metadata(&self) -> Option<&Map<String, Value>> {
        self.get("metadata").and_then(Value::as_object)
    }

    fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        if !self.is_object() {
            *self = Value::Object(Map::new());
        }
        let map = self.as_object_mut().expect("made an object above");
        let metadata = map.entry("metadata").or_insert(Value::Null);
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        metadata.as_object_mut().expect("made an object above")
    }
}

/// An owner reference, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRef<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

impl<'a> OwnerRef<'a> {
    pub fn from_value(value: &'a Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or_default();
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controller: flag("controller"),
            block_owner_deletion: flag("blockOwnerDeletion"),
        }
    }
}

/// Type and metadata of an object whose other fields were skipped.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialObject {
    #[serde(deserialize_with = "null_as_default")]
    pub api_version: String,
    #[serde(deserialize_with = "null_as_default")]
    pub kind: String,
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
}

/// The metadata that generic code needs. `managedFields` are skipped: they are large and of use to apply only.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    #[serde(deserialize_with = "null_as_default")]
    pub generate_name: String,
    #[serde(deserialize_with = "null_as_default")]
    pub namespace: String,
    #[serde(deserialize_with = "null_as_default")]
    pub uid: String,
    #[serde(deserialize_with = "null_as_default")]
    pub resource_version: String,
    #[serde(deserialize_with = "null_as_default")]
    pub generation: i64,
    pub creation_timestamp: Option<String>,
    pub deletion_timestamp: Option<String>,
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub owner_references: Vec<OwnerReference>,
    #[serde(deserialize_with = "null_as_default")]
    pub finalizers: Vec<String>,
}

/// An owner reference, owned, written in upstream's field order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl PartialObject {
    pub fn from_slice(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

fn null_as_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A name out of a `generateName`: the prefix, cut to leave room, and five characters chosen by `random`, which should be uniform.
pub fn generate_name(prefix: &str, random: u64) -> String {
    let mut end = prefix.len().min(GENERATED_NAME_MAX - SUFFIX_LENGTH);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &prefix[..end], random_suffix(random))
}

/// Five characters that spell nothing.
pub fn random_suffix(mut random: u64) -> String {
    let base = SUFFIX_ALPHABET.len() as u64;
    (0..SUFFIX_LENGTH)
        .map(|_| {
            let digit = SUFFIX_ALPHABET[(random % base) as usize];
            random /= base;
            char::from(digit)
        })
        .collect()
}

/// Sets what the server alone decides about a new object. `uid` is a version 4 UUID in lower case.
pub fn fill_system_fields(object: &mut Value, uid: &str, now: Timestamp) {
    let metadata = object.metadata_mut();
    metadata.insert("uid".to_owned(), Value::from(uid));
    metadata.insert("creationTimestamp".to_owned(), Value::from(time::rfc3339(now)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn accessors_read_what_is_there() {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": "a", "generation": 3, "labels": {"l": "1"}, "finalizers": ["x"], "deletionTimestamp": "2024-01-01T00:00:00Z",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "K", "name": "other", "uid": "1"},
                    {"apiVersion": "v1", "kind": "K", "name": "boss", "uid": "2", "controller": true},
                ],
            },
        });
        assert_eq!((object.name(), object.namespace(), object.generation()), ("a", "", 3));
        assert_eq!(object.label("l"), Some("1"));
        assert_eq!(object.controller().map(|o| o.name), Some("boss"));
        assert_eq!(object.finalizers().collect::<Vec<_>>(), ["x"]);
        assert!(object.is_being_deleted());
        assert_eq!(object.group_version_kind(), Some(GroupVersionKind::new("apps", "v1", "ReplicaSet")));
        fill_system_fields(&mut object, "u", Timestamp::from_secs(0));
        assert_eq!(object.uid(), "u");
        assert_eq!(object.creation_timestamp(), Some(Timestamp::from_secs(0)));
    }

    #[test]
    fn partial_objects_skip_the_rest() {
        let json = br#"{"kind":"Pod","metadata":{"name":"a","labels":null,"managedFields":[{"x":1}],"uid":"u"},"spec":{"big":[1,2,3]}}"#;
        let partial = PartialObject::from_slice(json).unwrap();
        assert_eq!((partial.kind.as_str(), partial.metadata.name.as_str(), partial.metadata.uid.as_str()), ("Pod", "a", "u"));
        assert!(partial.metadata.labels.is_empty());
    }

    #[test]
    fn generated_names_fit() {
        let name = generate_name(&"x".repeat(80), u64::MAX);
        assert_eq!(name.len(), 63);
        assert!(name.as_bytes()[58..].iter().all(|b| SUFFIX_ALPHABET.contains(b)));
        assert_ne!(random_suffix(1), random_suffix(2));
        assert_eq!(generate_name("a-", 0), "a-bbbbb");
    }
}
