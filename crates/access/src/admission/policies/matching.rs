//! Which requests a policy or a binding is about.

use serde_json::Value;
use wheelhouse_meta::selector::LabelSelector;

use super::each;
use crate::admission::pod::text;
use crate::admission::{Operation, Request};
use crate::attributes::Target;
use crate::lookups::Lookups;

/// `matchConstraints` or `matchResources` against a request.
pub(super) fn matches(resources: &Value, request: &Request<'_>, object: Option<&Value>, lookups: &dyn Lookups) -> bool {
    let any_version = resources["matchPolicy"] != "Exact";
    let rules = resources["resourceRules"].as_array();
    // A binding without rules is about whatever its policy is about.
    let included = rules.is_none_or(|rules| rules.is_empty() || rules.iter().any(|rule| covers(rule, request, object, any_version)));
    included
        && !each(resources, "excludeResourceRules").any(|rule| covers(rule, request, object, any_version))
        && in_namespace(&resources["namespaceSelector"], request, object, lookups)
        && is_selected(&resources["objectSelector"], request, object)
}

fn has(list: &Value, word: &str) -> bool {
    list.as_array().into_iter().flatten().any(|entry| entry == word || entry == "*")
}

fn covers(rule: &Value, request: &Request<'_>, object: Option<&Value>, any_version: bool) -> bool {
    let Target::Resource { group, version, resource, subresource, namespace, .. } = request.attributes.target else { return false };
    let operation = match request.operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    };
    let scope = match rule["scope"].as_str() {
        Some("Cluster") => namespace.is_empty() || resource == "namespaces",
        Some("Namespaced") => !namespace.is_empty() && resource != "namespaces",
        _ => true,
    };
    let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
    scope
        && has(&rule["operations"], operation)
        && has(&rule["apiGroups"], group)
        && (any_version || has(&rule["apiVersions"], version))
        && each(rule, "resources").filter_map(Value::as_str).any(|pattern| is_resource(pattern, resource, subresource))
        && names.is_none_or(|names| names.iter().any(|name| name == name_of(request, object)))
}

/// `pods`, `pods/status`, `pods/*`, `*/scale`, `*` (no subresource) and `*/*`.
fn is_resource(pattern: &str, resource: &str, subresource: &str) -> bool {
    let (wanted, wanted_sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    (wanted == "*" || wanted == resource) && (wanted_sub == "*" || wanted_sub == subresource)
}

fn name_of<'a>(request: &'a Request<'_>, object: Option<&'a Value>) -> &'a str {
    match request.attributes.name() {
        "" => object.map_or("", |object| text(&object["metadata"], "name")),
        name => name,
    }
}

fn selects(selector: &Value, object: &Value) -> bool {
    LabelSelector::from_object(Some(selector)).is_ok_and(|selector| selector.matches(object["metadata"]["labels"].as_object()))
}

/// A Namespace is selected by its own labels, what is in one by the namespace's, and everything else always.
fn in_namespace(selector: &Value, request: &Request<'_>, object: Option<&Value>, lookups: &dyn Lookups) -> bool {
    if selector.as_object().is_none_or(|selector| selector.is_empty()) {
        return true;
    }
    if request.group().is_empty() && request.resource() == "namespaces" {
        return object.or(request.old).is_some_and(|namespace| selects(selector, namespace));
    }
    match request.attributes.namespace() {
        "" => true,
        namespace => lookups.get("", "namespaces", "", namespace).is_some_and(|namespace| selects(selector, &namespace)),
    }
}

/// The object as it was or as it will be.
fn is_selected(selector: &Value, request: &Request<'_>, object: Option<&Value>) -> bool {
    selector.as_object().is_none_or(|selector| selector.is_empty()) || object.into_iter().chain(request.old).any(|object| selects(selector, object))
}
