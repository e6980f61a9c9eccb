//! RFC 6902.
//!
//! Upstream's library is laxer than the RFC, and clients rely on it: `replace` adds an absent key of an object, `test` of an absent
//! key equals null, array indexes may be negative.

use serde_json::{Map, Value};

use super::{PatchError, json_kind, parse_json};

/// Operations in one patch; upstream's limit against patches that cost more than they say.
pub const MAX_OPERATIONS: usize = 10_000;

/// Bytes that the `copy` operations of one patch may add, the size limit of a request. Without it 40 doublings fill any memory.
pub const MAX_COPY_BYTES: usize = 3 << 20;

/// How deep a document may become. Moves can nest it by one level per operation, and what reads it recurses; decoding then refuses all
/// above its own, lower limit.
pub const MAX_DEPTH: usize = 1_000;

/// Applies a JSON patch to an object.
pub fn json_patch(target: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let operations = match parse_json(patch)? {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => {
            let text = format!("json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp", json_kind(&other));
            return Err(PatchError::Decode(text));
        }
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    if let Some(odd) = operations.iter().find(|o| !o.is_object()) {
        let text = format!("json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp", json_kind(odd));
        return Err(PatchError::Decode(text));
    }
    let mut document = target.clone();
    let mut copied = 0;
    let mut deepest = depth(&document);
    for operation in &operations {
        apply(&mut document, operation, &mut copied).map_err(PatchError::NotApplicable)?;
        deepest = deepest.max(depth_after(operation, deepest));
        // The bound only grows, so before it refuses anything it is measured.
        if deepest > MAX_DEPTH {
            deepest = depth(&document);
        }
        if deepest > MAX_DEPTH {
            return Err(PatchError::NotApplicable(format!("the document nests deeper than {MAX_DEPTH}")));
        }
    }
    Ok(document)
}

/// How deep the place reaches that an operation wrote, at most, when the document reached `deepest` before.
fn depth_after(operation: &Value, deepest: usize) -> usize {
    let steps = |key: &str| operation.get(key).and_then(Value::as_str).map_or(0, |path| path.matches('/').count());
    let written = match operation.get("op").and_then(Value::as_str) {
        Some("add" | "replace") => operation.get("value").map_or(0, depth),
        Some("copy" | "move") => deepest.saturating_sub(steps("from")),
        _ => return 0,
    };
    steps("path") + written
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn apply(document: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), String> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str).ok_or_else(|| format!("operation missing {key} field"));
    let value = || operation.get("value").cloned().ok_or_else(|| "operation missing value field".to_owned());
    match text("op").unwrap_or("unknown") {
        "add" => add(document, text("path")?, value()?),
        "remove" => remove(document, text("path")?).map(drop),
        "replace" => replace(document, text("path")?, value()?),
        "move" => {
            // Reading first refuses a negative index, which only `remove` itself takes.
            get(document, text("from")?)?;
            let moved = remove(document, text("from")?)?;
            add(document, text("path")?, moved)
        }
        "copy" => {
            let copy = get(document, text("from")?)?.cloned().unwrap_or(Value::Null);
            *copied += size(&copy);
            if *copied > MAX_COPY_BYTES {
                return Err(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPY_BYTES}"
                ));
            }
            add(document, text("path")?, copy)
        }
        "test" => {
            let path = text("path")?;
            let found = get(document, path)?.unwrap_or(&Value::Null);
            if equal(found, operation.get("value").unwrap_or(&Value::Null)) { Ok(()) } else { Err(format!("testing value {path} failed")) }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

/// Numbers are equal by amount: `1` and `1.0` are one number in JSON.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b))),
        _ => a == b,
    }
}

/// The bytes that a value takes as JSON, near enough for a limit.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(s) => s.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|i| size(i) + 1).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(k, v)| k.len() + 4 + size(v)).sum::<usize>(),
    }
}

