//! What a Namespace must be.

use k8s_openapi::api::core::v1::Namespace;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};

use super::{ACTIVE, TERMINATING, columns};
use crate::validation;

pub fn create(object: &Namespace) -> ErrorList {
    let mut errors = ErrorList::new();
    finalizers(object, &mut errors);
    errors
}

pub fn update(new: &Namespace, old: &Namespace, subresource: &str) -> ErrorList {
    let _ = old;
    let mut errors = ErrorList::new();
    match subresource {
        "status" => phase(new, &mut errors),
        "finalize" => finalizers(new, &mut errors),
        _ => {}
    }
    errors
}

fn finalizers(object: &Namespace, errors: &mut ErrorList) {
    let spec = Path::new("spec");
    let path = spec.child("finalizers");
    for finalizer in object.spec.iter().filter_map(|s| s.finalizers.as_ref()).flatten() {
        validation::finalizer_name(finalizer, &path, errors);
    }
}

/// A namespace is Terminating exactly while it is being deleted.
fn phase(object: &Namespace, errors: &mut ErrorList) {
    let status = Path::new("status");
    // Upstream names the Go field here.
    let path = status.child("Phase");
    let phase = columns::phase(object);
    let deleting = object.metadata.deletion_timestamp.is_some();
    if deleting && phase != TERMINATING {
        errors.push(FieldError::invalid(&path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"));
    }
    if !deleting && phase != ACTIVE {
        errors.push(FieldError::invalid(&path, phase, "may only be 'Active' if `deletionTimestamp` is empty"));
    }
}
