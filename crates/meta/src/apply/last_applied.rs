//! The way from client-side apply to server-side apply.
//!
//! Client-side `kubectl apply` keeps its last body in an annotation and owns its fields as an update of another name. Its first
//! server-side apply would conflict with itself, so fields that still are as that body had them are no conflict for `kubectl`.

use serde_json::Value;

use super::compare::compare;
use super::manager::Manager;
use super::set::Set;
use super::typed::{field_set, validate};
use crate::object::Object;
use crate::validation::TOTAL_ANNOTATION_SIZE_MAX;
use wheelhouse_schema::Schema;

/// Where `kubectl apply` without server-side apply keeps what it last sent.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields of the last client-side apply that nobody changed since. `None` without a usable annotation.
pub(super) fn unchanged(live: &Value, manager: &Manager<'_>, schema: &Schema) -> Option<Set> {
    let last: Value = serde_json::from_str(live.annotation(LAST_APPLIED).filter(|a| !a.is_empty())?).ok()?;
    if last.api_version() != manager.api_version || validate(&last, schema).is_err() {
        return None;
    }
    let comparison = compare(&last, live, schema);
    let mut set = field_set(&last, schema);
    for changed in [&comparison.modified, &comparison.added, &comparison.removed] {
        set.subtract(changed);
    }
    Some(set)
}

/// Keeps the annotation of client-side apply in step, so that a client can go back to it.
pub(super) fn refresh(merged: &mut Value, applied: &Value) {
    if merged.annotation(LAST_APPLIED).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    let metadata = applied.metadata_mut();
    match metadata.get_mut("annotations") {
        Some(Value::Object(annotations)) => drop(annotations.remove(LAST_APPLIED)),
        _ => drop(metadata.remove("annotations")),
    }
    let text = format!("{}\n", crate::gotext::json(&applied));
    let Some(annotations) = merged.metadata_mut().get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.insert(LAST_APPLIED.to_owned(), Value::from(text));
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > TOTAL_ANNOTATION_SIZE_MAX {
        annotations.remove(LAST_APPLIED);
    }
}
