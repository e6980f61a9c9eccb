//! NamespaceLifecycle: objects need a living namespace, and three namespaces never go.

use serde_json::Value;
use wheelhouse_meta::{GroupResource, Status};

use super::{Operation, Request};
use crate::lookups::{Answer, Lookups};

/// Namespaces that may not be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Runs for mutation and again for validation, as upstream's plugin does.
pub(super) fn check(request: &Request<'_>, object: Option<&Value>, lookups: &dyn Lookups) -> Answer<()> {
    let namespace = request.attributes.namespace();
    if request.group().is_empty() && request.resource() == "namespaces" {
        let name = request.attributes.name();
        if request.operation == Operation::Delete && request.subresource().is_empty() && IMMORTAL.contains(&name) {
            return Err(Box::new(Status::forbidden(&GroupResource::new("", "namespaces"), name, "this namespace may not be deleted")));
        }
        return Ok(());
    }
    let review = request.group() == "authorization.k8s.io" && request.resource() == "localsubjectaccessreviews";
    if namespace.is_empty() || matches!(request.operation, Operation::Delete | Operation::Connect) || review {
        return Ok(());
    }
    let Some(found) = lookups.get("", "namespaces", "", namespace) else {
        return Err(Box::new(Status::not_found(&GroupResource::new("", "namespaces"), namespace)));
    };
    if request.operation != Operation::Create || found["status"]["phase"] != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = format!("namespace {namespace} is being terminated");
    Err(Box::new(request.forbidden(object, why).with_cause("NamespaceTerminating", &cause, "metadata.namespace")))
}
