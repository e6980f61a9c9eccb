//! Endpoints: the addresses behind a Service, all in one object. Superseded by EndpointSlice, which every writer is told.

mod columns;
pub mod validate;

use k8s_openapi::api::core::v1::Endpoints;

use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub struct EndpointsKind;

const DEPRECATED: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

impl TypedKind for EndpointsKind {
    type Object = Endpoints;

    const INFO: KindInfo = KindInfo {
        short_names: &["ep"],
        create_on_update: true,
        ..KindInfo::namespaced("", "v1", "Endpoints", "endpoints", "endpoints")
    };

    fn default(object: &mut Endpoints) {
        for port in object.subsets.iter_mut().flatten().flat_map(|s| s.ports.iter_mut().flatten()) {
            or_text(&mut port.protocol, "TCP");
        }
    }

    fn prepare_create(object: &mut Endpoints, _: &RequestContext<'_>) -> Verdict {
        Verdict { errors: validate::endpoints(object), warnings: vec![DEPRECATED.to_owned()] }
    }

    fn prepare_update(new: &mut Endpoints, _: &Endpoints, _: &RequestContext<'_>) -> Verdict {
        Verdict { errors: validate::endpoints(new), warnings: vec![DEPRECATED.to_owned()] }
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Endpoints, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
