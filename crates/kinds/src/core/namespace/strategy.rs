//! What each request may touch of a Namespace.

use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus};

use super::{ACTIVE, FINALIZER_KUBERNETES, defaults};

pub fn create(object: &mut Namespace) {
    object.status = Some(NamespaceStatus { phase: Some(ACTIVE.to_owned()), conditions: None });
    let finalizers = object.spec.get_or_insert_default().finalizers.get_or_insert_default();
    if !finalizers.iter().any(|f| f == FINALIZER_KUBERNETES) {
        finalizers.push(FINALIZER_KUBERNETES.to_owned());
    }
    defaults::label(object);
}

pub fn update(new: &mut Namespace, old: &Namespace, subresource: &str) {
    match subresource {
        "status" => new.spec = old.spec.clone(),
        "finalize" => new.status = old.status.clone(),
        _ => {
            new.spec = old.spec.clone();
            new.status = old.status.clone();
        }
    }
}
