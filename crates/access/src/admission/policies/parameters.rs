//! The objects that a binding evaluates its policy with.

use serde_json::Value;
use wheelhouse_meta::selector::LabelSelector;

use super::Failure;
use crate::admission::Request;
use crate::admission::pod::text;
use crate::lookups::Lookups;

/// The parameters of a binding; one null for a policy that takes none. None at all: the binding does nothing here.
pub(super) fn of(policy: &Value, binding: &Value, request: &Request<'_>, lookups: &dyn Lookups) -> Result<Vec<Value>, Failure> {
    let (kind, reference) = (&policy["spec"]["paramKind"], &binding["spec"]["paramRef"]);
    if kind.is_null() {
        return Ok(vec![Value::Null]);
    }
    if reference.is_null() {
        return Ok(vec![Value::Null]);
    }
    let (group, _) = text(kind, "apiVersion").split_once('/').unwrap_or_default();
    let plural = plural(text(kind, "kind"));
    // Unless the binding says where, parameters lie beside the object.
    let namespace = match text(reference, "namespace") {
        "" => request.attributes.namespace(),
        namespace => namespace,
    };
    let found = match text(reference, "name") {
        "" => {
            let selector = LabelSelector::from_object(reference.get("selector")).map_err(|error| Failure(error.to_string()))?;
            let all = lookups.list(group, &plural, namespace);
            all.into_iter().filter(|object| selector.matches(object["metadata"]["labels"].as_object())).collect()
        }
        name => {
            let there = lookups.get(group, &plural, namespace, name).or_else(|| lookups.get(group, &plural, "", name));
            there.into_iter().collect::<Vec<_>>()
        }
    };
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err(Failure("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()));
    }
    Ok(found)
}

/// The plural that a kind has by the API conventions.
fn plural(kind: &str) -> String {
    let lower = kind.to_ascii_lowercase();
    match lower.as_str() {
        "endpoints" => lower,
        _ if lower.ends_with(['s', 'x', 'z']) || lower.ends_with("ch") || lower.ends_with("sh") => format!("{lower}es"),
        _ if lower.ends_with('y') && !lower.ends_with(['a', 'e', 'o']) => format!("{}ies", &lower[..lower.len() - 1]),
        _ => format!("{lower}s"),
    }
}
