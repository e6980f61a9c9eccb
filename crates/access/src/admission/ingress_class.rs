//! DefaultIngressClass: an Ingress that names no class gets the default one.

use serde_json::Value;

use super::storage_class::newest_default;
use super::{Operation, Request};
use crate::lookups::Lookups;

const GROUP: &str = "networking.k8s.io";
const DEFAULT_ANNOTATIONS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];
const OLD_CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(super) fn mutate(request: &Request<'_>, ingress: &mut Value, lookups: &dyn Lookups) {
    let open = ingress["spec"]["ingressClassName"].is_null() && ingress["metadata"]["annotations"][OLD_CLASS_ANNOTATION].is_null();
    if !request.is(GROUP, "ingresses") || request.operation != Operation::Create || !open {
        return;
    }
    if let Some(class) = newest_default(lookups.list(GROUP, "ingressclasses", ""), &DEFAULT_ANNOTATIONS) {
        ingress["spec"]["ingressClassName"] = class["metadata"]["name"].clone();
    }
}
