//! Environment variables and what they may refer to.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector};
use wheelhouse_meta::validation as names;

use super::quantity;
use crate::prelude::*;

/// What a variable may take from the pod.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// What a file may take from the pod.
pub const VOLUME_FIELDS: &[&str] = &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// What is a field of a pod for the downward API at all.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCES: &[&str] =
    &["limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"];

pub fn validate(variables: &[EnvVar], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, variable) in variables.iter().enumerate() {
        let path = path.index(at);
        if variable.name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        } else {
            validation::texts(names::relaxed_env_var_name(&variable.name), &variable.name, &path.child("name"), errors);
        }
        if let Some(source) = &variable.value_from {
            value_from(source, text(&variable.value), &path.child("valueFrom"), errors);
        }
    }
}

fn value_from(source: &EnvVarSource, value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let mut count = 0;
    if let Some(field) = &source.field_ref {
        count += 1;
        field_selector(field, ENV_FIELDS, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = &source.resource_field_ref {
        count += 1;
        resource_selector(resource, false, &path.child("resourceFieldRef"), errors);
    }
    if let Some(key) = &source.config_map_key_ref {
        count += 1;
        key_selector(&key.name, &key.key, &path.child("configMapKeyRef"), errors);
    }
    if let Some(key) = &source.secret_key_ref {
        count += 1;
        key_selector(&key.name, &key.key, &path.child("secretKeyRef"), errors);
    }
    if let Some(file) = &source.file_key_ref {
        count += 1;
        let path = path.child("fileKeyRef");
        for (field, value) in [("volumeName", &file.volume_name), ("path", &file.path), ("key", &file.key)] {
            if value.is_empty() {
                errors.push(FieldError::required(&path.child(field), ""));
            }
        }
    }
    let why = match count {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !value.is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(path, "", why));
}

fn key_selector(name: &str, key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    if key.is_empty() {
        errors.push(FieldError::required(&path.child("key"), ""));
    } else {
        validation::config_map_key(key, &path.child("key"), errors);
    }
}

pub fn field_selector(field: &ObjectFieldSelector, allowed: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    if text(&field.api_version).is_empty() {
        errors.push(FieldError::required(&path.child("apiVersion"), ""));
        return;
    }
    let label = field.field_path.as_str();
    if label.is_empty() {
        errors.push(FieldError::required(&path.child("fieldPath"), ""));
        return;
    }
    let subscripted = label.strip_suffix("']").and_then(|l| l.split_once("['"));
    let unknown = || FieldError::invalid(&path.child("fieldPath"), label, format!("error converting fieldPath: field label not supported: {label}"));
    if let Some((of, key)) = subscripted {
        match of {
            "metadata.annotations" => validation::texts(names::qualified_name(&key.to_lowercase()), key, path, errors),
            "metadata.labels" => validation::texts(names::qualified_name(key), key, path, errors),
            _ => errors.push(unknown()),
        }
    } else if !KNOWN_FIELDS.contains(&label) && label != "spec.host" {
        errors.push(unknown());
    } else if !allowed.contains(&label) {
        errors.push(FieldError::not_supported(&path.child("fieldPath"), label, allowed));
    }
}

/// `in_file` says that no container is implied, so one must be named.
pub fn resource_selector(selector: &ResourceFieldSelector, in_file: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let resource = selector.resource.as_str();
    if in_file && text(&selector.container_name).is_empty() {
        errors.push(FieldError::required(&path.child("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(&path.child("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !resource.starts_with("limits.hugepages-") && !resource.starts_with("requests.hugepages-") {
        errors.push(FieldError::not_supported(&path.child("resource"), resource, RESOURCES));
    }
    let divisor = selector.divisor.as_ref().map(|d| quantity(d).canonical()).unwrap_or_else(|| "0".to_owned());
    if divisor == "0" {
        return;
    }
    let (allowed, why): (&[&str], &str) = if resource.ends_with(".cpu") {
        (&["1m", "1"], "only divisor's values 1m and 1 are supported with the cpu resource")
    } else if resource.ends_with(".memory") {
        (BYTES, "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource")
    } else if resource.ends_with(".ephemeral-storage") {
        (
            BYTES,
            "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource",
        )
    } else {
        return;
    };
    if !allowed.contains(&divisor.as_str()) {
        errors.push(FieldError::invalid(&path.child("divisor"), resource, why));
    }
}

const BYTES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub fn from(sources: &[EnvFromSource], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, source) in sources.iter().enumerate() {
        let here = path.index(at);
        let prefix = text(&source.prefix);
        if !prefix.is_empty() {
            validation::texts(names::relaxed_env_var_name(prefix), prefix, &here.child("prefix"), errors);
        }
        let named = [
            ("configMapRef", source.config_map_ref.as_ref().map(|r| r.name.as_str())),
            ("secretRef", source.secret_ref.as_ref().map(|r| r.name.as_str())),
        ];
        let mut count = 0;
        for (field, name) in named {
            let Some(name) = name else { continue };
            count += 1;
            if name.is_empty() {
                errors.push(FieldError::required(&here.child(field).child("name"), ""));
            }
        }
        match count {
            0 => errors.push(FieldError::invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(FieldError::invalid(path, "", "may not have more than one field specified at a time")),
        }
    }
}
