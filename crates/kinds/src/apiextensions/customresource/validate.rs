//! Validation of a value against the value part of a structural schema, in the words of upstream's OpenAPI validator.
//!
//! Nothing here looks at CEL rules (`x-kubernetes-validations`).

use std::collections::HashMap;

use regex::{Regex, RegexBuilder};
use serde_json::Value;
use wheelhouse_meta::field::{BadValue, ErrorList, FieldError, FieldErrorKind};
use wheelhouse_meta::gotext;

use super::format;

/// Bytes of a compiled pattern: enough for real ones, and a bound on what a definition can make the server keep.
const MAX_PATTERN: usize = 1024 * 1024;

/// A schema with its patterns compiled.
pub struct Validator {
    props: Value,
    patterns: HashMap<String, Regex>,
}

/// Compiles a pattern; the error is the compiler's text.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(MAX_PATTERN).build().map_err(|error| error.to_string())
}

impl Validator {
    pub fn new(props: Value) -> Self {
        let mut patterns = HashMap::new();
        collect_patterns(&props, &mut patterns);
        Self { props, patterns }
    }

    pub fn props(&self) -> &Value {
        &self.props
    }

    /// Every error of a whole object.
    pub fn check(&self, object: &Value) -> ErrorList {
        let mut errors = Vec::new();
        self.value("", object, &self.props, &mut errors);
        errors.into()
    }

    fn value(&self, path: &str, value: &Value, props: &Value, errors: &mut Vec<FieldError>) {
        if value.is_null() && props["nullable"] == true {
            return;
        }
        let before = errors.len();
        check_type(path, value, props, errors);
        // A value of a wrong type has no other faults worth telling.
        if errors.len() > before {
            return;
        }
        self.combined(path, value, props, errors);
        match value {
            Value::String(text) => self.text(path, text, props, errors),
            Value::Number(number) => check_number(path, number.as_f64().unwrap_or_default(), value, props, errors),
            Value::Array(items) => self.list(path, items, props, errors),
            _ => {}
        }
        check_enum(path, value, props, errors);
        if let Value::Object(fields) = value {
            self.object(path, fields, props, errors);
        }
    }

    fn object(&self, path: &str, fields: &serde_json::Map<String, Value>, props: &Value, errors: &mut Vec<FieldError>) {
        let count = fields.len();
        if let Some(max) = number_of(props, "maxProperties").filter(|max| count > *max) {
            errors.push(error(FieldErrorKind::TooMany, path, count.into(), items_at_most(max)));
        }
        if let Some(min) = number_of(props, "minProperties").filter(|min| count < *min) {
            errors.push(error(FieldErrorKind::Invalid, path, count.into(), format!("{path} in body should have at least {min} properties")));
        }
        for name in props["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                errors.push(error(FieldErrorKind::Required, &child(path, name), BadValue::Omitted, String::new()));
            }
        }
        if props["x-kubernetes-embedded-resource"] == true {
            for name in ["apiVersion", "kind"] {
                if fields.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                    errors.push(error(FieldErrorKind::Required, &child(path, name), BadValue::Omitted, String::new()));
                }
            }
        }
        for (name, field) in fields {
            let declared = &props["properties"][name.as_str()];
            if declared.is_object() {
                self.value(&child(path, name), field, declared, errors);
            } else if props["additionalProperties"].is_object() {
                self.value(&child(path, name), field, &props["additionalProperties"], errors);
            }
        }
    }

    fn list(&self, path: &str, items: &[Value], props: &Value, errors: &mut Vec<FieldError>) {
        if let Some(min) = number_of(props, "minItems").filter(|min| items.len() < *min) {
            errors.push(error(FieldErrorKind::Invalid, path, items.len().into(), format!("{path} in body should have at least {min} items")));
        }
        if let Some(max) = number_of(props, "maxItems").filter(|max| items.len() > *max) {
            errors.push(error(FieldErrorKind::TooMany, path, items.len().into(), items_at_most(max)));
        }
        for (at, item) in items.iter().enumerate() {
            self.value(&format!("{path}[{at}]"), item, &props["items"], errors);
        }
        check_duplicates(path, items, props, errors);
    }

    /// The first fault of a text.
    fn text(&self, path: &str, text: &str, props: &Value, errors: &mut Vec<FieldError>) {
        let length = text.chars().count();
        let invalid = |why: String| error(FieldErrorKind::Invalid, path, text.into(), format!("{path} in body {why}"));
        if let Some(max) = number_of(props, "maxLength").filter(|max| length > *max) {
            let unit = if max == 1 { "byte" } else { "bytes" };
            errors.push(error(FieldErrorKind::TooLong, path, BadValue::Omitted, format!("may not be more than {max} {unit}")));
        } else if let Some(min) = number_of(props, "minLength").filter(|min| length < *min) {
            errors.push(invalid(format!("should be at least {min} chars long")));
        } else if let Some(pattern) = props["pattern"].as_str()
            && self.patterns.get(pattern).is_some_and(|compiled| !compiled.is_match(text))
        {
            errors.push(invalid(format!("should match '{pattern}'")));
        }
        if let Some(format) = props["format"].as_str()
            && !format::fits(format, text)
        {
            let why = format!("{path} in body must be of type {format}: {}", gotext::quote(text));
            errors.push(error(FieldErrorKind::TypeInvalid, path, text.into(), why));
        }
    }

    /// `allOf`, `anyOf`, `oneOf` and `not`.
    fn combined(&self, path: &str, value: &Value, props: &Value, errors: &mut Vec<FieldError>) {
        let faults = |props: &Value| {
            let mut faults = Vec::new();
            self.value(path, value, props, &mut faults);
            faults
        };
        let each = |key: &str| props[key].as_array().map(|all| all.iter().map(faults).collect::<Vec<_>>()).filter(|all| !all.is_empty());
        let whole = |why: String| error(FieldErrorKind::Invalid, "", BadValue::from(""), format!("{} {why}", gotext::quote(path)));
        // The alternative that comes closest says what is missing.
        let closest = |all: Vec<Vec<FieldError>>| all.into_iter().reduce(|best, next| if next.len() < best.len() { next } else { best });
        if let Some(all) = each("anyOf")
            && all.iter().all(|faults| !faults.is_empty())
        {
            errors.push(whole("must validate at least one schema (anyOf)".into()));
            errors.extend(closest(all).unwrap_or_default());
        }
        if let Some(all) = each("oneOf") {
            match all.iter().filter(|faults| faults.is_empty()).count() {
                1 => {}
                0 => {
                    errors.push(whole("must validate one and only one schema (oneOf). Found none valid".into()));
                    errors.extend(closest(all).unwrap_or_default());
                }
                valid => errors.push(whole(format!("must validate one and only one schema (oneOf). Found {valid} valid alternatives"))),
            }
        }
        if let Some(all) = each("allOf")
            && all.iter().any(|faults| !faults.is_empty())
        {
            let some = all.iter().any(Vec::is_empty);
            let why = if some { "must validate all the schemas (allOf)" } else { "must validate all the schemas (allOf). None validated" };
            errors.push(whole(why.into()));
            errors.extend(all.into_iter().flatten());
        }
        if props["not"].is_object() && faults(&props["not"]).is_empty() {
            errors.push(whole("must not validate the schema (not)".into()));
        }
    }
}

