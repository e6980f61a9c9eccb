//! StatefulSet: pods with names, order and storage of their own, numbered from a start.

mod columns;
mod defaults;
mod validate;

pub mod reconcile;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};

use super::workload;
use crate::prelude::*;

pub struct StatefulSetKind;

impl TypedKind for StatefulSetKind {
    type Object = StatefulSet;

    /// Pods are named after it, and a pod's name is its host name.
    const NAME_RULE: NameRule = NameRule::Label;

    const INFO: KindInfo = KindInfo {
        short_names: &["sts"],
        categories: &["all"],
        subresources: &[subresource::SCALE, subresource::STATUS],
        generation: true,
        ..KindInfo::namespaced("apps", "v1", "StatefulSet", "statefulsets", "statefulset")
    };

    const NULLABLE: &'static [&'static str] = &[workload::SELECTOR];

    fn default(object: &mut StatefulSet) {
        defaults::apply(object);
    }

    fn prepare_create(object: &mut StatefulSet, cx: &RequestContext<'_>) -> Verdict {
        object.status = Some(StatefulSetStatus::default());
        validate::create(object, cx).into()
    }

    fn prepare_update(new: &mut StatefulSet, old: &StatefulSet, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old, cx).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &StatefulSet, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
