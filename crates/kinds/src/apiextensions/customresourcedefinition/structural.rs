//! What makes a schema structural: every value has a type, so that pruning and defaulting know what stands where.

use serde_json::Value;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};

use crate::apiextensions::customresource::validate::{Validator, compile};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Schemas nest at most this deep; objects do as well.
const MAX_DEPTH: usize = 100;

/// Keywords that structural schemas do without.
const FORBIDDEN: [(&str, &str); 7] = [
    ("$ref", "$ref is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("id", "id is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("$schema", "$schema is not supported"),
];

/// What alternatives may not say, since they say nothing about what is kept of an object.
const NOT_IN_ALTERNATIVES: [&str; 7] =
    ["type", "default", "title", "description", "nullable", "additionalProperties", "x-kubernetes-preserve-unknown-fields"];

/// The whole schema of an object.
pub fn check(props: &Value, has_status: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let root = props["type"].as_str().unwrap_or_default();
    if has_status && root != "object" && !root.is_empty() {
        let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(&path.child("type"), root, why));
    }
    match root {
        "" => errors.push(FieldError::required(&path.child("type"), "must not be empty at the root")),
        "object" => {}
        other => errors.push(FieldError::invalid(&path.child("type"), other, "must be object at the root")),
    }
    if props["nullable"] == true {
        errors.push(FieldError::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    metadata(&props["properties"]["metadata"], path, errors);
    body(props, path, 0, errors);
}

/// Metadata is every object's own; a schema may only constrain names.
fn metadata(props: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(fields) = props.as_object() else { return };
    let only_names = props["properties"].as_object().is_none_or(|p| p.keys().all(|name| name == "name" || name == "generateName"));
    let known = fields.keys().all(|key| matches!(key.as_str(), "type" | "properties" | "description"));
    if !only_names || !known {
        let properties = path.child("properties");
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(&properties.key("metadata"), why));
    }
}

fn value(props: &Value, path: &Path<'_>, depth: usize, errors: &mut ErrorList, place: &str) {
    let int_or_string = props["x-kubernetes-int-or-string"] == true;
    let preserves = props["x-kubernetes-preserve-unknown-fields"] == true;
    match props["type"].as_str().unwrap_or_default() {
        "" if int_or_string || preserves => {}
        "" => errors.push(FieldError::required(&path.child("type"), format!("must not be empty for specified {place}"))),
        found if int_or_string => {
            errors.push(FieldError::invalid(&path.child("type"), found, "must be empty if x-kubernetes-int-or-string is true"));
        }
        found if !TYPES.contains(&found) => errors.push(FieldError::not_supported(&path.child("type"), found, &TYPES)),
        _ => {}
    }
    body(props, path, depth, errors);
}

fn body(props: &Value, path: &Path<'_>, depth: usize, errors: &mut ErrorList) {
    if depth > MAX_DEPTH {
        errors.push(FieldError::forbidden(path, format!("schemas nest at most {MAX_DEPTH} deep")));
        return;
    }
    for (key, why) in FORBIDDEN {
        if !props[key].is_null() {
            errors.push(FieldError::forbidden(&path.child(key), why));
        }
    }
    if props["uniqueItems"] == true {
        errors.push(FieldError::forbidden(
            &path.child("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    if let Some(pattern) = props["pattern"].as_str()
        && let Err(why) = compile(pattern)
    {
        errors.push(FieldError::invalid(
            &path.child("pattern"),
            pattern,
            format!("must be a valid regular expression, but isn't: {}", go_regex(pattern, &why)),
        ));
    }
    let kind = props["type"].as_str().unwrap_or_default();
    let has_properties = props["properties"].as_object().is_some_and(|p| !p.is_empty());
    let more = &props["additionalProperties"];
    if has_properties && !more.is_null() {
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), "additionalProperties and properties are mutual exclusive"));
    } else if *more == false {
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), "additionalProperties cannot be set to false"));
    }
    lists(props, kind, path, errors);
    rules(props, path, errors);
    let properties = path.child("properties");
    for (name, field) in props["properties"].as_object().into_iter().flatten() {
        // Metadata has been looked at, and type headers are every object's own.
        if depth == 0 && name == "metadata" {
            continue;
        }
        value(field, &properties.key(name), depth + 1, errors, "object fields");
    }
    if props["items"].is_array() {
        errors.push(FieldError::forbidden(&path.child("items"), "items must be a schema object and not an array"));
    } else if props["items"].is_object() {
        value(&props["items"], &path.child("items"), depth + 1, errors, "array items");
    }
    if props["additionalProperties"].is_object() {
        value(&props["additionalProperties"], &path.child("additionalProperties"), depth + 1, errors, "object fields");
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let of = path.child(key);
        // An integer or a string may be written with the alternatives that this means.
        if props["x-kubernetes-int-or-string"] == true {
            continue;
        }
        for (at, alternative) in props[key].as_array().into_iter().flatten().enumerate() {
            self::alternative(alternative, &of.index(at), depth + 1, errors);
        }
    }
    if props["not"].is_object() {
        alternative(&props["not"], &path.child("not"), depth + 1, errors);
    }
    default(props, path, errors);
}

