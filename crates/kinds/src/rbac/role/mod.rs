//! Role: what may be done in one namespace.

use k8s_openapi::api::rbac::v1::Role;

use super::{GROUP, rules};
use crate::prelude::*;

pub struct RoleKind;

impl TypedKind for RoleKind {
    type Object = Role;

    const INFO: KindInfo = KindInfo { create_on_update: true, ..KindInfo::namespaced(GROUP, "v1", "Role", "roles", "role") };

    const NAME_RULE: NameRule = NameRule::PathSegment;

    fn prepare_create(object: &mut Role, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut Role, _: &Role, _: &RequestContext<'_>) -> Verdict {
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::CREATED_AT];

    fn row(object: &Role, _: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), table::created_at(&object.metadata)]
    }
}

fn validate(object: &Role) -> ErrorList {
    let mut errors = ErrorList::new();
    rules::validate(&object.rules, true, &mut errors);
    errors
}
