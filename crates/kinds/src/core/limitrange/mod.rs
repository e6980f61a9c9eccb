//! LimitRange: bounds and defaults for what one pod, container or claim of a namespace may ask for.

mod validate;

use k8s_openapi::api::core::v1::LimitRange;

use crate::prelude::*;

pub struct LimitRangeKind;

impl TypedKind for LimitRangeKind {
    type Object = LimitRange;

    const INFO: KindInfo =
        KindInfo { short_names: &["limits"], create_on_update: true, ..KindInfo::namespaced("", "v1", "LimitRange", "limitranges", "limitrange") };

    /// A container's default limit is its highest, its default request is its default limit.
    fn default(object: &mut LimitRange) {
        let limits = object.spec.iter_mut().flat_map(|s| s.limits.iter_mut());
        for limit in limits.filter(|l| l.type_ == "Container") {
            let defaults = limit.default.get_or_insert_default();
            for (name, max) in limit.max.iter().flatten() {
                defaults.entry(name.clone()).or_insert_with(|| max.clone());
            }
            let requests = limit.default_request.get_or_insert_default();
            for (name, amount) in defaults.iter().chain(limit.min.iter().flatten()) {
                requests.entry(name.clone()).or_insert_with(|| amount.clone());
            }
        }
    }

    fn prepare_create(object: &mut LimitRange, _: &RequestContext<'_>) -> Verdict {
        validate::limits(object).into()
    }

    fn prepare_update(new: &mut LimitRange, _: &LimitRange, _: &RequestContext<'_>) -> Verdict {
        validate::limits(new).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::CREATED_AT];

    fn row(object: &LimitRange, _: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), table::created_at(&object.metadata)]
    }
}
