//! ReplicaSet: a number of interchangeable pods of one template. Most belong to a Deployment, one for each of its revisions.

mod columns;
mod validate;

pub mod reconcile;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};

use super::workload;
use crate::core::pod::template;
use crate::prelude::*;

pub struct ReplicaSetKind;

impl TypedKind for ReplicaSetKind {
    type Object = ReplicaSet;

    const INFO: KindInfo = KindInfo {
        short_names: &["rs"],
        categories: &["all"],
        subresources: &[subresource::SCALE, subresource::STATUS],
        generation: true,
        ..KindInfo::namespaced("apps", "v1", "ReplicaSet", "replicasets", "replicaset")
    };

    const NULLABLE: &'static [&'static str] = &[workload::SELECTOR];

    fn default(object: &mut ReplicaSet) {
        let spec = object.spec.get_or_insert_default();
        template::apply_defaults(spec.template.get_or_insert_default());
        spec.replicas.get_or_insert(1);
    }

    fn prepare_create(object: &mut ReplicaSet, cx: &RequestContext<'_>) -> Verdict {
        object.status = Some(ReplicaSetStatus::default());
        validate::create(object, cx).into()
    }

    fn prepare_update(new: &mut ReplicaSet, old: &ReplicaSet, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old, cx).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &ReplicaSet, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
