//! The recorded applies of kube-apiserver 1.36: object before, body, object and managed fields after, or the refusal.

use serde::Deserialize;
use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_schema::{FieldValidation, Schema, catalog, decode_value, normalise};

use super::{ApplyError, Manager, SingleVersion, apply, update};
use crate::object::Object;
use crate::time;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    /// `apply` or `update`.
    operation: String,
    group: String,
    version: String,
    kind: String,
    manager: String,
    #[serde(default)]
    force: bool,
    /// Absent for creates.
    before: Option<Value>,
    #[serde(default)]
    applied: Value,
    after: Option<Value>,
    message: Option<String>,
    /// `message field`, sorted, of the refusal.
    #[serde(default)]
    causes: Vec<String>,
    sent_managed_fields: Option<Value>,
    #[serde(default)]
    subresource: String,
}

fn canonical(value: Value, schema: &Schema) -> Value {
    let mut value = decode_value(value, schema, FieldValidation::Ignore).expect("recorded as accepted").value;
    normalise(&mut value, schema);
    value
}

fn run(case: &Case, schema: &Schema, api_version: &str) -> Result<Value, ApplyError> {
    let has_status = schema.field("status").is_some();
    let manager = Manager {
        name: &case.manager,
        api_version,
        subresource: &case.subresource,
        reset_fields: match case.subresource.as_str() {
            "status" => &[&["spec"], &["metadata", "labels"]],
            _ if has_status => &[&["status"]],
            _ => &[],
        },
        now: time::parse("2024-01-01T00:00:00Z").unwrap_or(Timestamp::from_secs(0)),
    };
    let versions = SingleVersion { api_version, schema };
    let empty = json!({"apiVersion": api_version, "kind": case.kind});
    let live = canonical(case.before.clone().unwrap_or(empty), schema);
    if case.operation == "apply" {
        return apply(&live, &case.applied, &manager, case.force, &versions);
    }
    let mut new = canonical(case.after.clone().unwrap_or_default(), schema);
    new.metadata_mut().remove("managedFields");
    if let Some(sent) = &case.sent_managed_fields {
        new.metadata_mut().insert("managedFields".to_owned(), sent.clone());
    }
    Ok(update(&live, new, &manager, &versions))
}

/// Entries in the order of the recording, which leaves the times out.
fn managers(object: &Value) -> Vec<(String, Value)> {
    let mut entries: Vec<(String, Value)> = object
        .meta_list("managedFields")
        .iter()
        .map(|entry| (format!("{} {} {}", entry["manager"], entry["operation"], entry["subresource"]), entry.clone()))
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries
}

/// Where `merged` holds something that `after` does not. `after` may hold more: what defaults and the server added.
fn uncovered(merged: &Value, after: &Value, path: &str) -> Option<String> {
    match (merged, after) {
        (Value::Object(merged), Value::Object(after)) => merged.iter().filter(|(k, _)| *k != "managedFields").find_map(|(k, m)| {
            let path = format!("{path}.{k}");
            after.get(k).map_or(Some(path.clone()), |a| uncovered(m, a, &path))
        }),
        (Value::Array(merged), Value::Array(after)) if merged.len() == after.len() => {
            merged.iter().zip(after).enumerate().find_map(|(i, (m, a))| uncovered(m, a, &format!("{path}[{i}]")))
        }
        _ => (merged != after).then(|| format!("{path}: {merged} not {after}")),
    }
}

fn check(case: &Case) -> Result<(), String> {
    let kind = catalog().kind(&case.group, &case.version, &case.kind).ok_or("not in the table")?;
    let schema = &kind.schema;
    let api_version = if case.group.is_empty() { case.version.clone() } else { format!("{}/{}", case.group, case.version) };
    let merged = match (run(case, schema, &api_version).map_err(|e| e.into_status()), &case.message) {
        (Err(status), Some(message)) if status.message == *message => {
            let causes = status.details.map(|d| d.causes).unwrap_or_default();
            let mut causes: Vec<String> = causes.iter().map(|c| format!("{} {}", c.message, c.field)).collect();
            causes.sort();
            return if causes == case.causes { Ok(()) } else { Err(format!("causes {causes:?}")) };
        }
        (Ok(merged), None) => merged,
        (Err(status), _) => return Err(format!("refused: {}", status.message)),
        (Ok(_), message) => return Err(format!("accepted, not {message:?}")),
    };
    let after = case.after.as_ref().ok_or("no outcome")?;
    let (got, expected) = (managers(&merged), managers(after));
    if got != expected {
        let odd: Vec<String> = got.iter().filter(|g| !expected.contains(g)).map(|g| g.1.to_string()).collect();
        let missing: Vec<String> = expected.iter().filter(|e| !got.contains(e)).map(|e| e.1.to_string()).collect();
        return Err(format!("managers\n  got {}\n  not {}", odd.join("\n      "), missing.join("\n      ")));
    }
    let merged = canonical(merged, schema);
    uncovered(&merged, after, "").map_or(Ok(()), Err)
}

#[test]
fn applies_give_what_upstream_answers() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../testdata/apply.json")).expect("testdata is valid");
    assert!(cases.len() > 80, "the recording is complete");
    let failures: Vec<String> = cases.iter().filter_map(|c| check(c).err().map(|e| format!("{}: {e}", c.name))).collect();
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
}
