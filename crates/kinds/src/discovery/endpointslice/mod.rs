//! EndpointSlice: some of the addresses behind a Service. A service has as many slices as it needs.

mod columns;
mod validate;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub struct EndpointSliceKind;

impl TypedKind for EndpointSliceKind {
    type Object = EndpointSlice;

    const INFO: KindInfo =
        KindInfo { generation: true, ..KindInfo::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice") };

    fn default(object: &mut EndpointSlice) {
        for port in object.ports.iter_mut().flatten() {
            port.name.get_or_insert_default();
            or_text(&mut port.protocol, "TCP");
        }
    }

    fn prepare_create(object: &mut EndpointSlice, _: &RequestContext<'_>) -> Verdict {
        validate::create(object).into()
    }

    fn prepare_update(new: &mut EndpointSlice, old: &EndpointSlice, _: &RequestContext<'_>) -> Verdict {
        validate::update(new, old).into()
    }

    /// Labels count too: they say whose endpoints these are.
    fn spec_changed(new: &EndpointSlice, old: &EndpointSlice) -> Option<bool> {
        let same = new.endpoints == old.endpoints
            && validation::same(&new.ports, &old.ports)
            && new.address_type == old.address_type
            && validation::same(&new.metadata.labels, &old.metadata.labels)
            && validation::same(&new.metadata.annotations, &old.metadata.annotations);
        Some(!same)
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &EndpointSlice, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
