//! RoleBinding: gives a role to subjects in one namespace.

use k8s_openapi::api::rbac::v1::RoleBinding;

use super::{GROUP, subjects};
use crate::prelude::*;

pub struct RoleBindingKind;

/// What the reference may name.
const ROLE_KINDS: &[&str] = &["Role", "ClusterRole"];

impl TypedKind for RoleBindingKind {
    type Object = RoleBinding;

    const INFO: KindInfo = KindInfo { create_on_update: true, ..KindInfo::namespaced(GROUP, "v1", "RoleBinding", "rolebindings", "rolebinding") };

    const NAME_RULE: NameRule = NameRule::PathSegment;

    fn default(object: &mut RoleBinding) {
        subjects::apply_defaults(&mut object.role_ref, &mut object.subjects);
    }

    fn prepare_create(object: &mut RoleBinding, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut RoleBinding, old: &RoleBinding, _: &RequestContext<'_>) -> Verdict {
        let mut errors = validate(new);
        subjects::role_is_unchanged(&new.role_ref, &old.role_ref, &mut errors);
        errors.into()
    }

    const COLUMNS: &'static [Column] = subjects::COLUMNS;

    fn row(object: &RoleBinding, now: Timestamp) -> Vec<Value> {
        let (name, age) = (table::name(&object.metadata), table::age(&object.metadata, now));
        subjects::cells(name, age, &object.role_ref, &object.subjects)
    }
}

fn validate(object: &RoleBinding) -> ErrorList {
    subjects::validate(&object.role_ref, &object.subjects, ROLE_KINDS, true)
}
