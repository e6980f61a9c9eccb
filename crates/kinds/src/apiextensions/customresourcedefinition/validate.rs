//! What a CustomResourceDefinition must be.

use std::collections::HashSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionVersion,
    CustomResourceSubresourceScale,
};
use serde_json::json;
use wheelhouse_meta::validation as names;

use super::structural;
use crate::apiextensions::customresource::JsonPath;
use crate::prelude::*;

/// Groups that belong to the Kubernetes community need its approval.
const PROTECTED: [&str; 2] = ["k8s.io", "kubernetes.io"];
const APPROVED: &str = "api-approved.kubernetes.io";
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 9] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password", "name"];

pub fn create(object: &CustomResourceDefinition) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = &object.spec;
    let wanted = format!("{}.{}", spec.names.plural, spec.group);
    // A name that is missing is reported with the metadata.
    if !text(&object.metadata.name).is_empty() && text(&object.metadata.name) != wanted {
        let metadata = Path::new("metadata");
        errors.push(FieldError::invalid(&metadata.child("name"), text(&object.metadata.name), "must be spec.names.plural+\".\"+spec.group"));
    }
    self::spec(object, &mut errors);
    approval(object, &mut errors);
    errors.extend(status(object));
    errors
}

pub fn update(new: &CustomResourceDefinition, old: &CustomResourceDefinition) -> ErrorList {
    let mut errors = ErrorList::new();
    self::spec(new, &mut errors);
    let path = Path::new("spec");
    // Once it is served, objects lie under its names.
    if super::is_true(old, "Established") {
        let mut fixed = |path: &Path<'_>, new: &str, old: &str| {
            if new != old {
                errors.push(FieldError::immutable(path, new));
            }
        };
        fixed(&path.child("scope"), &new.spec.scope, &old.spec.scope);
        fixed(&path.child("names").child("kind"), &new.spec.names.kind, &old.spec.names.kind);
    }
    for (field, new, old) in [("group", &new.spec.group, &old.spec.group)] {
        if new != old {
            errors.push(FieldError::immutable(&path.child(field), new));
        }
    }
    if new.spec.names.plural != old.spec.names.plural {
        errors.push(FieldError::immutable(&path.child("names").child("plural"), &new.spec.names.plural));
    }
    errors.extend(status(new));
    errors
}

pub fn status(object: &CustomResourceDefinition) -> ErrorList {
    let mut errors = ErrorList::new();
    let stored = object.status.as_ref().and_then(|s| s.stored_versions.as_deref()).unwrap_or_default();
    let path = Path::new("status");
    let path = path.child("storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::invalid(&path, BadValue::Null, "must have at least one stored version"));
        return errors;
    }
    for (at, name) in stored.iter().enumerate() {
        if !object.spec.versions.iter().any(|v| v.name == *name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(&path.index(at), name, why));
        }
    }
    errors
}

fn approval(object: &CustomResourceDefinition, errors: &mut ErrorList) {
    let group = &object.spec.group;
    let protected = PROTECTED.iter().any(|suffix| group == suffix || group.ends_with(&format!(".{suffix}")));
    if !protected {
        return;
    }
    let approved = object.metadata.annotations.as_ref().and_then(|a| a.get(APPROVED)).map(String::as_str).unwrap_or_default();
    let metadata = Path::new("metadata");
    let path = metadata.child("annotations");
    let path = path.key(APPROVED);
    if approved.is_empty() {
        let why =
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        errors.push(FieldError::required(&path, why));
    } else if !approved.starts_with("unapproved") && !approved.starts_with("https://") && !approved.starts_with("http://") {
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111";
        errors.push(FieldError::invalid(&path, approved, why));
    }
}

fn spec(object: &CustomResourceDefinition, errors: &mut ErrorList) {
    let spec = &object.spec;
    let path = Path::new("spec");
    let group = path.child("group");
    if spec.group.is_empty() {
        errors.push(FieldError::required(&group, ""));
    } else {
        validation::texts(names::dns1123_subdomain(&spec.group), &spec.group, &group, errors);
        if names::dns1123_subdomain(&spec.group).is_empty() && !spec.group.contains('.') {
            errors.push(FieldError::invalid(&group, &spec.group, "should be a domain with at least one dot"));
        }
    }
    match spec.scope.as_str() {
        "" => errors.push(FieldError::required(&path.child("scope"), "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(FieldError::not_supported(&path.child("scope"), other, &["Cluster", "Namespaced"])),
    }
    if spec.preserve_unknown_fields == Some(true) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(&path.child("preserveUnknownFields"), true, why));
    }
    versions(&spec.versions, &path, errors);
    self::names(&spec.names, &path.child("names"), errors);
    if let Some(conversion) = &spec.conversion {
        self::conversion(conversion, &path.child("conversion"), errors);
    }
}

