//! What an update may touch of a Secret.

use k8s_openapi::api::core::v1::Secret;

use crate::validation::text;

pub fn update(new: &mut Secret, old: &Secret) {
    if text(&new.type_).is_empty() {
        new.type_.clone_from(&old.type_);
    }
}
