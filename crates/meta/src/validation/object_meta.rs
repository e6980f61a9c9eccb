//! `metadata` of any object, on create and on update.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::labels::labels;
use super::names::{
    dns1035_label, dns1123_label, dns1123_subdomain, dns1123_subdomain_bytes, mask_trailing_dash, path_segment_name, path_segment_prefix,
    qualified_name,
};
use super::options::field_manager;
use crate::field::{BadValue, ErrorList, FieldError, Path};
use crate::gotext::quote;
use crate::gvk::GroupVersion;

/// All annotations of one object together, keys and values, in bytes.
pub const TOTAL_ANNOTATION_SIZE_MAX: usize = 256 << 10;

/// The longest name of a subresource in a managedFields entry, in bytes.
const SUBRESOURCE_NAME_MAX: usize = 256;

/// How a kind's names are checked. A `generateName` is checked by the same rule, with its trailing hyphen forgiven.
#[derive(Clone, Copy, Debug)]
pub enum NameFormat {
    Dns1123Subdomain,
    /// The same rule with the newer text about length.
    Dns1123SubdomainBytes,
    Dns1123Label,
    Dns1035Label,
    PathSegment,
    /// A rule of one kind: the name, and whether it is only a prefix.
    Custom(fn(&str, bool) -> Vec<String>),
}

impl NameFormat {
    /// What is wrong with the name. `is_prefix` for a `generateName`.
    pub fn check(self, name: &str, is_prefix: bool) -> Vec<String> {
        let masked = if is_prefix { mask_trailing_dash(name) } else { name.to_owned() };
        match self {
            Self::Dns1123Subdomain => dns1123_subdomain(&masked),
            Self::Dns1123SubdomainBytes => dns1123_subdomain_bytes(&masked),
            Self::Dns1123Label => dns1123_label(&masked),
            Self::Dns1035Label => dns1035_label(&masked),
            Self::PathSegment if is_prefix => path_segment_prefix(name),
            Self::PathSegment => path_segment_name(name),
            Self::Custom(check) => check(name, is_prefix),
        }
    }
}

fn text<'a>(meta: &'a Value, key: &str) -> &'a str {
    meta.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(meta: &'a Value, key: &str) -> &'a [Value] {
    meta.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn object<'a>(meta: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    meta.get(key).and_then(Value::as_object)
}

/// `metadata` of a new object, after the name was generated. `path` is usually `metadata`.
pub fn object_meta_create(meta: &Value, namespaced: bool, format: NameFormat, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let generate_name = text(meta, "generateName");
    if !generate_name.is_empty() {
        let at = path.child("generateName");
        errors.extend(format.check(generate_name, true).into_iter().map(|m| FieldError::invalid(&at, generate_name, m)));
    }
    let name = text(meta, "name");
    let name_path = path.child("name");
    if name.is_empty() {
        errors.push(FieldError::required(&name_path, "name or generateName is required"));
    } else {
        errors.extend(format.check(name, false).into_iter().map(|m| FieldError::invalid(&name_path, name, m)));
    }

    let namespace = text(meta, "namespace");
    let namespace_path = path.child("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(&namespace_path, "")),
        (true, false) => {
            errors.extend(dns1123_label(namespace).into_iter().map(|m| FieldError::invalid(&namespace_path, namespace, m)));
        }
        (false, false) => errors.push(FieldError::forbidden(&namespace_path, "not allowed on this type")),
        (false, true) => {}
    }

    errors.extend(nonnegative(meta.get("generation").and_then(Value::as_i64).unwrap_or(0), &path.child("generation")));
    errors.extend(common(meta, path, true));
    errors
}

/// `metadata` of an update, against what is stored.
pub fn object_meta_update(new: &Value, old: &Value, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if old.get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
        errors.extend(no_new_finalizers(list(new, "finalizers"), list(old, "finalizers"), &path.child("finalizers")));
    }
    if text(new, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid(&path.child("resourceVersion"), "", "must be specified for an update"));
    }
    let generation = new.get("generation").and_then(Value::as_i64).unwrap_or(0);
    let generation_path = path.child("generation");
    errors.extend(nonnegative(generation, &generation_path));
    if generation < old.get("generation").and_then(Value::as_i64).unwrap_or(0) {
        errors.push(FieldError::invalid(&generation_path, generation, "must not be decremented"));
    }
    for key in ["name", "namespace", "uid"] {
        if text(new, key) != text(old, key) {
            errors.push(FieldError::immutable(&path.child(key), text(new, key)));
        }
    }
    for key in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        errors.extend(immutable(new.get(key), old.get(key), &path.child(key)));
    }
    errors.extend(common(new, path, false));
    errors
}

