//! Managed fields of a Scale: the part of its parent's that speaks of the replica count, in the Scale's own words.
//!
//! ```text
//! parent's entries that own spec.replicas --to_scale--> autoscaling/v1 entries --update or apply--> entries --to_parent--> parent's entries
//! ```

use serde_json::{Map, Value, json};

const SCALE_VERSION: &str = "autoscaling/v1";

/// Where a Scale, and every built-in kind, keeps the wanted replicas.
pub const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// The entries of the parent that own its replica count, as a Scale shows them.
pub fn to_scale(parent: &[Value], path: &[&str]) -> Vec<Value> {
    parent.iter().filter(|entry| owns(entry, path)).map(|entry| entry_of(entry, SCALE_VERSION, &REPLICAS)).collect()
}

/// The parent's entries after those of its Scale have become `scale`. `path` is where the parent keeps the wanted replicas.
pub fn to_parent(parent: &[Value], scale: &[Value], parent_version: &str, path: &[&str]) -> Vec<Value> {
    let mut entries = Vec::new();
    for entry in parent {
        let keeps = !owns(entry, path) || scale.iter().any(|other| owns(other, &REPLICAS) && same_owner(entry, other));
        if keeps {
            entries.push(entry.clone());
        } else if let Some(rest) = without(entry, path) {
            entries.push(rest);
        }
    }
    for entry in scale.iter().filter(|entry| owns(entry, &REPLICAS)) {
        if !parent.iter().any(|other| owns(other, path) && same_owner(entry, other)) {
            let mut entry = entry_of(entry, parent_version, path);
            // Upstream loses the time on this way, and clients compare.
            if let Some(fields) = entry.as_object_mut() {
                fields.remove("time");
            }
            entries.push(entry);
        }
    }
    entries
}

fn owns(entry: &Value, path: &[&str]) -> bool {
    path.iter().try_fold(&entry["fieldsV1"], |fields, name| fields.get(format!("f:{name}"))).is_some()
}

fn same_owner(a: &Value, b: &Value) -> bool {
    ["manager", "operation", "subresource"].iter().all(|field| a.get(field) == b.get(field))
}

fn entry_of(entry: &Value, api_version: &str, path: &[&str]) -> Value {
    let mut made = entry.clone();
    made["apiVersion"] = api_version.into();
    made["fieldsV1"] = path.iter().rev().fold(json!({}), |below, name| json!({ format!("f:{name}"): below }));
    made
}

/// The entry without the replica count; `None` if nothing else is left.
fn without(entry: &Value, path: &[&str]) -> Option<Value> {
    let mut rest = entry.clone();
    let fields = rest.get_mut("fieldsV1")?.as_object_mut()?;
    remove(fields, path);
    (!fields.is_empty()).then_some(rest)
}

/// Takes a path out, and every parent that then holds nothing but itself.
fn remove(fields: &mut Map<String, Value>, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let key = format!("f:{first}");
    let empty = match fields.get_mut(&key).and_then(Value::as_object_mut) {
        Some(below) if !rest.is_empty() => {
            remove(below, rest);
            below.keys().all(|key| key == ".")
        }
        _ => true,
    };
    if empty {
        fields.remove(&key);
    }
}

/// The entries of an object's metadata.
pub fn entries(object: &Value) -> Vec<Value> {
    object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default()
}

/// Replaces the entries of an object's metadata.
pub fn set_entries(object: &mut Value, entries: Vec<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    put(metadata, entries);
}

fn put(metadata: &mut Map<String, Value>, entries: Vec<Value>) {
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), entries.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Apply", "apiVersion": "apps/v1", "time": "t", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn a_scaler_takes_the_count_and_nothing_else() {
        let owner = entry("owner", json!({"f:spec": {"f:replicas": {}, "f:selector": {}}}));
        let other = entry("other", json!({"f:spec": {"f:replicas": {}}}));
        let parent = [owner, other];
        let shown = to_scale(&parent, &REPLICAS);
        assert_eq!(shown.len(), 2);
        assert_eq!(shown[0]["apiVersion"], SCALE_VERSION);
        let mut scaler = entry("scaler", json!({"f:spec": {"f:replicas": {}}}));
        scaler["subresource"] = json!("scale");
        let after = to_parent(&parent, &[scaler], "apps/v1", &REPLICAS);
        let summary: Vec<(&str, &Value)> = after.iter().map(|e| (e["manager"].as_str().unwrap(), &e["fieldsV1"]["f:spec"])).collect();
        assert_eq!(summary, [("owner", &json!({"f:selector": {}})), ("scaler", &json!({"f:replicas": {}}))]);
        assert_eq!((after[1].get("time"), &after[1]["apiVersion"]), (None, &json!("apps/v1")));
    }
}
