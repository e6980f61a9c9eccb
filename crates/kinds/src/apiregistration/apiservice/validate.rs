//! What an APIService must be.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, ServiceReference};
use wheelhouse_meta::validation as names;

use crate::prelude::*;

const MAX_GROUP_PRIORITY: i32 = 20_000;
const MAX_VERSION_PRIORITY: i32 = 1_000;

pub fn service(object: &APIService) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    let (group, version, name) = (text(&spec.group), text(&spec.version), text(&object.metadata.name));
    let required = format!("{version}.{group}");
    if !name.is_empty() && name != required {
        let why = format!("must be `spec.version+\".\"+spec.group`: \"{required}\"");
        errors.push(FieldError::invalid(&Path::new("metadata").child("name"), name, why));
    }
    if !group.is_empty() {
        one_error(names::dns1123_subdomain(group), group, &path.child("group"), &mut errors);
    }
    one_error(names::dns1035_label(version), version, &path.child("version"), &mut errors);
    let priorities =
        [("groupPriorityMinimum", spec.group_priority_minimum, MAX_GROUP_PRIORITY), ("versionPriority", spec.version_priority, MAX_VERSION_PRIORITY)];
    for (field, priority, max) in priorities {
        if priority <= 0 || priority > max {
            errors.push(FieldError::invalid(&path.child(field), priority, format!("must be positive and less than {max}")));
        }
    }
    let (insecure, has_bundle) = (spec.insecure_skip_tls_verify == Some(true), spec.ca_bundle.as_ref().is_some_and(|b| !b.0.is_empty()));
    let skip = path.child("insecureSkipTLSVerify");
    let Some(service) = &spec.service else {
        if has_bundle {
            let shown = format!("{} bytes", spec.ca_bundle.map_or(0, |b| b.0.len()));
            errors.push(FieldError::invalid(&path.child("caBundle"), shown, "local APIServices may not have a caBundle"));
        }
        if insecure {
            errors.push(FieldError::invalid(&skip, true, "local APIServices may not have insecureSkipTLSVerify"));
        }
        return errors;
    };
    reference(service, &path.child("service"), &mut errors);
    if insecure && has_bundle {
        errors.push(FieldError::invalid(&skip, true, "may not be true if caBundle is present"));
    }
    errors
}

/// All complaints of a text check in one message.
fn one_error(problems: Vec<String>, value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if !problems.is_empty() {
        errors.push(FieldError::invalid(path, value, problems.join(",")));
    }
}

fn reference(service: &ServiceReference, path: &Path<'_>, errors: &mut ErrorList) {
    for (field, value) in [("namespace", text(&service.namespace)), ("name", text(&service.name))] {
        if value.is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        }
    }
    if let Some(port) = service.port {
        for problem in names::port_number(i64::from(port)) {
            errors.push(FieldError::invalid(&path.child("port"), port, format!("port is not valid: {problem}")));
        }
    }
}

pub fn status(object: &APIService) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let path = path.child("conditions");
    for (at, condition) in object.status.iter().flat_map(|s| items(&s.conditions)).enumerate() {
        if !matches!(condition.status.as_str(), "True" | "False" | "Unknown") {
            let allowed = ["True", "False", "Unknown"];
            errors.push(FieldError::not_supported(&path.index(at).child("status"), &condition.status, &allowed));
        }
    }
    errors
}