/// What create and update check alike. Finalizers' names are checked on create only.
fn common(meta: &Value, path: &Path<'_>, check_finalizers: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(map) = object(meta, "labels") {
        errors.extend(labels(map, &path.child("labels")));
    }
    if let Some(map) = object(meta, "annotations") {
        errors.extend(annotations(map, &path.child("annotations")));
    }
    errors.extend(owner_references(list(meta, "ownerReferences"), &path.child("ownerReferences")));
    if check_finalizers {
        errors.extend(finalizers(list(meta, "finalizers"), &path.child("finalizers")));
    }
    errors.extend(managed_fields(list(meta, "managedFields"), &path.child("managedFields")));
    errors
}

pub fn nonnegative(value: i64, path: &Path<'_>) -> ErrorList {
    if value >= 0 {
        return ErrorList::new();
    }
    vec![FieldError::invalid(path, value, "must be greater than or equal to 0")].into()
}

/// A field that never changes; absent equals null.
pub fn immutable(new: Option<&Value>, old: Option<&Value>, path: &Path<'_>) -> ErrorList {
    let new = new.unwrap_or(&Value::Null);
    if new == old.unwrap_or(&Value::Null) {
        return ErrorList::new();
    }
    vec![FieldError::immutable(path, new)].into()
}

/// Keys are qualified names in any case; the total size is limited.
pub fn annotations(annotations: &Map<String, Value>, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut size = 0;
    for (key, value) in annotations {
        let lower = key.to_lowercase();
        errors.extend(qualified_name(&lower).into_iter().map(|m| FieldError::invalid(path, key, m)));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > TOTAL_ANNOTATION_SIZE_MAX {
        errors.push(FieldError::too_long(path, TOTAL_ANNOTATION_SIZE_MAX));
    }
    errors
}

/// Each reference is complete, and at most one is the controller.
pub fn owner_references(references: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut controller: Option<String> = None;
    for (i, reference) in references.iter().enumerate() {
        errors.extend(owner_reference(reference, &path.index(i)));
        if reference.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let this = format!("{}/{}", text(reference, "kind"), text(reference, "name"));
        match &controller {
            Some(first) => {
                let detail = format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}");
                let all: Vec<String> = references.iter().map(owner_reference_json).collect();
                errors.push(FieldError::invalid(path, BadValue::Text(format!("[{}]", all.join(","))), detail));
            }
            None => controller = Some(this),
        }
    }
    errors
}

fn owner_reference(reference: &Value, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let api_version = text(reference, "apiVersion");
    let parsed = GroupVersion::parse(api_version);
    if api_version.is_empty() {
        errors.push(FieldError::required(&path.child("apiVersion"), "must not be empty"));
    } else if parsed.as_ref().map_or(true, |gv| gv.version.is_empty()) {
        errors.push(FieldError::invalid(&path.child("apiVersion"), api_version, "must be <group>/<version> or <version>"));
    }
    for key in ["kind", "name", "uid"] {
        if text(reference, key).is_empty() {
            errors.push(FieldError::required(&path.child(key), "must not be empty"));
        }
    }
    // Events come and go too fast to own anything.
    if api_version == "v1" && text(reference, "kind") == "Event" {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(FieldError::invalid(path, BadValue::Text(owner_reference_json(reference)), detail));
    }
    errors
}

/// The reference in the order in which upstream declares its fields.
fn owner_reference_json(reference: &Value) -> String {
    let mut parts: Vec<String> =
        ["apiVersion", "kind", "name", "uid"].iter().map(|key| format!("\"{key}\":{}", Value::from(text(reference, key)))).collect();
    for key in ["controller", "blockOwnerDeletion"] {
        if let Some(value) = reference.get(key).filter(|v| !v.is_null()) {
            parts.push(format!("\"{key}\":{value}"));
        }
    }
    format!("{{{}}}", parts.join(","))
}

pub fn finalizer_name(name: &str, path: &Path<'_>) -> ErrorList {
    qualified_name(name).into_iter().map(|m| FieldError::invalid(path, name, m)).collect()
}

/// Names, and that `orphan` and `foregroundDeletion` do not meet.
pub fn finalizers(finalizers: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for name in finalizers.iter().filter_map(Value::as_str) {
        errors.extend(finalizer_name(name, path));
    }
    let has = |name: &str| finalizers.iter().any(|f| f == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, Value::from(finalizers.to_vec()), detail));
    }
    errors
}

