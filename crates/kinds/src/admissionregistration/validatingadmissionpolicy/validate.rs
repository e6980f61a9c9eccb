//! What a ValidatingAdmissionPolicy must be.

use k8s_openapi::api::admissionregistration::v1::{AuditAnnotation, ValidatingAdmissionPolicy, Validation};
use wheelhouse_meta::validation as names;

use crate::admissionregistration::policy::{self, Common, expression};
use crate::prelude::*;

const MAX_AUDIT_ANNOTATIONS: usize = 20;

/// In bytes. Half of what an annotation's value may be: the values of expressions that join texts are longer than the expressions.
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

const ANNOTATION: &str = "io.k8s.api.admissionregistration.v1.AuditAnnotation";
const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];

pub fn policy(object: &ValidatingAdmissionPolicy) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    let common = Common {
        failure_policy: &spec.failure_policy,
        param_kind: &spec.param_kind,
        match_constraints: &spec.match_constraints,
        match_conditions: &spec.match_conditions,
        variables: &spec.variables,
    };
    policy::validate(&common, &path, &mut errors);
    let (validations, annotations) = (items(&spec.validations), items(&spec.audit_annotations));
    if validations.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            errors.push(FieldError::required(&path.child(field), "validations or auditAnnotations must contain at least one item"));
        }
        return errors;
    }
    let here = path.child("validations");
    for (at, one) in validations.iter().enumerate() {
        rule(one, &here.index(at), &mut errors);
    }
    let here = path.child("auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let shown = annotations.iter().map(|a| validation::untagged(a, ANNOTATION).to_string()).collect::<Vec<_>>().join(",");
        let why = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.push(FieldError::invalid(&here, BadValue::Text(format!("[{shown}]")), why));
    }
    for (at, one) in annotations.iter().enumerate() {
        annotation(text(&object.metadata.name), one, &here.index(at), &mut errors);
        if annotations[..at].iter().any(|a| a.key == one.key) {
            errors.push(FieldError::duplicate(&here.index(at).child("key"), &one.key));
        }
    }
    errors
}

fn rule(rule: &Validation, path: &Path<'_>, errors: &mut ErrorList) {
    expression(&rule.expression, &path.child("expression"), errors);
    let given = rule.message_expression.as_ref().filter(|m| !m.is_empty());
    if let Some(message) = given.filter(|m| m.trim().is_empty()) {
        errors.push(FieldError::invalid(&path.child("messageExpression"), message, "must be non-empty if specified"));
    }
    let (message, here) = (text(&rule.message), path.child("message"));
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(&here, message, "message must be non-empty if specified"));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(&here, message, "message must not contain line breaks"));
    }
    if let Some(reason) = rule.reason.as_ref().filter(|r| !REASONS.contains(&r.as_str())) {
        errors.push(FieldError::not_supported(&path.child("reason"), reason, REASONS));
    }
}

/// The annotation's whole key is the policy's name and its own.
fn annotation(policy: &str, annotation: &AuditAnnotation, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("key");
    if policy.is_empty() {
        errors.push(FieldError::invalid(&here, &annotation.key, "requires metadata.name be non-empty"));
    } else {
        let key = format!("{policy}/{}", annotation.key);
        validation::texts(names::qualified_name(&key), &key, &here, errors);
    }
    let here = path.child("valueExpression");
    match annotation.value_expression.trim().len() {
        0 => errors.push(FieldError::required(&here, "valueExpression is not specified")),
        length if length > MAX_VALUE_EXPRESSION => {
            errors.push(FieldError::required(&here, format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length")));
        }
        _ => {}
    }
}

/// What type checking reported.
pub fn status(object: &ValidatingAdmissionPolicy) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Path::new("status");
    let checking = status.child("typeChecking");
    let path = checking.child("expressionWarnings");
    let checking = object.status.as_ref().and_then(|s| s.type_checking.as_ref());
    for (at, warning) in checking.map(|c| items(&c.expression_warnings)).unwrap_or_default().iter().enumerate() {
        let path = path.index(at);
        if warning.warning.is_empty() {
            errors.push(FieldError::required(&path.child("warning"), ""));
        }
        if warning.field_ref.trim().is_empty() {
            errors.push(FieldError::required(&path.child("fieldRef"), ""));
        }
    }
    errors
}
