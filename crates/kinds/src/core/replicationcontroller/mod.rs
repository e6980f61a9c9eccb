//! ReplicationController: the first kind that kept a number of pods. ReplicaSet is its successor.

mod columns;
mod validate;

pub mod reconcile;

use k8s_openapi::api::core::v1::{ReplicationController, ReplicationControllerStatus};

use crate::core::pod::template;
use crate::prelude::*;

pub struct ReplicationControllerKind;

impl TypedKind for ReplicationControllerKind {
    type Object = ReplicationController;

    const NAME_RULE: NameRule = NameRule::SubdomainBytes;

    const INFO: KindInfo = KindInfo {
        short_names: &["rc"],
        categories: &["all"],
        subresources: &[subresource::SCALE, subresource::STATUS],
        generation: true,
        ..KindInfo::namespaced("", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller")
    };

    fn default(object: &mut ReplicationController) {
        let spec = object.spec.get_or_insert_default();
        spec.replicas.get_or_insert(1);
        let Some(pods) = spec.template.as_mut() else { return };
        template::apply_defaults(pods);
        // The template's labels stand in for a selector, and for labels of its own.
        if let Some(labels) = pods.metadata.as_ref().and_then(|m| m.labels.clone()).filter(|l| !l.is_empty()) {
            if spec.selector.as_ref().is_none_or(|s| s.is_empty()) {
                spec.selector = Some(labels.clone());
            }
            if object.metadata.labels.as_ref().is_none_or(|l| l.is_empty()) {
                object.metadata.labels = Some(labels);
            }
        }
    }

    fn prepare_create(object: &mut ReplicationController, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(ReplicationControllerStatus::default());
        validate::controller(object).into()
    }

    fn prepare_update(new: &mut ReplicationController, old: &ReplicationController, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        validate::controller(new).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &ReplicationController, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }

    const SELECTABLE: &'static [&'static str] = &["status.replicas"];

    fn selectable_fields(object: &ReplicationController) -> Vec<(&'static str, String)> {
        vec![("status.replicas", object.status.as_ref().map(|s| s.replicas).unwrap_or_default().to_string())]
    }
}
