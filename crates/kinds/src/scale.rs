//! The `scale` subresource: every kind with replicas behind one shape, `autoscaling/v1 Scale`.

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_meta::LabelSelector;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};

use crate::kind::Column;
use crate::table;

/// Its table, which `kubectl get --raw` and the like may ask for.
pub const COLUMNS: &[Column] = &[
    Column { format: "", ..table::NAME },
    table::integer("Desired", "How many pods are wanted."),
    table::integer("Available", "How many pods there are."),
    table::AGE,
];

/// The Scale of a stored object: identity, wanted and present replicas, and the selector as text. Zero wanted replicas are left out.
pub fn of(object: &Value) -> Value {
    let source = &object["metadata"];
    let mut metadata = serde_json::Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = source.get(key) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or_default();
    let present = object["status"]["replicas"].as_i64().unwrap_or_default();
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {},
        "status": {"replicas": present},
    });
    if wanted != 0 {
        scale["spec"]["replicas"] = wanted.into();
    }
    let selector = selector_text(&object["spec"]["selector"]);
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// A ReplicationController's selector is a plain map, all others' are label selectors.
fn selector_text(selector: &Value) -> String {
    let Some(fields) = selector.as_object() else { return String::new() };
    let is_selector = fields.values().any(|v| !v.is_string()) || fields.is_empty();
    if is_selector {
        LabelSelector::from_object(Some(selector)).map(|s| s.to_string()).unwrap_or_default()
    } else {
        LabelSelector::from_map(fields).to_string()
    }
}

/// Writes a Scale's wanted replicas into the object it is of. Errors are reported as of kind `Scale.autoscaling`. The resource version, where
/// the Scale carries one, becomes the object's, so that the write is checked against it.
pub fn write(scale: &Value, object: &mut Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let wanted = scale["spec"]["replicas"].as_i64().unwrap_or_default();
    if wanted < 0 {
        let (spec, why) = (Path::new("spec"), "must be greater than or equal to 0");
        errors.push(FieldError::invalid(&spec.child("replicas"), wanted, why));
        return errors;
    }
    object["spec"]["replicas"] = wanted.into();
    if let Some(version) = scale["metadata"].get("resourceVersion") {
        object["metadata"]["resourceVersion"] = version.clone();
    }
    errors
}

/// One row of [`COLUMNS`].
pub fn row(scale: &Value, now: Timestamp) -> Vec<Value> {
    let metadata = serde_json::from_value(scale["metadata"].clone()).unwrap_or_default();
    vec![
        table::name(&metadata),
        scale["spec"]["replicas"].as_i64().unwrap_or_default().into(),
        scale["status"]["replicas"].as_i64().unwrap_or_default().into(),
        table::age(&metadata, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_shows_replicas_and_selector() {
        let object = json!({
            "metadata": {"name": "d", "namespace": "n", "labels": {"x": "y"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "t", "operator": "In", "values": ["x", "y"]}]}},
            "status": {"replicas": 1},
        });
        let scale = of(&object);
        assert_eq!(scale["metadata"], json!({"name": "d", "namespace": "n"}));
        assert_eq!(scale["spec"], json!({"replicas": 2}));
        assert_eq!(scale["status"], json!({"replicas": 1, "selector": "a=b,t in (x,y)"}));
    }

    #[test]
    fn a_write_changes_replicas_only() {
        let mut object = json!({"metadata": {"name": "d"}, "spec": {"replicas": 2, "paused": true}});
        assert!(write(&json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 5}}), &mut object).is_empty());
        assert_eq!(object, json!({"metadata": {"name": "d"}, "spec": {"replicas": 5, "paused": true}}));
        let errors = write(&json!({"spec": {"replicas": -1}}), &mut object);
        assert_eq!(errors.aggregate(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
        assert_eq!(object["spec"]["replicas"], 5);
    }
}
