//! What both sorts of policy have in common: parameters' kind, constraints, conditions, variables.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MatchResources, ParamKind, Variable};
use wheelhouse_meta::validation as names;

use super::rules;
use crate::prelude::*;

/// Words of the expression language that no variable may be named.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The fields that both sorts have.
pub struct Common<'a> {
    pub failure_policy: &'a Option<String>,
    pub param_kind: &'a Option<ParamKind>,
    pub match_constraints: &'a Option<MatchResources>,
    pub match_conditions: &'a Option<Vec<MatchCondition>>,
    pub variables: &'a Option<Vec<Variable>>,
}

pub fn validate(policy: &Common<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    rules::required_policy(policy.failure_policy, rules::FAILURE_POLICIES, &path.child("failurePolicy"), errors);
    if let Some(kind) = policy.param_kind {
        param_kind(kind, &path.child("paramKind"), errors);
    }
    let here = path.child("matchConstraints");
    match policy.match_constraints {
        None => errors.push(FieldError::required(&here, "")),
        Some(constraints) => {
            rules::match_resources(constraints, &here, errors);
            if items(&constraints.resource_rules).is_empty() {
                errors.push(FieldError::required(&here.child("resourceRules"), ""));
            }
        }
    }
    rules::match_conditions(items(policy.match_conditions), &path.child("matchConditions"), errors);
    let here = path.child("variables");
    for (at, one) in items(policy.variables).iter().enumerate() {
        variable(one, &here.index(at), errors);
    }
}

fn param_kind(kind: &ParamKind, path: &Path<'_>, errors: &mut ErrorList) {
    let (api_version, here) = (text(&kind.api_version), path.child("apiVersion"));
    let mut joined = |value: &str, problems: Vec<String>| {
        if !problems.is_empty() {
            errors.push(FieldError::invalid(&here, value, problems.join(",")));
        }
    };
    match api_version.split_once('/') {
        _ if api_version.is_empty() => errors.push(FieldError::required(&here, "")),
        Some((_, rest)) if rest.contains('/') => {
            errors.push(FieldError::invalid(&here, api_version, format!("unexpected GroupVersion string: {api_version}")));
        }
        split => {
            let (group, version) = split.unwrap_or(("", api_version));
            if !group.is_empty() {
                joined(group, names::dns1123_subdomain(group));
            }
            if version.is_empty() {
                joined(api_version, vec!["version must be specified".to_owned()]);
            } else {
                joined(version, names::dns1035_label(version));
            }
        }
    }
    let (name, here) = (text(&kind.kind), path.child("kind"));
    if name.is_empty() {
        errors.push(FieldError::required(&here, ""));
        return;
    }
    let problems = names::dns1035_label(&name.to_lowercase());
    if !problems.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
        errors.push(FieldError::invalid(&here, name, why));
    }
}

fn variable(variable: &Variable, path: &Path<'_>, errors: &mut ErrorList) {
    let (name, here) = (variable.name.as_str(), path.child("name"));
    if name.trim().is_empty() {
        errors.push(FieldError::required(&here, "name is not specified"));
    } else if !is_identifier(name) {
        errors.push(FieldError::invalid(&here, name, "name is not a valid CEL identifier"));
    }
    expression(&variable.expression, &path.child("expression"), errors);
}

/// An expression that must be there.
pub fn expression(expression: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if expression.trim().is_empty() {
        errors.push(FieldError::required(path, "expression is not specified"));
    }
}

fn is_identifier(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic());
    starts && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) && !RESERVED.contains(&name)
}

/// The table cell that shows a policy's kind of parameters.
pub fn param_kind_cell(kind: &Option<ParamKind>) -> Value {
    kind.as_ref().map_or_else(|| "<unset>".into(), |k| format!("{}/{}", text(&k.api_version), text(&k.kind)).into())
}
