//! What a MutatingAdmissionPolicy must be.

use k8s_openapi::api::admissionregistration::v1::{MutatingAdmissionPolicy, Mutation};

use crate::admissionregistration::policy::{self, Common, expression};
use crate::admissionregistration::rules;
use crate::prelude::*;

pub fn policy(object: &MutatingAdmissionPolicy) -> ErrorList {
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
    let (mutations, here) = (items(&spec.mutations), path.child("mutations"));
    if mutations.is_empty() {
        errors.push(FieldError::required(&here, "mutations must contain at least one item"));
    }
    for (at, one) in mutations.iter().enumerate() {
        mutation(one, &here.index(at), &mut errors);
    }
    rules::required_policy(&spec.reinvocation_policy, rules::REINVOCATION_POLICIES, &path.child("reinvocationPolicy"), &mut errors);
    errors
}

/// The type says which of the two expressions there is.
fn mutation(mutation: &Mutation, path: &Path<'_>, errors: &mut ErrorList) {
    let apply = ("applyConfiguration", mutation.apply_configuration.as_ref().map(|a| text(&a.expression)));
    let patch = ("jsonPatch", mutation.json_patch.as_ref().map(|p| text(&p.expression)));
    let (wanted, other) = match mutation.patch_type.as_str() {
        "ApplyConfiguration" => (apply, patch),
        "JSONPatch" => (patch, apply),
        "" => {
            errors.push(FieldError::required(&path.child("patchType"), ""));
            return;
        }
        unknown => {
            errors.push(FieldError::not_supported(&path.child("patchType"), unknown, &["ApplyConfiguration", "JSONPatch"]));
            return;
        }
    };
    let type_ = &mutation.patch_type;
    if other.1.is_some() {
        errors.push(FieldError::forbidden(&path.child(other.0), format!("must not be specified when patchType is {type_}")));
    }
    let here = path.child(wanted.0);
    match wanted.1 {
        Some(text) => expression(text, &here.child("expression"), errors),
        None => errors.push(FieldError::required(&here, format!("must be specified when patchType is {type_}"))),
    }
}
