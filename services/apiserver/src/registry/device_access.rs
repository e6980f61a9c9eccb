//! Who may ask for devices that others use (`adminAccess`): claims in namespaces that an administrator has labelled.

use serde_json::Value;
use wheelhouse_access::Lookups as _;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};

use super::Call;
use crate::security::SnapshotLookups;

/// On the namespace, with the value `true`.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Complaints about a new claim, or a template of claims. The paths are a claim's in both, as upstream has it.
pub fn check(call: &Call<'_>, object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let resource = call.resource();
    let spec = match resource.info().plural {
        "resourceclaims" if resource.is("resource.k8s.io", "resourceclaims") => &object["spec"],
        "resourceclaimtemplates" if resource.is("resource.k8s.io", "resourceclaimtemplates") => &object["spec"]["spec"],
        _ => return errors,
    };
    let requests = spec["devices"]["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
    let asks = |request: &&Value| request["exactly"]["adminAccess"] == true;
    if !requests.iter().any(|request| asks(&request)) || is_labelled(call) {
        return errors;
    }
    let spec = Path::new("spec");
    let devices = spec.child("devices");
    let path = devices.child("requests");
    for (at, _) in requests.iter().enumerate().filter(|(_, request)| asks(request)) {
        let why = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
        errors.push(FieldError::forbidden(&path.index(at).child("adminAccess"), why));
    }
    errors
}

fn is_labelled(call: &Call<'_>) -> bool {
    let namespace = SnapshotLookups(call.server.storage.local()).get("", "namespaces", "", call.namespace());
    namespace.is_some_and(|namespace| namespace["metadata"]["labels"][LABEL] == "true")
}