/// An object being deleted takes no new finalizers.
pub fn no_new_finalizers(new: &[Value], old: &[Value], path: &Path<'_>) -> ErrorList {
    let old: BTreeSet<&str> = old.iter().filter_map(Value::as_str).collect();
    let extra: BTreeSet<&str> = new.iter().filter_map(Value::as_str).filter(|f| !old.contains(f)).collect();
    if extra.is_empty() {
        return ErrorList::new();
    }
    let quoted: Vec<String> = extra.into_iter().map(quote).collect();
    let detail = format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", quoted.join(", "));
    vec![FieldError::forbidden(path, detail)].into()
}

/// The entries of `managedFields` that a client sent.
pub fn managed_fields(entries: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (i, entry) in entries.iter().enumerate() {
        let at = path.index(i);
        match text(entry, "operation") {
            "Apply" | "Update" => {}
            "" => errors.push(FieldError::required(&at.child("operation"), "must not be empty")),
            other => errors.push(FieldError::not_supported(&at.child("operation"), other, &["Apply", "Update"])),
        }
        let fields_type = text(entry, "fieldsType");
        if !fields_type.is_empty() && fields_type != "FieldsV1" {
            errors.push(FieldError::invalid(&at.child("fieldsType"), fields_type, "must be `FieldsV1`"));
        }
        errors.extend(field_manager(text(entry, "manager"), &at.child("manager")));
        if text(entry, "subresource").len() > SUBRESOURCE_NAME_MAX {
            errors.push(FieldError::too_long(&at.child("subresource"), SUBRESOURCE_NAME_MAX));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn create(meta: Value) -> Vec<String> {
        object_meta_create(&meta, true, NameFormat::Dns1123Subdomain, &Path::new("metadata")).iter().map(|e| e.to_string()).collect()
    }

    #[test]
    fn creation_reports_upstream_texts() {
        assert_eq!(create(json!({"namespace": "n"})), ["metadata.name: Required value: name or generateName is required"]);
        assert_eq!(create(json!({"name": "a"})), ["metadata.namespace: Required value"]);
        assert!(create(json!({"name": "a-x", "generateName": "a-", "namespace": "n"})).is_empty());
        let texts = create(json!({"name": "a", "namespace": "n", "finalizers": ["orphan", "foregroundDeletion"]}));
        assert_eq!(
            texts,
            ["metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be \
              both set"]
        );
        let huge = "x".repeat(TOTAL_ANNOTATION_SIZE_MAX);
        assert_eq!(
            create(json!({"name": "a", "namespace": "n", "annotations": {"k": huge}})),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
        let errors = object_meta_create(&json!({"name": "a", "namespace": "n"}), false, NameFormat::PathSegment, &Path::new("metadata"));
        assert_eq!(errors.aggregate(), "metadata.namespace: Forbidden: not allowed on this type");
    }

    #[test]
    fn owners_are_complete_and_have_one_controller() {
        let reference = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true});
        let texts = create(json!({"name": "a", "namespace": "n", "ownerReferences": [reference("x"), reference("y")]}));
        assert_eq!(
            texts,
            ["metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"x\",\"uid\":\"u\",\"controller\":\
              true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"y\",\"uid\":\"u\",\"controller\":true}]: Only one reference can have \
              Controller set to true. Found \"true\" in references for Pod/x and Pod/y"]
        );
        let texts = create(json!({"name": "a", "namespace": "n", "ownerReferences": [{"apiVersion": "a/b/c"}]}));
        assert_eq!(texts.len(), 4);
        assert_eq!(texts[0], "metadata.ownerReferences[0].apiVersion: Invalid value: \"a/b/c\": must be <group>/<version> or <version>");
    }

    #[test]
    fn updates_keep_identity() {
        let old = json!({"name": "a", "uid": "1", "generation": 2, "deletionTimestamp": "t", "finalizers": ["x.io/a"]});
        let new = json!({"name": "b", "uid": "1", "generation": 1, "deletionTimestamp": "t", "finalizers": ["y.example.com/more"]});
        let errors = object_meta_update(&new, &old, &Path::new("metadata"));
        let texts: Vec<String> = errors.iter().map(|e| e.to_string()).collect();
        assert_eq!(
            texts,
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{\"y.example.com/more\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
            ]
        );
    }
}
