//! Taints of devices, what tolerates them, and the conditions that a driver binds them under.

use k8s_openapi::api::resource::v1::{DeviceTaint, DeviceToleration};
use wheelhouse_meta::validation as names;

use super::lists;
use crate::prelude::*;

const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// Conditions of either sort.
const MAX_CONDITIONS: usize = 4;

fn label_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    validation::texts(names::qualified_name(name), name, path, errors);
}

pub fn taint(taint: &DeviceTaint, path: &Path<'_>, errors: &mut ErrorList) {
    label_name(&taint.key, &path.child("key"), errors);
    let value = text(&taint.value);
    validation::texts(names::label_value(value), value, &path.child("value"), errors);
    let here = path.child("effect");
    match taint.effect.as_str() {
        "" => errors.push(FieldError::required(&here, "")),
        effect if !EFFECTS.contains(&effect) => errors.push(FieldError::not_supported(&here, effect, EFFECTS)),
        _ => {}
    }
}

pub fn tolerations(list: &[DeviceToleration], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, one) in list.iter().enumerate() {
        toleration(one, &path.index(at), errors);
    }
}

fn toleration(toleration: &DeviceToleration, path: &Path<'_>, errors: &mut ErrorList) {
    let (key, value, effect) = (text(&toleration.key), text(&toleration.value), text(&toleration.effect));
    if !key.is_empty() {
        label_name(key, &path.child("key"), errors);
    }
    let here = path.child("operator");
    match text(&toleration.operator) {
        "Exists" if !value.is_empty() => {
            errors.push(FieldError::invalid(&path.child("value"), value, "must be empty for operator `Exists`"));
        }
        "Exists" => {}
        "Equal" => validation::texts(names::label_value(value), value, &path.child("value"), errors),
        "" => errors.push(FieldError::required(&here, "")),
        other => errors.push(FieldError::not_supported(&here, other, &["Equal", "Exists"])),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.push(FieldError::not_supported(&path.child("effect"), effect, EFFECTS));
    }
}

/// Conditions that must come true before a pod is bound, and those that end the waiting: both or neither, and no two alike.
pub fn binding_conditions(success: &Option<Vec<String>>, failure: &Option<Vec<String>>, path: &Path<'_>, errors: &mut ErrorList) {
    let (success, failure) = (items(success), items(failure));
    let (here, there) = (path.child("bindingConditions"), path.child("bindingFailureConditions"));
    lists::list(success, MAX_CONDITIONS, &here, errors, |c, path, errors| label_name(c, path, errors));
    lists::list(failure, MAX_CONDITIONS, &there, errors, |c, path, errors| label_name(c, path, errors));
    for (at, condition) in success.iter().enumerate() {
        if success[..at].contains(condition) {
            errors.push(FieldError::duplicate(&here.index(at), condition));
        }
    }
    for (at, condition) in failure.iter().enumerate() {
        if failure[..at].contains(condition) {
            errors.push(FieldError::duplicate(&there.index(at), condition));
        }
        if success.contains(condition) {
            let why = "bindingFailureConditions must not overlap with bindingConditions";
            errors.push(FieldError::invalid(&there.index(at), condition, why));
        }
    }
    let none = || BadValue::Null;
    if success.is_empty() && !failure.is_empty() {
        errors.push(FieldError::invalid(&here, none(), "bindingConditions are required to use bindingFailureConditions"));
    }
    if failure.is_empty() && !success.is_empty() {
        errors.push(FieldError::invalid(&there, none(), "bindingFailureConditions are required to use bindingConditions"));
    }
}
