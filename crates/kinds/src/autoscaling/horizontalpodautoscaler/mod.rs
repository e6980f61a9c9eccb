//! HorizontalPodAutoscaler: as many pods as some measures ask for, between two bounds.

mod columns;
mod defaults;
mod metrics;
mod validate;
mod versions;

pub mod reconcile;

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus};

use crate::prelude::*;

pub struct HorizontalPodAutoscalerKind;

impl TypedKind for HorizontalPodAutoscalerKind {
    type Object = HorizontalPodAutoscaler;

    const INFO: KindInfo = KindInfo {
        short_names: &["hpa"],
        categories: &["all"],
        subresources: &[subresource::STATUS],
        ..KindInfo::namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "horizontalpodautoscaler")
    };

    const OTHER_VERSIONS: &'static [OtherVersion] = &[versions::V1];

    fn default(object: &mut HorizontalPodAutoscaler) {
        defaults::apply(object);
    }

    fn prepare_create(object: &mut HorizontalPodAutoscaler, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(HorizontalPodAutoscalerStatus::default());
        validate::autoscaler(object).into()
    }

    fn prepare_update(new: &mut HorizontalPodAutoscaler, old: &HorizontalPodAutoscaler, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        validate::autoscaler(new).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &HorizontalPodAutoscaler, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
