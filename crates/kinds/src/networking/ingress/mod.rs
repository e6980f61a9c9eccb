//! Ingress: HTTP from outside, by host and path, to services. Some controller of the tenant's makes it so.

mod columns;
mod validate;

pub use validate::reference;

use k8s_openapi::api::networking::v1::{Ingress, IngressStatus};

use crate::prelude::*;

pub struct IngressKind;

/// How the class was named before there was a field for it.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

impl TypedKind for IngressKind {
    type Object = Ingress;

    const INFO: KindInfo = KindInfo {
        short_names: &["ing"],
        subresources: &[subresource::STATUS],
        generation: true,
        ..KindInfo::namespaced("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress")
    };

    fn prepare_create(object: &mut Ingress, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(IngressStatus::default());
        validate::create(object).into()
    }

    fn prepare_update(new: &mut Ingress, old: &Ingress, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return Verdict::default();
        }
        new.status.clone_from(&old.status);
        validate::update(new).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Ingress, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
