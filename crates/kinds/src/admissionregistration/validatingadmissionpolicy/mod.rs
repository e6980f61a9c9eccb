//! ValidatingAdmissionPolicy: expressions that requests must satisfy. A binding puts it into force.

mod validate;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyStatus};

use super::{GROUP, policy, rules};
use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub struct ValidatingAdmissionPolicyKind;

impl TypedKind for ValidatingAdmissionPolicyKind {
    type Object = ValidatingAdmissionPolicy;

    const INFO: KindInfo = KindInfo {
        categories: &["api-extensions"],
        subresources: &[subresource::STATUS],
        generation: true,
        unconditional_update: false,
        ..KindInfo::cluster(GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "validatingadmissionpolicy")
    };

    fn default(object: &mut ValidatingAdmissionPolicy) {
        let spec = object.spec.get_or_insert_default();
        or_text(&mut spec.failure_policy, "Fail");
        spec.match_constraints.iter_mut().for_each(rules::default_match);
    }

    fn prepare_create(object: &mut ValidatingAdmissionPolicy, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(ValidatingAdmissionPolicyStatus::default());
        validate::policy(object).into()
    }

    fn prepare_update(new: &mut ValidatingAdmissionPolicy, old: &ValidatingAdmissionPolicy, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        validate::policy(new).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::integer("Validations", "How many expressions it has."),
        table::text("ParamKind", "The kind of its parameters."),
        table::AGE,
    ];

    fn row(object: &ValidatingAdmissionPolicy, now: Timestamp) -> Vec<Value> {
        let spec = object.spec.clone().unwrap_or_default();
        vec![
            table::name(&object.metadata),
            items(&spec.validations).len().into(),
            policy::param_kind_cell(&spec.param_kind),
            table::age(&object.metadata, now),
        ]
    }
}
