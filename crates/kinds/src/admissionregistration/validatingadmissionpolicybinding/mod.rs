//! ValidatingAdmissionPolicyBinding: puts a policy into force, with parameters, and says what a violation leads to.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use wheelhouse_meta::validation as names;

use super::{GROUP, params, rules};
use crate::prelude::*;

pub struct ValidatingAdmissionPolicyBindingKind;

const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];

impl TypedKind for ValidatingAdmissionPolicyBindingKind {
    type Object = ValidatingAdmissionPolicyBinding;

    const INFO: KindInfo = KindInfo {
        categories: &["api-extensions"],
        generation: true,
        unconditional_update: false,
        ..KindInfo::cluster(GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "validatingadmissionpolicybinding")
    };

    fn default(object: &mut ValidatingAdmissionPolicyBinding) {
        if let Some(resources) = object.spec.match_resources.as_mut() {
            rules::default_match(resources);
        }
    }

    fn prepare_create(object: &mut ValidatingAdmissionPolicyBinding, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut ValidatingAdmissionPolicyBinding, _: &ValidatingAdmissionPolicyBinding, _: &RequestContext<'_>) -> Verdict {
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("PolicyName", "The policy that it puts into force."),
        table::text("ParamRef", "The parameters that it gives."),
        table::AGE,
    ];

    fn row(object: &ValidatingAdmissionPolicyBinding, now: Timestamp) -> Vec<Value> {
        let spec = &object.spec;
        vec![table::name(&object.metadata), spec.policy_name.as_str().into(), params::cell(&spec.param_ref), table::age(&object.metadata, now)]
    }
}

fn validate(object: &ValidatingAdmissionPolicyBinding) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = &object.spec;
    policy_name(&spec.policy_name, &path.child("policyName"), &mut errors);
    if let Some(reference) = &spec.param_ref {
        params::validate(reference, &path.child("paramRef"), &mut errors);
    }
    if let Some(resources) = &spec.match_resources {
        // The field's name is upstream's slip.
        rules::match_resources(resources, &path.child("matchResouces"), &mut errors);
    }
    actions(&spec.validation_actions, &path.child("validationActions"), &mut errors);
    errors
}

/// The policy need not exist.
pub fn policy_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        validation::texts(names::dns1123_subdomain(name), name, path, errors);
    }
}

fn actions(actions: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, action) in actions.iter().enumerate() {
        if !ACTIONS.contains(&action.as_str()) {
            errors.push(FieldError::not_supported(&path.index(at), action, ACTIONS));
        }
        if actions[..at].contains(action) {
            errors.push(FieldError::duplicate(&path.index(at), action));
        }
    }
    let has = |name: &str| actions.iter().any(|a| a == name);
    if has("Deny") && has("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, BadValue::typed(&actions), why));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, "at least one validation action is required"));
    }
}
