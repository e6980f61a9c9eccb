//! MutatingAdmissionPolicyBinding: puts a policy into force, with parameters.

use k8s_openapi::api::admissionregistration::v1::MutatingAdmissionPolicyBinding;

use super::validatingadmissionpolicybinding::policy_name;
use super::{GROUP, params, rules};
use crate::prelude::*;

pub struct MutatingAdmissionPolicyBindingKind;

impl TypedKind for MutatingAdmissionPolicyBindingKind {
    type Object = MutatingAdmissionPolicyBinding;

    const INFO: KindInfo = KindInfo {
        categories: &["api-extensions"],
        generation: true,
        unconditional_update: false,
        ..KindInfo::cluster(GROUP, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", "mutatingadmissionpolicybinding")
    };

    fn default(object: &mut MutatingAdmissionPolicyBinding) {
        if let Some(resources) = object.spec.as_mut().and_then(|s| s.match_resources.as_mut()) {
            rules::default_match(resources);
        }
    }

    fn prepare_create(object: &mut MutatingAdmissionPolicyBinding, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut MutatingAdmissionPolicyBinding, _: &MutatingAdmissionPolicyBinding, _: &RequestContext<'_>) -> Verdict {
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("PolicyName", "The policy that it puts into force."),
        table::text("ParamRef", "The parameters that it gives."),
        table::AGE,
    ];

    fn row(object: &MutatingAdmissionPolicyBinding, now: Timestamp) -> Vec<Value> {
        let spec = object.spec.clone().unwrap_or_default();
        let policy = text(&spec.policy_name);
        vec![table::name(&object.metadata), policy.into(), params::cell(&spec.param_ref), table::age(&object.metadata, now)]
    }
}

fn validate(object: &MutatingAdmissionPolicyBinding) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    policy_name(text(&spec.policy_name), &path.child("policyName"), &mut errors);
    if let Some(reference) = &spec.param_ref {
        params::validate(reference, &path.child("paramRef"), &mut errors);
    }
    if let Some(resources) = &spec.match_resources {
        rules::match_resources(resources, &path.child("matchResources"), &mut errors);
    }
    errors
}
