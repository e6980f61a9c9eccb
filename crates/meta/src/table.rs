//! What `kubectl get` shows: cells as text, and the reductions of objects that tables and metadata-only answers carry.
//!
//! Kinds supply columns and cells; the API server writes the envelope row by row. Here are the texts that many columns share.

use serde_json::{Map, Value, json};
use wheelhouse_base::Timestamp;

use crate::duration::human_duration;
use crate::field::{FieldError, Path};
use crate::selector::LabelSelector;
use crate::time;

/// The cell of an empty list, map or name.
pub const NONE: &str = "<none>";
/// The cell of something that is not known yet, such as a time that is not set.
pub const UNKNOWN: &str = "<unknown>";
/// The cell of an optional number or name that is absent.
pub const UNSET: &str = "<unset>";

/// Which object a row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// A bad query parameter of a table.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("Unable to convert to Table as requested: {0}")]
pub struct TableOptionsError(pub FieldError);

impl IncludeObject {
    /// The query parameter `includeObject`; empty is the default. The error is a 400.
    pub fn parse(text: &str) -> Result<Self, TableOptionsError> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                Err(TableOptionsError(FieldError::invalid(&Path::new("includeObject"), other, detail)))
            }
        }
    }
}

/// How long ago a time was: `5m3s`; `<unknown>` if it is not set.
pub fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| UNKNOWN.to_owned(), |at| human_duration((now.as_micros() - at.as_micros()) / 1_000_000))
}

/// The age of an RFC 3339 field of an object.
pub fn age_of(value: Option<&Value>, now: Timestamp) -> String {
    age(time::from_json(value), now)
}

/// A `LabelSelector` object as one cell: `a=b,c in (d)`, or `<none>`.
pub fn selector_cell(selector: Option<&Value>) -> String {
    match LabelSelector::from_object(selector) {
        Ok(selector) if selector.requirements().is_empty() => NONE.to_owned(),
        Ok(selector) => selector.to_string(),
        Err(_) => "<error>".to_owned(),
    }
}

/// At most `max` items and how many there are beyond: `a,b + 3 more...`; `<none>` for none.
pub fn list_cell<S: AsRef<str>>(items: &[S], max: usize) -> String {
    if items.is_empty() {
        return NONE.to_owned();
    }
    let shown: Vec<&str> = items.iter().take(max).map(AsRef::as_ref).collect();
    let shown = shown.join(",");
    if items.len() > max { format!("{shown} + {} more...", items.len() - max) } else { shown }
}

/// An object reduced to its metadata. `version` is `meta.k8s.io/v1` or its beta.
pub fn partial_object(object: &Value, version: &str) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_read_as_kubectl_users_know_them() {
        let now = Timestamp::from_secs(1000);
        assert_eq!(age(Some(Timestamp::from_secs(400)), now), "10m");
        assert_eq!(age(None, now), "<unknown>");
        assert_eq!(age_of(Some(&json!("1970-01-01T00:16:35Z")), now), "5s");
        assert_eq!(list_cell(&["a", "b", "c"], 2), "a,b + 1 more...");
        assert_eq!(list_cell::<&str>(&[], 2), "<none>");
        assert_eq!(selector_cell(Some(&json!({"matchLabels": {"a": "b"}}))), "a=b");
        assert_eq!(selector_cell(None), "<none>");
        assert_eq!(selector_cell(Some(&json!({"matchExpressions": [{"key": "a", "operator": "?"}]}))), "<error>");
    }

    #[test]
    fn include_object_is_checked() {
        assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
        assert_eq!(
            IncludeObject::parse("Bogus").unwrap_err().to_string(),
            "Unable to convert to Table as requested: includeObject: Invalid value: \"Bogus\": must be 'Metadata', 'Object', 'None', or empty"
        );
        let object = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
        assert_eq!(
            partial_object(&object, "meta.k8s.io/v1"),
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}})
        );
    }
}