fn alternative(props: &Value, path: &Path<'_>, depth: usize, errors: &mut ErrorList) {
    if depth > MAX_DEPTH {
        errors.push(FieldError::forbidden(path, format!("schemas nest at most {MAX_DEPTH} deep")));
        return;
    }
    for key in NOT_IN_ALTERNATIVES {
        if !props[key].is_null() && props[key] != "" && props[key] != false {
            errors.push(FieldError::forbidden(&path.child(key), "must be empty to be structural"));
        }
    }
    let properties = path.child("properties");
    for (name, field) in props["properties"].as_object().into_iter().flatten() {
        alternative(field, &properties.key(name), depth + 1, errors);
    }
    if props["items"].is_object() {
        alternative(&props["items"], &path.child("items"), depth + 1, errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let of = path.child(key);
        for (at, inner) in props[key].as_array().into_iter().flatten().enumerate() {
            alternative(inner, &of.index(at), depth + 1, errors);
        }
    }
}

fn lists(props: &Value, kind: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if kind == "array" && props["items"].is_null() {
        errors.push(FieldError::required(&path.child("items"), "must be specified"));
    }
    let list_type = props["x-kubernetes-list-type"].as_str();
    let type_path = path.child("x-kubernetes-list-type");
    if let Some(found) = list_type {
        if !matches!(found, "atomic" | "set" | "map") {
            errors.push(FieldError::not_supported(&type_path, found, &["atomic", "map", "set"]));
        }
        if kind != "array" {
            let why = "must be array if x-kubernetes-list-type is specified";
            errors.push(FieldError::invalid(&path.child("type"), kind, why));
        }
    }
    let keys = props["x-kubernetes-list-map-keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    let keys_path = path.child("x-kubernetes-list-map-keys");
    match list_type {
        Some("map") if keys.is_empty() => errors.push(FieldError::required(&keys_path, "must not be empty if x-kubernetes-list-type is map")),
        Some("map") => {
            let items = path.child("items");
            let properties = items.child("properties");
            for key in keys.iter().filter_map(Value::as_str) {
                let field = &props["items"]["properties"][key];
                let required = props["items"]["required"].as_array().is_some_and(|r| r.iter().any(|r| r == key));
                if !field.is_object() {
                    errors.push(FieldError::invalid(&keys_path, key, "entries must all be names of item properties"));
                } else if !required && field["default"].is_null() {
                    let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    errors.push(FieldError::required(&properties.key(key).child("default"), why));
                }
            }
        }
        _ if !keys.is_empty() => {
            let why = "must not be specified if x-kubernetes-list-type is not map";
            errors.push(FieldError::invalid(&keys_path, Value::from(keys.to_vec()), why));
        }
        _ => {}
    }
    if let Some(found) = props["x-kubernetes-map-type"].as_str()
        && !matches!(found, "atomic" | "granular")
    {
        errors.push(FieldError::not_supported(&path.child("x-kubernetes-map-type"), found, &["atomic", "granular"]));
    }
}

/// The parts of a rule that can be judged without its language.
fn rules(props: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let rules = path.child("x-kubernetes-validations");
    for (at, rule) in props["x-kubernetes-validations"].as_array().into_iter().flatten().enumerate() {
        let path = rules.index(at);
        if rule["rule"].as_str().is_none_or(|text| text.trim().is_empty()) {
            errors.push(FieldError::required(&path.child("rule"), "rule is not specified"));
        }
        if let Some(message) = rule["message"].as_str() {
            if message.trim().is_empty() && !message.is_empty() {
                errors.push(FieldError::invalid(&path.child("message"), message, "message must be non-empty if specified"));
            } else if message.contains(['\n', '\r']) {
                errors.push(FieldError::invalid(&path.child("message"), message, "message must not contain line breaks"));
            }
        }
    }
}

/// A default must be valid, and complete without pruning.
fn default(props: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(default) = props.get("default").filter(|default| !default.is_null()) else { return };
    for error in Validator::new(props.clone()).check(default).iter() {
        let mut error = error.clone();
        let at = path.child("default").to_string();
        error.field = if error.field == "<nil>" { at } else { format!("{at}.{}", error.field) };
        errors.push(error);
    }
}

/// The refusal of a pattern in the words of Go's compiler, where there is one for it.
fn go_regex(pattern: &str, why: &str) -> String {
    if why.contains("unclosed group") {
        return format!("error parsing regexp: missing closing ): `{pattern}`");
    }
    if why.contains("unopened group") {
        return format!("error parsing regexp: unexpected ): `{pattern}`");
    }
    if why.contains("unclosed character class") {
        return format!("error parsing regexp: missing closing ]: `{pattern}`");
    }
    format!("error parsing regexp: {}", why.lines().last().unwrap_or_default().trim_start_matches("error: "))
}
