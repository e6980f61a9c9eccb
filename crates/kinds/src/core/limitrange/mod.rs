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

    /// A range without a name gets a UUID for one, as ever.
    fn prepare_create(object: &mut LimitRange, cx: &RequestContext<'_>) -> Verdict {
        if text(&object.metadata.name).is_empty() {
            object.metadata.name = Some(uuid_from(cx.seed));
        }
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

/// A random UUID (RFC 9562, version 4) out of 64 random bits.
fn uuid_from(seed: u64) -> String {
    let low = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (seed >> 31);
    let (a, b, c) = (seed >> 32, (seed >> 16) & 0xffff, seed & 0xfff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{:04x}-{:012x}", 0x8000 | (low >> 50), low & 0xffff_ffff_ffff)
}
