//! Defaults of a structural schema.
//!
//! A field that is absent takes its default, and so does one that is null and may not be. A null that has neither goes, as upstream's does.

use serde_json::{Number, Value};

/// Integers above this are not exact in a float, and stay one.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Fills `value` in place. Idempotent.
pub fn apply(value: &mut Value, props: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, props) in props["properties"].as_object().into_iter().flatten() {
                let nullable = props["nullable"] == true;
                let null = fields.get(name).is_some_and(Value::is_null) && !nullable;
                match props.get("default") {
                    Some(default) if null || !fields.contains_key(name) => {
                        fields.insert(name.clone(), default.clone());
                    }
                    None if null => {
                        fields.remove(name);
                    }
                    _ => {}
                }
                if let Some(field) = fields.get_mut(name) {
                    apply(field, props);
                }
            }
            let values = &props["additionalProperties"];
            if values.is_object() {
                let declared = &props["properties"];
                for (_, field) in fields.iter_mut().filter(|(name, _)| declared.get(name.as_str()).is_none()) {
                    with_default(field, values);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| with_default(item, &props["items"])),
        _ => {}
    }
}

/// An item that is null takes the default of items.
fn with_default(item: &mut Value, props: &Value) {
    if item.is_null()
        && props["nullable"] != true
        && let Some(default) = props.get("default")
    {
        *item = default.clone();
    }
    apply(item, props);
}

/// Writes whole numbers as integers, as Go does: `2.0` is `2`.
pub fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < MAX_EXACT) {
                *number = Number::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_go_deep_and_nulls_go() {
        let props = json!({"type": "object", "properties": {
            "color": {"type": "string", "default": "red"},
            "maybe": {"type": "string", "nullable": true},
            "size": {"type": "integer"},
            "nested": {"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer"}, "b": {"type": "string", "default": "bee"}}},
            "ports": {"type": "array", "items": {"type": "object", "properties": {"proto": {"type": "string", "default": "TCP"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}}},
        }});
        let defaulted = |mut value: Value| {
            apply(&mut value, &props);
            value
        };
        assert_eq!(defaulted(json!({})), json!({"color": "red", "nested": {"a": 1, "b": "bee"}}));
        let value = json!({"color": null, "maybe": null, "size": null, "nested": {}, "ports": [{}], "map": {"k": {}}});
        let expected = json!({"color": "red", "maybe": null, "nested": {"b": "bee"}, "ports": [{"proto": "TCP"}], "map": {"k": {"x": 1}}});
        assert_eq!(defaulted(value), expected);
        let mut numbers = json!({"a": [2.0, 2.5]});
        whole_numbers(&mut numbers);
        assert_eq!(numbers, json!({"a": [2, 2.5]}));
    }
}
