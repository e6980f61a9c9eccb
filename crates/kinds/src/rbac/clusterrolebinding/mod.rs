//! ClusterRoleBinding: gives a cluster role to subjects everywhere.

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;

use super::{GROUP, subjects};
use crate::prelude::*;

pub struct ClusterRoleBindingKind;

/// What the reference may name.
const ROLE_KINDS: &[&str] = &["ClusterRole"];

impl TypedKind for ClusterRoleBindingKind {
    type Object = ClusterRoleBinding;

    const INFO: KindInfo =
        KindInfo { create_on_update: true, ..KindInfo::cluster(GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding") };

    const NAME_RULE: NameRule = NameRule::PathSegment;

    fn default(object: &mut ClusterRoleBinding) {
        subjects::apply_defaults(&mut object.role_ref, &mut object.subjects);
    }

    fn prepare_create(object: &mut ClusterRoleBinding, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut ClusterRoleBinding, old: &ClusterRoleBinding, _: &RequestContext<'_>) -> Verdict {
        let mut errors = validate(new);
        subjects::role_is_unchanged(&new.role_ref, &old.role_ref, &mut errors);
        errors.into()
    }

    const COLUMNS: &'static [Column] = subjects::COLUMNS;

    fn row(object: &ClusterRoleBinding, now: Timestamp) -> Vec<Value> {
        let (name, age) = (table::name(&object.metadata), table::age(&object.metadata, now));
        subjects::cells(name, age, &object.role_ref, &object.subjects)
    }
}

fn validate(object: &ClusterRoleBinding) -> ErrorList {
    subjects::validate(&object.role_ref, &object.subjects, ROLE_KINDS, false)
}
