//! JSON with fields in Go's order, for the messages that quote a whole object.

use serde_json::{Map, Value};
use wheelhouse_meta::gotext::escape_html;
use wheelhouse_schema::Schema;

/// An object as upstream's patch code prints it: its own fields sorted (it went through a map), everything below in the order of the structs.
pub fn sorted_at_the_top(object: &Value, schema: &Schema) -> String {
    let mut out = String::new();
    match object {
        Value::Object(fields) => {
            out.push('{');
            for (at, (key, value)) in fields.iter().enumerate() {
                push_key(&mut out, key, at == 0);
                push(&mut out, value, schema.child(key));
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
    escape_html(&out)
}

fn push_key(out: &mut String, key: &str, first: bool) {
    if !first {
        out.push(',');
    }
    out.push_str(&Value::from(key).to_string());
    out.push(':');
}

fn push(out: &mut String, value: &Value, schema: Option<&Schema>) {
    match value {
        Value::Object(fields) => push_object(out, fields, schema),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                push(out, item, schema.and_then(Schema::items));
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn push_object(out: &mut String, fields: &Map<String, Value>, schema: Option<&Schema>) {
    let known = schema.and_then(Schema::as_struct);
    let position = |key: &str| known.and_then(|known| known.position(key)).unwrap_or(usize::MAX);
    let mut ordered: Vec<(&String, &Value)> = fields.iter().collect();
    // Stable: maps and unknown fields keep their sorted order.
    ordered.sort_by_key(|(key, _)| position(key));
    out.push('{');
    for (at, (key, value)) in ordered.into_iter().enumerate() {
        push_key(out, key, at == 0);
        push(out, value, schema.and_then(|schema| schema.child(key)));
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_keeps_the_structs_order() {
        let schema = &wheelhouse_schema::catalog().kind("", "v1", "ConfigMap").unwrap().schema;
        let object = json!({"metadata": {"labels": {"b": "<", "a": "1"}, "uid": "u", "name": "n"}, "data": {"k": "v"}, "bogus": 1});
        let expected = r#"{"bogus":1,"data":{"k":"v"},"metadata":{"name":"n","uid":"u","labels":{"a":"1","b":"\u003c"}}}"#;
        assert_eq!(sorted_at_the_top(&object, schema), expected);
    }
}