enum Container<'a> {
    Object(&'a mut Map<String, Value>),
    Array(&'a mut Vec<Value>),
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Walks to the parent of what the pointer names, and returns it with the last key.
fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(Container<'a>, String), String> {
    let missing = || format!("doc is missing path: \"{path}\"");
    let (_, rest) = path.split_once('/').ok_or_else(missing)?;
    let (walk, last) = rest.rsplit_once('/').map_or((None, rest), |(walk, last)| (Some(walk), last));
    let mut at = document;
    for part in walk.into_iter().flat_map(|w| w.split('/')) {
        let key = unescape(part);
        at = match at {
            Value::Object(map) => map.get_mut(&key),
            Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
            _ => None,
        }
        .ok_or_else(missing)?;
    }
    match at {
        Value::Object(map) => Ok((Container::Object(map), unescape(last))),
        Value::Array(items) => Ok((Container::Array(items), unescape(last))),
        _ => Err(missing()),
    }
}

/// `Ok(None)` for an absent key of an object.
fn get<'a>(document: &'a mut Value, path: &str) -> Result<Option<&'a Value>, String> {
    match parent(document, path)? {
        (Container::Object(map), key) => Ok(map.get(&key)),
        (Container::Array(items), key) => {
            let at = index(&key, items.len(), false)?;
            Ok(items.get(at))
        }
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    match parent(document, path)? {
        (Container::Object(map), key) => {
            map.insert(key, value);
        }
        (Container::Array(items), key) if key == "-" => items.push(value),
        (Container::Array(items), key) => {
            let at = index(&key, items.len() + 1, true)?;
            items.insert(at, value);
        }
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    match parent(document, path)? {
        (Container::Object(map), key) => map.remove(&key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}")),
        (Container::Array(items), key) => {
            let at = index(&key, items.len(), true)?;
            Ok(items.remove(at))
        }
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    match parent(document, path)? {
        (Container::Object(map), key) => {
            map.insert(key, value);
        }
        (Container::Array(items), key) => {
            let at = index(&key, items.len(), false)?;
            items[at] = value;
        }
    }
    Ok(())
}

/// An index below `length`; negative ones count from the end where upstream lets them.
fn index(key: &str, length: usize, allow_negative: bool) -> Result<usize, String> {
    let number: i64 = key.parse().map_err(|_| format!("value was not a proper array index: '{key}'"))?;
    let invalid = || format!("Unable to access invalid index: {number}");
    if number < 0 && !allow_negative {
        return Err(invalid());
    }
    let length = i64::try_from(length).map_err(|_| invalid())?;
    let at = if number < 0 { number + length } else { number };
    if (0..length).contains(&at) { usize::try_from(at).map_err(|_| invalid()) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patch(target: Value, operations: Value) -> Result<Value, PatchError> {
        json_patch(&target, operations.to_string().as_bytes())
    }

    #[test]
    fn operations_do_what_the_rfc_says() {
        let target = json!({"a": {"b/c": 1}, "l": [1, 2, 3]});
        let patched = patch(
            target,
            json!([
                {"op": "test", "path": "/a/b~1c", "value": 1.0},
                {"op": "test", "path": "/a/absent", "value": null},
                {"op": "add", "path": "/l/1", "value": 9},
                {"op": "add", "path": "/l/-", "value": 4},
                {"op": "remove", "path": "/l/0"},
                {"op": "replace", "path": "/a/new", "value": "x"},
                {"op": "copy", "from": "/l", "path": "/copy"},
                {"op": "move", "from": "/l/-1", "path": "/last"},
            ]),
        );
        assert!(patched.is_err(), "a negative index reads nothing: {patched:?}");
        let target = json!({"a": {"b/c": 1}, "l": [1, 2, 3]});
        let patched = patch(
            target,
            json!([
                {"op": "add", "path": "/l/1", "value": 9},
                {"op": "add", "path": "/l/-", "value": 4},
                {"op": "remove", "path": "/l/-1"},
                {"op": "replace", "path": "/a/new", "value": "x"},
                {"op": "copy", "from": "/l", "path": "/copy"},
                {"op": "move", "from": "/a/b~1c", "path": "/moved"},
            ]),
        );
        assert_eq!(patched, Ok(json!({"a": {"new": "x"}, "l": [1, 9, 2, 3], "copy": [1, 9, 2, 3], "moved": 1})));
    }

    #[test]
    fn bad_patches_are_refused() {
        let bad = |operations: Value| patch(json!({"a": 1, "l": []}), operations).unwrap_err();
        for operation in [
            json!([{"op": "remove", "path": "/absent"}]),
            json!([{"op": "odd", "path": "/a"}]),
            json!([{"op": "add", "path": "/a/b", "value": 1}]),
            json!([{"op": "add", "path": "/l/1", "value": 1}]),
            json!([{"op": "add", "path": "/b"}]),
            json!([{"op": "add", "path": "", "value": 1}]),
            json!([{"op": "test", "path": "/a", "value": 2}]),
        ] {
            assert!(matches!(bad(operation.clone()), PatchError::NotApplicable(_)), "{operation}");
        }
        assert_eq!(
            bad(json!({"op": "add"})).to_string(),
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        );
        let many = vec![json!({"op": "test", "path": "/a", "value": 1}); MAX_OPERATIONS + 1];
        let status = bad(json!(many)).into_status();
        assert_eq!(status.code, 413);
        assert_eq!(status.message, "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001");
    }

    #[test]
    fn copies_are_bounded() {
        let mut operations = vec![json!({"op": "add", "path": "/x", "value": ["0123456789"]})];
        operations.extend((0..40).map(|_| json!({"op": "copy", "from": "/x", "path": "/x/-"})));
        assert!(matches!(patch(json!({}), json!(operations)), Err(PatchError::NotApplicable(text)) if text.contains("exceeding")));
    }

    #[test]
    fn moves_cannot_nest_without_end() {
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": {}})];
        for _ in 0..3_000 {
            operations.push(json!({"op": "add", "path": "/t", "value": {}}));
            operations.push(json!({"op": "move", "from": "/a", "path": "/t/a"}));
            operations.push(json!({"op": "move", "from": "/t", "path": "/a"}));
        }
        assert!(matches!(patch(json!({}), json!(operations)), Err(PatchError::NotApplicable(text)) if text.contains("deeper")));
        let mut shuffle = vec![json!({"op": "add", "path": "/a", "value": {"b": {"c": 1}}})];
        for _ in 0..2_400 {
            shuffle.push(json!({"op": "move", "from": "/a", "path": "/x"}));
            shuffle.push(json!({"op": "move", "from": "/x/b", "path": "/a"}));
            shuffle.push(json!({"op": "move", "from": "/a", "path": "/x/b"}));
            shuffle.push(json!({"op": "move", "from": "/x", "path": "/a"}));
        }
        assert_eq!(patch(json!({}), json!(shuffle)), Ok(json!({"a": {"b": {"c": 1}}})));
    }
}
