//! Defaults of a Namespace.

use k8s_openapi::api::core::v1::Namespace;

use super::ACTIVE;

/// The label that repeats the namespace's name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub fn apply(object: &mut Namespace) {
    // Without a name yet (`generateName`) the label waits for the strategy.
    label(object);
    let status = object.status.get_or_insert_default();
    if status.phase.as_deref().unwrap_or_default().is_empty() {
        status.phase = Some(ACTIVE.to_owned());
    }
}

/// Sets the label to the name, whatever it was.
pub fn label(object: &mut Namespace) {
    if let Some(name) = object.metadata.name.clone().filter(|n| !n.is_empty()) {
        object.metadata.labels.get_or_insert_default().insert(NAME_LABEL.to_owned(), name);
    }
}
