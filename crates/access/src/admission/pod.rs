//! Pieces of a pod that several plugins look at.

use serde_json::Value;

/// Set by a kubelet on the API's copy of a pod that it runs from a file.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

pub(super) fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR_ANNOTATION].is_null()
}

/// The containers under one of `containers`, `initContainers` and `ephemeralContainers`.
pub(super) fn containers<'a>(pod: &'a Value, list: &str) -> &'a [Value] {
    pod["spec"][list].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The list at `key`, made if it is not there.
pub(super) fn list_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    if !object[key].is_array() {
        object[key] = Value::Array(Vec::new());
    }
    object[key].as_array_mut().expect("it was just made a list")
}