fn collect_patterns(props: &Value, into: &mut HashMap<String, Regex>) {
    match props {
        Value::Object(fields) => {
            if let Some(pattern) = fields.get("pattern").and_then(Value::as_str)
                && !into.contains_key(pattern)
                && let Ok(compiled) = compile(pattern)
            {
                into.insert(pattern.to_owned(), compiled);
            }
            fields.values().for_each(|value| collect_patterns(value, into));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_patterns(item, into)),
        _ => {}
    }
}

/// An error at a printed path; the empty path prints as Go's nil path.
fn error(kind: FieldErrorKind, path: &str, bad_value: BadValue, detail: String) -> FieldError {
    let field = if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() };
    FieldError { kind, field, bad_value, detail }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn number_of(props: &Value, key: &str) -> Option<usize> {
    props[key].as_u64().and_then(|n| usize::try_from(n).ok())
}

fn items_at_most(max: usize) -> String {
    format!("must have at most {max} {}", if max == 1 { "item" } else { "items" })
}

/// What OpenAPI calls a value's type.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_type(path: &str, value: &Value, props: &Value, errors: &mut Vec<FieldError>) {
    let found = type_of(value);
    let int_or_string = props["x-kubernetes-int-or-string"] == true;
    let (wanted, fits) = match props["type"].as_str() {
        _ if int_or_string => ("integer,string", matches!(found, "integer" | "string")),
        Some("number") => ("number", matches!(found, "integer" | "number")),
        Some(wanted) => (wanted, wanted == found),
        None => return,
    };
    if fits {
        return;
    }
    let why = format!("{path} in body must be of type {wanted}: {}", gotext::quote(found));
    errors.push(error(FieldErrorKind::TypeInvalid, path, found.into(), why));
    if wanted == "integer" && found == "number" {
        let why = format!("Checked value must be of type integer (default format) in {path}");
        errors.push(error(FieldErrorKind::Invalid, "", BadValue::from(""), why));
    }
}

fn check_number(path: &str, number: f64, value: &Value, props: &Value, errors: &mut Vec<FieldError>) {
    let mut invalid = |why: String| errors.push(error(FieldErrorKind::Invalid, path, value.into(), format!("{path} in body should be {why}")));
    let exclusive = |key: &str| props[key] == true;
    if let Some(factor) = props["multipleOf"].as_f64().filter(|factor| *factor > 0.0) {
        let quotient = number / factor;
        if (quotient - quotient.round()).abs() > f64::EPSILON * quotient.abs().max(1.0) {
            invalid(format!("a multiple of {}", gotext::float(factor)));
        }
    }
    if let Some(max) = props["maximum"].as_f64() {
        match exclusive("exclusiveMaximum") {
            true if number >= max => invalid(format!("less than {}", gotext::float(max))),
            false if number > max => invalid(format!("less than or equal to {}", gotext::float(max))),
            _ => {}
        }
    }
    if let Some(min) = props["minimum"].as_f64() {
        match exclusive("exclusiveMinimum") {
            true if number <= min => invalid(format!("greater than {}", gotext::float(min))),
            false if number < min => invalid(format!("greater than or equal to {}", gotext::float(min))),
            _ => {}
        }
    }
}

