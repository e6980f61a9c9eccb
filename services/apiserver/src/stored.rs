//! The bytes of an object in the store.
//!
//! ```text
//! {"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7",  "name":"a","uid":…},"data":{…}}
//! '------------- written by whoever serves it ----------------------------' '------ stored value ---------'
//! ```
//!
//! A stored value is the storage version's JSON from right after `"metadata":{`. The revision that a transaction gives an object is not
//! known when the object is encoded, so it is never part of it; a get, a list and an event put it in front and copy the rest. Type and
//! version stand in front for the same reason: items of a list carry none.

use std::collections::BTreeMap;
use std::io::Write;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use wheelhouse_base::Revision;

/// Encodes an object for the store. Its apiVersion, kind and resourceVersion are left out. An object without metadata gets an empty one.
pub fn encode(object: &Value) -> Bytes {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let mut out = Vec::with_capacity(1024);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    push_fields(&mut out, metadata.iter().filter(|(key, _)| key.as_str() != "resourceVersion"), true);
    out.push(b'}');
    push_fields(&mut out, fields.iter().filter(|(key, _)| !matches!(key.as_str(), "metadata" | "kind" | "apiVersion")), false);
    out.push(b'}');
    out.into()
}

fn push_fields<'a>(out: &mut Vec<u8>, fields: impl Iterator<Item = (&'a String, &'a Value)>, mut first: bool) {
    for (key, value) in fields {
        if !first {
            out.push(b',');
        }
        first = false;
        serde_json::to_writer(&mut *out, key).expect("a Vec takes every byte");
        out.push(b':');
        serde_json::to_writer(&mut *out, value).expect("a Value has string keys and a Vec takes every byte");
    }
}

/// What stands before the value of a whole object. Revision 0 (an object that was not stored) leaves the resource version out.
pub fn push_header(out: &mut Vec<u8>, api_version: &str, kind: &str, revision: Revision, value: &[u8]) {
    // Neither a kind nor an API version holds a character that JSON escapes.
    let _ = write!(out, "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",");
    push_item_header(out, revision, value);
}

/// What stands before the value of a list's item, after its opening brace.
fn push_item_header(out: &mut Vec<u8>, revision: Revision, value: &[u8]) {
    out.extend_from_slice(b"\"metadata\":{");
    if revision != 0 {
        let _ = write!(out, "\"resourceVersion\":\"{revision}\"");
        // Metadata is never empty in practice, since every object has a name, but an empty one must not make broken JSON.
        if value.first() != Some(&b'}') {
            out.push(b',');
        }
    }
}

/// Appends a whole object.
pub fn push_object(out: &mut Vec<u8>, api_version: &str, kind: &str, revision: Revision, value: &[u8]) {
    out.reserve(value.len() + 128);
    push_header(out, api_version, kind, revision, value);
    out.extend_from_slice(value);
}

/// Appends an item of a list, which has no kind and no version.
pub fn push_item(out: &mut Vec<u8>, revision: Revision, value: &[u8]) {
    out.reserve(value.len() + 64);
    out.push(b'{');
    push_item_header(out, revision, value);
    out.extend_from_slice(value);
}

/// A stored value that cannot be read back: the store holds something that this server did not write.
#[derive(Debug, thiserror::Error)]
#[error("stored value is not an object: {0}")]
pub struct CorruptValue(String);

/// Reads a whole object, with its type and resource version.
pub fn decode(value: &[u8], api_version: &str, kind: &str, revision: Revision) -> Result<Value, CorruptValue> {
    let mut text = Vec::with_capacity(value.len() + 128);
    push_object(&mut text, api_version, kind, revision, value);
    serde_json::from_slice(&text).map_err(|error| CorruptValue(error.to_string()))
}

/// The part of metadata that selectors, garbage collection and deletion look at; the rest of the object is not parsed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: i64,
    pub labels: BTreeMap<String, String>,
    pub finalizers: Vec<String>,
    pub owner_references: Vec<OwnerReference>,
    pub deletion_timestamp: Option<String>,
    pub deletion_grace_period_seconds: Option<i64>,
}

/// `metav1.OwnerReference`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

impl Meta {
    pub fn read(value: &[u8]) -> Result<Self, CorruptValue> {
        read_metadata(value)
    }
}

/// The labels of a stored value. An unreadable value has none: it is found and reported when it is read as a whole.
pub fn labels(value: &[u8]) -> BTreeMap<String, String> {
    #[derive(Default, Deserialize)]
    struct Only {
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }
    read_metadata::<Only>(value).unwrap_or_default().labels
}

/// The raw metadata of a stored value, both braces included, for partial answers.
pub fn metadata_json(value: &[u8], revision: Revision) -> Vec<u8> {
    let end = metadata_end(value).unwrap_or(0);
    let mut out = Vec::with_capacity(end + 32);
    push_item_header(&mut out, revision, value);
    out.drain(..b"\"metadata\":".len());
    out.extend_from_slice(&value[..end]);
    out
}

fn read_metadata<T: serde::de::DeserializeOwned>(value: &[u8]) -> Result<T, CorruptValue> {
    let end = metadata_end(value).ok_or_else(|| CorruptValue("its metadata does not end".into()))?;
    let mut text = Vec::with_capacity(end + 1);
    text.push(b'{');
    text.extend_from_slice(&value[..end]);
    serde_json::from_slice(&text).map_err(|error| CorruptValue(error.to_string()))
}

/// The length of the metadata part, its closing brace included.
fn metadata_end(value: &[u8]) -> Option<usize> {
    let mut depth = 1usize;
    let mut at = 0;
    while at < value.len() {
        match value[at] {
            b'"' => {
                at += 1;
                while *value.get(at)? != b'"' {
                    at += if value[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "}\"{"},
               "metadata": {"name": "a\"}", "resourceVersion": "3", "labels": {"x": "y"}, "finalizers": ["f"]}})
    }

    #[test]
    fn objects_survive_the_store() {
        let value = encode(&sample());
        let read = decode(&value, "v1", "ConfigMap", 7).unwrap();
        let mut expected = sample();
        expected["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(read, expected);
        let mut item = Vec::new();
        push_item(&mut item, 7, &value);
        expected.as_object_mut().unwrap().retain(|key, _| key != "kind" && key != "apiVersion");
        assert_eq!(serde_json::from_slice::<Value>(&item).unwrap(), expected);
    }

    #[test]
    fn metadata_is_read_alone() {
        let value = encode(&sample());
        let meta = Meta::read(&value).unwrap();
        assert_eq!((meta.name.as_str(), meta.finalizers.len()), ("a\"}", 1));
        assert_eq!(labels(&value)["x"], "y");
        let partial: Value = serde_json::from_slice(&metadata_json(&value, 9)).unwrap();
        assert_eq!(partial["resourceVersion"], "9");
        assert_eq!(partial["name"], "a\"}");
    }

    #[test]
    fn foreign_bytes_are_errors() {
        for bytes in [&b""[..], b"{", b"\"", b"\"\\", b"}", b"[[[", b"\"a\":1"] {
            assert!(decode(bytes, "v1", "X", 1).is_err(), "{bytes:?}");
            let _ = (Meta::read(bytes), labels(bytes), metadata_json(bytes, 1));
        }
        let empty = encode(&json!({}));
        assert!(decode(&empty, "v1", "X", 1).is_ok());
    }
}
