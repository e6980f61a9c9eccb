//! The names that expressions may use, but for parameters and variables.

use serde_json::{Value, json};
use wheelhouse_cel::{Bindings, Value as Cel};

use crate::admission::{Operation, Request};
use crate::attributes::Target;
use crate::lookups::Lookups;

pub(super) struct Environment {
    request: Value,
    old: Value,
    namespace: Value,
}

impl Environment {
    /// `kind` is the object's, as it was sent.
    pub fn new(request: &Request<'_>, object: Option<&Value>, lookups: &dyn Lookups) -> Self {
        let Target::Resource { group, version, resource, subresource, namespace, .. } = request.attributes.target else {
            return Self { request: Value::Null, old: Value::Null, namespace: Value::Null };
        };
        let (user, whole) = (request.attributes.user, object.or(request.old).unwrap_or(&Value::Null));
        let kind = json!({"group": group, "version": version, "kind": whole["kind"].as_str().unwrap_or_default()});
        let place = json!({"group": group, "version": version, "resource": resource});
        let name =
            if request.attributes.name().is_empty() { whole["metadata"]["name"].as_str().unwrap_or_default() } else { request.attributes.name() };
        let operation = match request.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        };
        let described = json!({
            "kind": kind, "resource": place, "subResource": subresource, "requestKind": kind, "requestResource": place,
            "requestSubResource": subresource, "name": name, "namespace": namespace, "operation": operation, "dryRun": request.dry_run,
            "userInfo": {"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra},
        });
        let namespace = if namespace.is_empty() { None } else { lookups.get("", "namespaces", "", namespace) };
        Self { request: described, old: request.old.cloned().unwrap_or_default(), namespace: namespace.unwrap_or_default() }
    }

    pub fn bindings<'a>(&'a self, object: &'a Value) -> Bindings<'a> {
        Bindings::default()
            .with("object", Cel::json(object))
            .with("oldObject", Cel::json(&self.old))
            .with("request", Cel::json(&self.request))
            .with("namespaceObject", Cel::json(&self.namespace))
    }
}
