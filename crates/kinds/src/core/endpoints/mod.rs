//! Endpoints: the addresses behind a Service, all in one object. Superseded by EndpointSlice, which the API server says in every answer.

mod columns;
pub mod validate;

use k8s_openapi::api::core::v1::Endpoints;

use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub struct EndpointsKind;

impl TypedKind for EndpointsKind {
    type Object = Endpoints;

    const INFO: KindInfo =
        KindInfo { short_names: &["ep"], create_on_update: true, ..KindInfo::namespaced("", "v1", "Endpoints", "endpoints", "endpoints") };

    fn default(object: &mut Endpoints) {
        for port in object.subsets.iter_mut().flatten().flat_map(|s| s.ports.iter_mut().flatten()) {
            or_text(&mut port.protocol, "TCP");
        }
    }

    fn prepare_create(object: &mut Endpoints, _: &RequestContext<'_>) -> Verdict {
        validate::endpoints(object).into()
    }

    fn prepare_update(new: &mut Endpoints, _: &Endpoints, _: &RequestContext<'_>) -> Verdict {
        validate::endpoints(new).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Endpoints, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