fn check_enum(path: &str, value: &Value, props: &Value, errors: &mut Vec<FieldError>) {
    let Some(allowed) = props["enum"].as_array().filter(|allowed| !allowed.is_empty() && !allowed.contains(value)) else { return };
    let shown: Vec<String> = allowed.iter().map(|a| a.as_str().map_or_else(|| a.to_string(), str::to_owned)).collect();
    let quoted: Vec<String> = shown.iter().map(|text| gotext::quote(text)).collect();
    let detail = format!("supported values: {}", quoted.join(", "));
    errors.push(error(FieldErrorKind::NotSupported, path, value.into(), detail));
}

/// Lists that are sets hold no value twice, lists that are maps no key.
fn check_duplicates(path: &str, items: &[Value], props: &Value, errors: &mut Vec<FieldError>) {
    let keys: Vec<&str> = props["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let key_of = |item: &Value| -> Option<Value> {
        match props["x-kubernetes-list-type"].as_str()? {
            "set" => Some(item.clone()),
            // A key that is left out counts with its default, which has been filled in.
            "map" => Some(keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone()))).collect::<serde_json::Map<_, _>>().into()),
            _ => None,
        }
    };
    let mut met = std::collections::HashSet::new();
    for (at, item) in items.iter().enumerate() {
        let Some(key) = key_of(item) else { return };
        if !met.insert(key.to_string()) {
            errors.push(error(FieldErrorKind::Duplicate, &format!("{path}[{at}]"), key.into(), String::new()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Recorded from upstream 1.36.
    #[test]
    fn faults_read_as_recorded() {
        let validator = Validator::new(json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "color": {"type": "string", "enum": ["red", "blue"]},
            "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
            "tags": {"type": "array", "maxItems": 3, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                "items": {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "either": {"x-kubernetes-int-or-string": true},
            "ratio": {"type": "number", "multipleOf": 0.5},
            "when": {"type": "string", "format": "date-time"},
            "one": {"type": "object", "oneOf": [{"required": ["x"]}, {"required": ["y"]}]},
        }}}}));
        let cases = [
            (json!({}), "spec.size: Required value"),
            (json!({"size": 0}), "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
            (json!({"size": "x"}), "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\""),
            (
                json!({"size": 1.5}),
                "[spec.size: Invalid value: \"number\": spec.size in body must be of type integer: \"number\", <nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.size]",
            ),
            (json!({"size": 3, "color": "green"}), "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\""),
            (json!({"size": 3, "name": "A"}), "spec.name: Invalid value: \"A\": spec.name in body should be at least 2 chars long"),
            (json!({"size": 3, "name": "toolongname"}), "spec.name: Too long: may not be more than 5 bytes"),
            (json!({"size": 3, "tags": ["a", "a"]}), "spec.tags[1]: Duplicate value: \"a\""),
            (json!({"size": 3, "tags": ["a", "b", "c", "d"]}), "spec.tags: Too many: 4: must have at most 3 items"),
            (json!({"size": 3, "ports": [{"port": 1}, {"port": 1}]}), "spec.ports[1]: Duplicate value: {\"port\":1}"),
            (json!({"size": 3, "ports": [{}]}), "spec.ports[0].port: Required value"),
            (json!({"size": 3, "map": {"a": "b"}}), "spec.map.a: Invalid value: \"string\": spec.map.a in body must be of type integer: \"string\""),
            (
                json!({"size": 3, "either": 1.5}),
                "spec.either: Invalid value: \"number\": spec.either in body must be of type integer,string: \"number\"",
            ),
            (json!({"size": 3, "ratio": 0.7}), "spec.ratio: Invalid value: 0.7: spec.ratio in body should be a multiple of 0.5"),
            (
                json!({"size": 3, "when": "yesterday"}),
                "spec.when: Invalid value: \"yesterday\": spec.when in body must be of type date-time: \"yesterday\"",
            ),
            (
                json!({"size": 3, "one": {}}),
                "[<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found none valid, spec.one.x: Required value]",
            ),
            (
                json!({"size": 3, "one": {"x": 1, "y": 2}}),
                "<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(validator.check(&json!({"spec": spec})).aggregate(), expected, "{spec}");
        }
        assert!(validator.check(&json!({"spec": {"size": 9, "ratio": 1.5, "either": "5%", "name": "abc"}})).is_empty());
        let wrong = validator.check(&json!({"spec": []})).aggregate();
        assert_eq!(wrong, "spec: Invalid value: \"array\": spec in body must be of type object: \"array\"");
    }
}
