//! MutatingAdmissionPolicy: expressions that change objects before they are stored. A binding puts it into force.

mod validate;

use k8s_openapi::api::admissionregistration::v1::MutatingAdmissionPolicy;

use super::{GROUP, policy, rules};
use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub struct MutatingAdmissionPolicyKind;

impl TypedKind for MutatingAdmissionPolicyKind {
    type Object = MutatingAdmissionPolicy;

    const INFO: KindInfo = KindInfo {
        categories: &["api-extensions"],
        generation: true,
        unconditional_update: false,
        ..KindInfo::cluster(GROUP, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", "mutatingadmissionpolicy")
    };

    fn default(object: &mut MutatingAdmissionPolicy) {
        let spec = object.spec.get_or_insert_default();
        or_text(&mut spec.failure_policy, "Fail");
        spec.match_constraints.iter_mut().for_each(rules::default_match);
    }

    fn prepare_create(object: &mut MutatingAdmissionPolicy, _: &RequestContext<'_>) -> Verdict {
        validate::policy(object).into()
    }

    fn prepare_update(new: &mut MutatingAdmissionPolicy, _: &MutatingAdmissionPolicy, _: &RequestContext<'_>) -> Verdict {
        validate::policy(new).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::integer("Mutations", "How many changes it makes."),
        table::text("ParamKind", "The kind of its parameters."),
        table::AGE,
    ];

    fn row(object: &MutatingAdmissionPolicy, now: Timestamp) -> Vec<Value> {
        let spec = object.spec.clone().unwrap_or_default();
        vec![
            table::name(&object.metadata),
            items(&spec.mutations).len().into(),
            policy::param_kind_cell(&spec.param_kind),
            table::age(&object.metadata, now),
        ]
    }
}