fn versions(versions: &[CustomResourceDefinitionVersion], spec: &Path<'_>, errors: &mut ErrorList) {
    let path = spec.child("versions");
    let mut met = HashSet::new();
    if versions.iter().any(|v| !met.insert(&v.name)) {
        errors.push(FieldError::invalid(&path, shown_versions(versions), "must contain unique version names"));
    }
    if versions.iter().filter(|v| v.storage).count() != 1 {
        errors.push(FieldError::invalid(&path, shown_versions(versions), "must have exactly one version marked as storage version"));
    }
    for (at, version) in versions.iter().enumerate() {
        let path = path.index(at);
        validation::texts(names::dns1035_label(&version.name), &version.name, &path.child("name"), errors);
        if at == 0 {
            validation::texts(names::dns1035_label(&version.name), &version.name, &spec.child("version"), errors);
        }
        match version.deprecation_warning.as_deref() {
            Some(warning) if version.deprecated != Some(true) => {
                errors.push(FieldError::invalid(&path.child("deprecationWarning"), warning, "can only be set for deprecated versions"));
            }
            Some("") => errors.push(FieldError::invalid(&path.child("deprecationWarning"), "", "must not be an empty string")),
            _ => {}
        }
        self::version(version, versions.len() == 1, spec, &path, errors);
    }
}

/// Where all versions agree, and one always does, upstream's messages name the fields of the definition and not those of the version.
fn version(version: &CustomResourceDefinitionVersion, only: bool, spec: &Path<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let props = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref());
    let Some(props) = props.and_then(|props| serde_json::to_value(props).ok()) else {
        let schema = path.child("schema");
        errors.push(FieldError::required(&schema.child("openAPIV3Schema"), ""));
        return;
    };
    let at = if only { *spec } else { *path };
    let holder = at.child(if only { "validation" } else { "schema" });
    let has_status = version.subresources.as_ref().is_some_and(|s| s.status.is_some());
    structural::check(&props, has_status, &holder.child("openAPIV3Schema"), errors);
    if let Some(scale) = version.subresources.as_ref().and_then(|s| s.scale.as_ref()) {
        let subresources = at.child("subresources");
        self::scale(scale, &subresources.child("scale"), errors);
    }
    let columns = at.child("additionalPrinterColumns");
    for (i, column) in items(&version.additional_printer_columns).iter().enumerate() {
        let path = columns.index(i);
        if column.name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        if column.type_.is_empty() {
            let why = format!("must be one of {}", COLUMN_TYPES.join(","));
            errors.push(FieldError::required(&path.child("type"), why));
        } else if !COLUMN_TYPES.contains(&column.type_.as_str()) {
            let why = format!("must be one of {}", COLUMN_TYPES.join(","));
            errors.push(FieldError::invalid(&path.child("type"), &column.type_, why));
        }
        let format = text(&column.format);
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(&path.child("format"), format, why));
        }
        if column.json_path.is_empty() {
            errors.push(FieldError::required(&path.child("JSONPath"), ""));
        } else if JsonPath::parse(&column.json_path).is_none() {
            errors.push(FieldError::invalid(&path.child("JSONPath"), &column.json_path, "must be a simple json path starting with ."));
        }
    }
    let selectable = at.child("selectableFields");
    let mut met = HashSet::new();
    for (i, field) in items(&version.selectable_fields).iter().enumerate() {
        let path = selectable.index(i);
        let path = path.child("jsonPath");
        if field.json_path.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !met.insert(&field.json_path) {
            errors.push(FieldError::duplicate(&path, &field.json_path));
        } else {
            self::selectable(&field.json_path, &props, &path, errors);
        }
    }
}

/// A selectable field is a declared scalar outside metadata.
fn selectable(json_path: &str, props: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let parsed = JsonPath::parse(json_path);
    let steps = parsed.as_ref().and_then(JsonPath::fields).filter(|steps| steps.first() != Some(&"metadata"));
    let declared = steps.and_then(|steps| steps.iter().try_fold(props, |props, step| props["properties"].get(step)));
    let Some(declared) = declared else {
        errors.push(FieldError::invalid(path, json_path, "is an invalid path: does not refer to a valid field"));
        return;
    };
    if !matches!(declared["type"].as_str(), Some("string" | "boolean" | "integer")) {
        let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
        errors.push(FieldError::invalid(path, json_path, why));
    }
}

