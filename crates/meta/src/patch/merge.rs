//! RFC 7386.

use serde_json::{Map, Value};

use super::{PatchError, parse_object};

/// Applies a JSON merge patch to an object.
pub fn merge_patch(target: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch = parse_object(patch)?;
    let mut merged = target.clone();
    merge_value(&mut merged, Value::Object(patch));
    Ok(merged)
}

/// Merges in place. Unlike the RFC, and like upstream, nulls vanish also from objects inside a new array.
pub fn merge_value(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge_map(target, patch),
        (target @ Value::Object(_), patch) => *target = patch,
        (target, mut patch) => {
            prune(&mut patch);
            *target = patch;
        }
    }
}

fn merge_map(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
            continue;
        }
        merge_value(target.entry(key).or_insert(Value::Null), value);
    }
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(prune);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn patches_merge() {
        let merge = |target: Value, patch: Value| merge_patch(&target, patch.to_string().as_bytes()).unwrap();
        assert_eq!(merge(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null, "d": 3}})), json!({"a": {"c": 2, "d": 3}}));
        assert_eq!(merge(json!({"a": [1]}), json!({"a": [{"x": null}]})), json!({"a": [{}]}));
        assert_eq!(merge(json!({"a": 1}), json!({"a": {"b": null, "c": 1}})), json!({"a": {"c": 1}}));
        assert_eq!(merge(json!({}), json!({"a": null})), json!({}));
    }

    #[test]
    fn only_objects_are_patches() {
        let error = |patch: &str| merge_patch(&json!({}), patch.as_bytes()).unwrap_err().to_string();
        assert_eq!(error("[]"), "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}");
        assert_eq!(error("{\"a\":"), "error decoding patch: unexpected end of JSON input");
    }

    /// The patch that turns one document into another, for documents without nulls.
    fn diff(from: &Value, to: &Value) -> Value {
        let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
        let mut patch = Map::new();
        for key in from.keys().filter(|key| !to.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
        for (key, value) in to {
            match from.get(key) {
                Some(old) if old == value => {}
                Some(old) => {
                    patch.insert(key.clone(), diff(old, value));
                }
                None => {
                    patch.insert(key.clone(), value.clone());
                }
            }
        }
        Value::Object(patch)
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), "[a-c]{0,2}".prop_map(Value::from), (0..3i32).prop_map(Value::from)];
        let tree = leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-d]", tree, 0..4).prop_map(|m| Value::Object(m.into_iter().collect()))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn merging_a_difference_gives_the_target(from in documents(), to in documents()) {
            let patch = diff(&from, &to);
            prop_assert_eq!(merge_patch(&from, patch.to_string().as_bytes()).unwrap(), to);
        }
    }
}
