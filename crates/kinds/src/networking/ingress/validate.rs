//! What an Ingress must be.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::api::networking::v1::{HTTPIngressPath, Ingress, IngressBackend, IngressRule, IngressServiceBackend};
use wheelhouse_meta::validation as names;

use super::CLASS_ANNOTATION;
use crate::prelude::*;

/// What no path may hold, or end with: controllers would read it each in its own way.
const NOT_IN_PATHS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const NOT_AT_THE_END: [&str; 2] = ["/..", "/."];

pub fn create(object: &Ingress) -> ErrorList {
    let mut errors = ErrorList::new();
    let annotated = object.metadata.annotations.as_ref().and_then(|a| a.get(CLASS_ANNOTATION));
    let class = object.spec.as_ref().and_then(|s| s.ingress_class_name.as_ref());
    spec(object, &mut errors);
    if let (Some(value), Some(_)) = (annotated, class) {
        let path = Path::new("annotations");
        errors.push(FieldError::invalid(&path.child(CLASS_ANNOTATION), value, "can not be set when the class field is also set"));
    }
    errors
}

pub fn update(object: &Ingress) -> ErrorList {
    let mut errors = ErrorList::new();
    spec(object, &mut errors);
    errors
}

fn spec(object: &Ingress, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    let rules = items(&spec.rules);
    if rules.is_empty() && spec.default_backend.is_none() {
        let shown = spec.rules.as_ref().map_or_else(|| BadValue::Text("null".to_owned()), BadValue::typed);
        errors.push(FieldError::invalid(&path, shown, "either `defaultBackend` or `rules` must be specified"));
    }
    if let Some(default) = &spec.default_backend {
        backend(default, &path.child("defaultBackend"), errors);
    }
    let here = path.child("rules");
    for (at, rule_) in rules.iter().enumerate() {
        rule(rule_, &here.index(at), errors);
    }
    let here = path.child("tls");
    for (at, tls) in items(&spec.tls).iter().enumerate() {
        let path = here.index(at);
        let hosts = path.child("hosts");
        for (at, name) in items(&tls.hosts).iter().enumerate() {
            host(name, &hosts.index(at), errors);
        }
        if let Some(secret) = tls.secret_name.as_ref().filter(|s| !s.is_empty()) {
            validation::texts(names::dns1123_subdomain(secret), secret, &path.child("secretName"), errors);
        }
    }
    if let Some(class) = &spec.ingress_class_name {
        validation::texts(names::dns1123_subdomain(class), class, &path.child("ingressClassName"), errors);
    }
}

/// A domain, its first label possibly a wildcard.
fn host(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let problems = if name.contains('*') { names::wildcard_dns1123_subdomain(name) } else { names::dns1123_subdomain(name) };
    validation::texts(problems, name, path, errors);
}

fn rule(rule: &IngressRule, path: &Path<'_>, errors: &mut ErrorList) {
    let name = text(&rule.host);
    if !name.is_empty() {
        let here = path.child("host");
        if names::parse_ip(name).is_some() {
            errors.push(FieldError::invalid(&here, name, "must be a DNS name, not an IP address"));
        }
        host(name, &here, errors);
    }
    let Some(http) = &rule.http else { return };
    let here = path.child("http");
    let here = here.child("paths");
    if http.paths.is_empty() {
        errors.push(FieldError::required(&here, ""));
    }
    for (at, path_) in http.paths.iter().enumerate() {
        http_path(path_, &here.index(at), errors);
    }
}

fn http_path(rule: &HTTPIngressPath, path: &Path<'_>, errors: &mut ErrorList) {
    let value = text(&rule.path);
    let here = path.child("path");
    match rule.path_type.as_str() {
        "" => errors.push(FieldError::required(&path.child("pathType"), "pathType must be specified")),
        "Exact" | "Prefix" => {
            if !value.starts_with('/') {
                errors.push(FieldError::invalid(&here, value, "must be an absolute path"));
            }
            if !value.is_empty() {
                for sequence in NOT_IN_PATHS.iter().filter(|s| value.contains(**s)) {
                    errors.push(FieldError::invalid(&here, value, format!("must not contain '{sequence}'")));
                }
                for end in NOT_AT_THE_END.iter().filter(|e| value.ends_with(**e)) {
                    errors.push(FieldError::invalid(&here, value, format!("cannot end with '{end}'")));
                }
            }
        }
        "ImplementationSpecific" if !value.is_empty() && !value.starts_with('/') => {
            errors.push(FieldError::invalid(&here, value, "must be an absolute path"));
        }
        "ImplementationSpecific" => {}
        other => {
            errors.push(FieldError::not_supported(&path.child("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]));
        }
    }
    backend(&rule.backend, &path.child("backend"), errors);
}

fn backend(backend: &IngressBackend, path: &Path<'_>, errors: &mut ErrorList) {
    match (&backend.resource, &backend.service) {
        (Some(_), Some(_)) => errors.push(FieldError::invalid(path, "", "cannot set both resource and service backends")),
        (Some(resource), None) => reference(resource, &path.child("resource"), errors),
        (None, Some(service_)) => service(service_, path, errors),
        (None, None) => errors.push(FieldError::invalid(path, "", "resource or service backend is required")),
    }
}

fn service(service: &IngressServiceBackend, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("service");
    if service.name.is_empty() {
        errors.push(FieldError::required(&here.child("name"), ""));
    } else {
        validation::texts(names::dns1123_label(&service.name), &service.name, &here.child("name"), errors);
    }
    let port = service.port.clone().unwrap_or_default();
    let (name, number) = (text(&port.name), port.number.unwrap_or_default());
    let here = here.child("port");
    match (name.is_empty(), number == 0) {
        (false, false) => errors.push(FieldError::invalid(path, "", "cannot set both port name & port number")),
        (true, true) => errors.push(FieldError::required(path, "port name or number is required")),
        (true, false) => validation::port(number, &here.child("number"), errors),
        (false, true) => validation::texts(names::port_name(name), name, &here.child("name"), errors),
    }
}

/// A reference within the namespace, or to something cluster-scoped.
pub fn reference(reference: &TypedLocalObjectReference, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(group) = &reference.api_group {
        validation::texts(names::dns1123_subdomain(group), group, &path.child("apiGroup"), errors);
    }
    for (field, value) in [("kind", &reference.kind), ("name", &reference.name)] {
        if value.is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        } else {
            validation::texts(names::path_segment_name(value), value, &path.child(field), errors);
        }
    }
}
