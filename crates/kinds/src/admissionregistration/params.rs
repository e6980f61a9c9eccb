//! How a binding names the parameters of its policy.

use std::fmt::Write as _;

use k8s_openapi::api::admissionregistration::v1::ParamRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use wheelhouse_meta::validation as names;

use crate::prelude::*;

pub fn validate(reference: &ParamRef, path: &Path<'_>, errors: &mut ErrorList) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = text(&reference.name);
    if !name.is_empty() {
        validation::texts(names::path_segment_name(name), name, &path.child("name"), errors);
        if reference.selector.is_some() {
            errors.push(FieldError::forbidden(&path.child("name"), EXCLUSIVE));
        }
    }
    if let Some(selector) = &reference.selector {
        validation::label_selector(selector, &path.child("selector"), errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(&path.child("selector"), EXCLUSIVE));
        }
    }
    if name.is_empty() && reference.selector.is_none() {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    let (action, here) = (text(&reference.parameter_not_found_action), path.child("parameterNotFoundAction"));
    match action {
        "" => errors.push(FieldError::required(&here, "")),
        "Allow" | "Deny" => {}
        _ => errors.push(FieldError::not_supported(&here, action, &["Deny", "Allow"])),
    }
}

/// The table cell: the object's name, or the selector as Go prints it.
pub fn cell(reference: &Option<ParamRef>) -> Value {
    let Some(reference) = reference else { return "<unset>".into() };
    match (&reference.selector, text(&reference.namespace), text(&reference.name)) {
        (Some(selector), _, "") => go_text(selector).into(),
        (_, "", name) => name.into(),
        (_, namespace, name) => format!("{namespace}/{name}").into(),
    }
}

fn go_text(selector: &LabelSelector) -> String {
    let mut out = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (key, value) in selector.match_labels.iter().flatten() {
        let _ = write!(out, "{key}: {value},");
    }
    out.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for expression in items(&selector.match_expressions) {
        let values = items(&expression.values).join(" ");
        let _ = write!(out, "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", expression.key, expression.operator);
    }
    out.push_str("},}");
    out
}
