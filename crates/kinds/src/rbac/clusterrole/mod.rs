//! ClusterRole: what may be done anywhere, or outside all namespaces. One with an aggregation rule has its rules written by a controller.

pub mod reconcile;

use k8s_openapi::api::rbac::v1::ClusterRole;

use super::{GROUP, rules};
use crate::prelude::*;

pub struct ClusterRoleKind;

impl TypedKind for ClusterRoleKind {
    type Object = ClusterRole;

    const INFO: KindInfo = KindInfo { create_on_update: true, ..KindInfo::cluster(GROUP, "v1", "ClusterRole", "clusterroles", "clusterrole") };

    const NAME_RULE: NameRule = NameRule::PathSegment;

    fn prepare_create(object: &mut ClusterRole, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut ClusterRole, _: &ClusterRole, _: &RequestContext<'_>) -> Verdict {
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::CREATED_AT];

    fn row(object: &ClusterRole, _: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), table::created_at(&object.metadata)]
    }
}

fn validate(object: &ClusterRole) -> ErrorList {
    let mut errors = ErrorList::new();
    rules::validate(&object.rules, false, &mut errors);
    if let Some(aggregation) = &object.aggregation_rule {
        let path = Path::new("aggregationRule");
        let path = path.child("clusterRoleSelectors");
        let selectors = items(&aggregation.cluster_role_selectors);
        if selectors.is_empty() {
            errors.push(FieldError::required(&path, "at least one clusterRoleSelector required if aggregationRule is non-nil"));
        }
        for (at, selector) in selectors.iter().enumerate() {
            validation::label_selector(selector, &path.index(at), &mut errors);
        }
    }
    errors
}
