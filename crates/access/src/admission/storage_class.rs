//! DefaultStorageClass: a claim that names no class gets the default one.

use serde_json::Value;

use super::pod::text;
use super::{Operation, Request};
use crate::lookups::Lookups;

const DEFAULT_ANNOTATIONS: [&str; 2] = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
pub(super) const OLD_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn mutate(request: &Request<'_>, claim: &mut Value, lookups: &dyn Lookups) {
    if !request.is("", "persistentvolumeclaims") || request.operation != Operation::Create {
        return;
    }
    // An empty class is a choice too: no class at all.
    if !claim["spec"]["storageClassName"].is_null() || !claim["metadata"]["annotations"][OLD_CLASS_ANNOTATION].is_null() {
        return;
    }
    if let Some(class) = newest_default(lookups.list("storage.k8s.io", "storageclasses", ""), &DEFAULT_ANNOTATIONS) {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
}

/// The class that one of the annotations calls the default: of several the newest, of those made in one second the first by name.
pub(super) fn newest_default(classes: Vec<Value>, annotations: &[&str]) -> Option<Value> {
    let is_default = |class: &Value| annotations.iter().any(|a| class["metadata"]["annotations"][*a] == "true");
    classes.into_iter().filter(is_default).min_by(|a, b| {
        let made = |class: &Value| text(&class["metadata"], "creationTimestamp").to_owned();
        made(b).cmp(&made(a)).then_with(|| text(&a["metadata"], "name").cmp(text(&b["metadata"], "name")))
    })
}
