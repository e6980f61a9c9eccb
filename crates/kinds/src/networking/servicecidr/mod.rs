//! ServiceCIDR: ranges that Services get their addresses from, at most one of each family.

mod validate;

use k8s_openapi::api::networking::v1::{ServiceCIDR, ServiceCIDRStatus};

use crate::prelude::*;

pub struct ServiceCIDRKind;

impl TypedKind for ServiceCIDRKind {
    type Object = ServiceCIDR;

    const INFO: KindInfo = KindInfo {
        subresources: &[subresource::STATUS],
        ..KindInfo::cluster("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", "servicecidr")
    };

    fn prepare_create(object: &mut ServiceCIDR, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(ServiceCIDRStatus::default());
        validate::create(object).into()
    }

    fn prepare_update(new: &mut ServiceCIDR, old: &ServiceCIDR, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return Verdict::default();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::text("CIDRs", "The ranges."), table::AGE];

    fn row(object: &ServiceCIDR, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), validate::ranges(object).join(",").into(), table::age(&object.metadata, now)]
    }
}
