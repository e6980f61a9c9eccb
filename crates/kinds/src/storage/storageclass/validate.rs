//! What a StorageClass must be.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::StorageClass;
use wheelhouse_meta::validation as names;

use crate::core::pod::validate::one_of;
use crate::prelude::*;

/// What the parameters may be: how many, and keys and values together in bytes.
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 * 1024;

pub fn create(object: &StorageClass) -> ErrorList {
    let mut errors = ErrorList::new();
    provisioner(&object.provisioner, &Path::new("provisioner"), &mut errors);
    parameters(&object.parameters.clone().unwrap_or_default(), &Path::new("parameters"), &mut errors);
    one_of(text(&object.reclaim_policy), &["Delete", "Retain"], &Path::new("reclaimPolicy"), &mut errors);
    one_of(text(&object.volume_binding_mode), &["Immediate", "WaitForFirstConsumer"], &Path::new("volumeBindingMode"), &mut errors);
    topologies(object, &mut errors);
    errors
}

/// The name of a driver: qualified, in any case.
pub fn provisioner(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        let lower = name.to_lowercase();
        validation::texts(names::qualified_name(&lower), &lower, path, errors);
    }
}

/// What a driver is told about a volume.
pub fn parameters(parameters: &BTreeMap<String, String>, path: &Path<'_>, errors: &mut ErrorList) {
    if parameters.len() > MAX_PARAMETERS {
        errors.push(FieldError::too_long(path, MAX_PARAMETERS));
        return;
    }
    if parameters.contains_key("") {
        errors.push(FieldError::invalid(path, "", "field can not be empty."));
    }
    if parameters.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() > MAX_PARAMETER_BYTES {
        errors.push(FieldError::too_long(path, MAX_PARAMETER_BYTES));
    }
}

fn topologies(object: &StorageClass, errors: &mut ErrorList) {
    let here = Path::new("allowedTopologies");
    let terms = items(&object.allowed_topologies);
    for (at, term) in terms.iter().enumerate() {
        let path = here.index(at);
        if terms[..at].contains(term) {
            errors.push(FieldError::duplicate(&path.child("matchLabelExpressions"), ""));
        }
        let path = path.child("matchLabelExpressions");
        let expressions = items(&term.match_label_expressions);
        for (at, expression) in expressions.iter().enumerate() {
            let path = path.index(at);
            let values = path.child("values");
            if expression.values.is_empty() {
                errors.push(FieldError::required(&values, ""));
            }
            for (at, value) in expression.values.iter().enumerate() {
                if expression.values[..at].contains(value) {
                    errors.push(FieldError::duplicate(&values.index(at), value));
                }
            }
            validation::texts(names::qualified_name(&expression.key), &expression.key, &path.child("key"), errors);
            if expressions[..at].iter().any(|e| e.key == expression.key) {
                errors.push(FieldError::duplicate(&path.child("key"), &expression.key));
            }
        }
    }
}

/// Volumes made by the class before would no longer be what it says.
pub fn update(new: &StorageClass, old: &StorageClass) -> ErrorList {
    let mut errors = ErrorList::new();
    if !validation::same(&new.parameters, &old.parameters) {
        errors.push(FieldError::forbidden(&Path::new("parameters"), "updates to parameters are forbidden."));
    }
    if new.provisioner != old.provisioner {
        errors.push(FieldError::forbidden(&Path::new("provisioner"), "updates to provisioner are forbidden."));
    }
    if new.reclaim_policy != old.reclaim_policy {
        errors.push(FieldError::forbidden(&Path::new("reclaimPolicy"), "updates to reclaimPolicy are forbidden."));
    }
    if new.volume_binding_mode != old.volume_binding_mode {
        errors.push(FieldError::immutable(&Path::new("volumeBindingMode"), new.volume_binding_mode.clone()));
    }
    errors
}