fn scale(scale: &CustomResourceSubresourceScale, path: &Path<'_>, errors: &mut ErrorList) {
    let mut under = |field: &str, value: &str, roots: &[&str], required: bool| {
        let path = path.child(field);
        if value.is_empty() {
            if required {
                errors.push(FieldError::required(&path, ""));
            }
        } else if JsonPath::parse(value).as_ref().and_then(JsonPath::fields).is_none() {
            errors.push(FieldError::invalid(&path, value, "must be a simple json path without index"));
        } else if !roots.iter().any(|root| value.starts_with(root)) {
            let roots: Vec<&str> = roots.iter().map(|root| root.trim_end_matches('.')).collect();
            errors.push(FieldError::invalid(&path, value, format!("should be a json path under {}", roots.join(" or "))));
        }
    };
    under("specReplicasPath", &scale.spec_replicas_path, &[".spec."], true);
    under("statusReplicasPath", &scale.status_replicas_path, &[".status."], true);
    under("labelSelectorPath", text(&scale.label_selector_path), &[".spec.", ".status."], false);
}

fn names(names: &CustomResourceDefinitionNames, path: &Path<'_>, errors: &mut ErrorList) {
    let label = |field: &str, value: &str, errors: &mut ErrorList| {
        validation::texts(names::dns1035_label(value), value, &path.child(field), errors);
    };
    // Kinds are CamelCase, and otherwise labels.
    let kind = |field: &str, value: &str, errors: &mut ErrorList| {
        let why = names::dns1035_label(&value.to_lowercase());
        let why = why.into_iter().map(|why| format!("may have mixed case, but should otherwise match: {why}")).collect();
        validation::texts(why, value, &path.child(field), errors);
    };
    label("plural", &names.plural, errors);
    label("singular", text(&names.singular), errors);
    kind("kind", &names.kind, errors);
    kind("listKind", text(&names.list_kind), errors);
    if !names.kind.is_empty() && names.kind == text(&names.list_kind) {
        errors.push(FieldError::invalid(&path.child("listKind"), text(&names.list_kind), "kind and listKind may not be the same"));
    }
    for (field, list) in [("shortNames", &names.short_names), ("categories", &names.categories)] {
        let path = path.child(field);
        for (at, name) in items(list).iter().enumerate() {
            validation::texts(names::dns1035_label(name), name, &path.index(at), errors);
        }
    }
}

fn conversion(conversion: &CustomResourceConversion, path: &Path<'_>, errors: &mut ErrorList) {
    match conversion.strategy.as_str() {
        "None" => {
            if conversion.webhook.is_some() {
                errors.push(FieldError::forbidden(&path.child("webhookClientConfig"), "should not be set when strategy is not set to Webhook"));
            }
        }
        "Webhook" => {
            let webhook = conversion.webhook.as_ref();
            if webhook.is_none_or(|w| w.client_config.is_none()) {
                errors.push(FieldError::required(&path.child("webhookClientConfig"), "required when strategy is set to Webhook"));
            }
            if webhook.is_none_or(|w| w.conversion_review_versions.is_empty()) {
                errors.push(FieldError::required(&path.child("conversionReviewVersions"), ""));
            }
            if webhook.is_some() {
                errors.push(FieldError::forbidden(&path.child("strategy"), "conversion webhooks are not supported by this server"));
            }
        }
        "" => errors.push(FieldError::required(&path.child("strategy"), "")),
        other => errors.push(FieldError::not_supported(&path.child("strategy"), other, &["None", "Webhook"])),
    }
}

/// The versions as upstream's internal struct shows them.
fn shown_versions(versions: &[CustomResourceDefinitionVersion]) -> BadValue {
    let shown: Vec<String> = versions
        .iter()
        .map(|v| {
            let warning = v.deprecation_warning.as_ref().map_or_else(|| "null".to_owned(), |w| json!(w).to_string());
            let name = json!(v.name);
            format!(
                "{{\"Name\":{name},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{warning},\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                v.served,
                v.storage,
                v.deprecated == Some(true)
            )
        })
        .collect();
    BadValue::Text(format!("[{}]", shown.join(",")))
}
