//! ResourceQuota: how much a namespace may use. What is used is compared and written in each request's own transaction.

mod columns;
mod validate;

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaStatus};

use crate::prelude::*;

pub struct ResourceQuotaKind;

impl TypedKind for ResourceQuotaKind {
    type Object = ResourceQuota;

    const INFO: KindInfo = KindInfo {
        short_names: &["quota"],
        subresources: &[subresource::STATUS],
        ..KindInfo::namespaced("", "v1", "ResourceQuota", "resourcequotas", "resourcequota")
    };

    fn prepare_create(object: &mut ResourceQuota, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(ResourceQuotaStatus::default());
        validate::create(object).into()
    }

    fn prepare_update(new: &mut ResourceQuota, old: &ResourceQuota, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &ResourceQuota, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
