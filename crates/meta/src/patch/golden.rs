//! The recorded patches of kube-apiserver 1.36: object before, patch, object after.

use serde::Deserialize;
use serde_json::Value;
use wheelhouse_schema::{FieldValidation, catalog, decode_value, normalise};

use super::{PatchError, json_patch, merge_patch, strategic_merge_patch};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    group: String,
    version: String,
    kind: String,
    patch_type: String,
    before: Value,
    patch: String,
    /// The object after, without what the server alone sets; or the message of the refusal.
    after: Option<Value>,
    message: Option<String>,
    /// Whether `after` holds values that the kind's defaults added to new elements.
    #[serde(default)]
    defaulted: bool,
}

fn apply(case: &Case) -> Result<Value, PatchError> {
    let kind = catalog().kind(&case.group, &case.version, &case.kind).expect("a recorded kind is in the table");
    let schema = &kind.schema;
    let patched = match case.patch_type.as_str() {
        "json" => json_patch(&case.before, case.patch.as_bytes())?,
        "merge" => merge_patch(&case.before, case.patch.as_bytes())?,
        _ => strategic_merge_patch(&case.before, case.patch.as_bytes(), schema)?,
    };
    let mut value = decode_value(patched, schema, FieldValidation::Ignore).expect("recorded as accepted").value;
    normalise(&mut value, schema);
    Ok(value)
}

/// Whether `after` is `value` and perhaps more keys.
fn covers(value: &Value, after: &Value) -> bool {
    match (value, after) {
        (Value::Object(value), Value::Object(after)) => value.iter().all(|(k, v)| after.get(k).is_some_and(|a| covers(v, a))),
        (Value::Array(value), Value::Array(after)) => value.len() == after.len() && value.iter().zip(after).all(|(v, a)| covers(v, a)),
        _ => value == after,
    }
}

#[test]
fn patches_give_what_upstream_answers() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../testdata/patches.json")).expect("testdata is valid");
    assert!(cases.len() > 80, "the recording is complete");
    let mut failures = Vec::new();
    for case in &cases {
        let outcome = match (apply(case), &case.after, &case.message) {
            (Ok(value), Some(after), _) if value == *after => continue,
            (Ok(value), Some(after), _) if case.defaulted && covers(&value, after) => continue,
            (Err(error), _, Some(message)) if error.clone().into_status().message == *message => continue,
            (Ok(value), Some(after), _) => format!("got\n  {value}\nnot\n  {after}"),
            (other, _, message) => format!("got {other:?}, not {message:?}"),
        };
        failures.push(format!("{}: {outcome}", case.name));
    }
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
}
