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
    let is_default = |class: &Value| DEFAULT_ANNOTATIONS.iter().any(|a| class["metadata"]["annotations"][*a] == "true");
    let mut defaults: Vec<Value> = lookups.list("storage.k8s.io", "storageclasses", "").into_iter().filter(is_default).collect();
    // Of several the newest; of those made in one second the first by name.
    defaults.sort_by(|a, b| {
        let key = |class: &Value| text(&class["metadata"], "creationTimestamp").to_owned();
        key(b).cmp(&key(a)).then_with(|| text(&a["metadata"], "name").cmp(text(&b["metadata"], "name")))
    });
    if let Some(class) = defaults.first() {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
}
