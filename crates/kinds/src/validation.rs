//! Checks that several kinds share, each appending to an [`ErrorList`].

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff;
use serde::Serialize;
use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::field::{BadValue, ErrorList, FieldError, Path};
use wheelhouse_meta::validation::{self as names, LabelSelectorOptions};

use crate::internal;

/// Reports every complaint of a plain text check as an invalid value.
pub fn texts(problems: Vec<String>, value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path, value, problem)));
}

/// Whether two optional collections hold the same; unset equals empty, as upstream's semantic comparison has it.
pub fn same<T: PartialEq + Default>(a: &Option<T>, b: &Option<T>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        (Some(one), None) | (None, Some(one)) => *one == T::default(),
        (None, None) => true,
    }
}

pub fn config_map_key(key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    texts(names::config_map_key(key), key, path, errors);
}

/// A namespace's finalizer: qualified, and with a domain unless it is Kubernetes' own.
pub fn finalizer_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    errors.extend(names::finalizer_name(name, path));
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        errors.push(FieldError::invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified"));
    }
}

/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// An optional list as a slice.
pub fn items<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

/// An optional text as a slice.
pub fn text(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// Keys, operators and values of a label selector.
pub fn label_selector(selector: &LabelSelector, path: &Path<'_>, errors: &mut ErrorList) {
    if let Ok(selector) = serde_json::to_value(selector) {
        errors.extend(names::label_selector(&selector, LabelSelectorOptions::default(), path));
    }
}

/// A map of labels, errors and all under the map's path.
pub fn labels(labels: &Option<BTreeMap<String, String>>, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(labels) = labels else { return };
    let labels = labels.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
    errors.extend(names::labels(&labels, path));
}

/// A port's number, 1 to 65535.
pub fn port(port: i32, path: &Path<'_>, errors: &mut ErrorList) {
    errors.extend(names::port_number(i64::from(port)).into_iter().map(|why| FieldError::invalid(path, port, why)));
}

/// Whether labels satisfy a selector; an empty selector takes everything, as upstream's conversion has it.
pub fn selects(selector: &LabelSelector, labels: &Option<BTreeMap<String, String>>) -> bool {
    let get = |key: &str| labels.as_ref().and_then(|l| l.get(key));
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| get(key) == Some(value));
    equal
        && items(&selector.match_expressions).iter().all(|requirement| {
            let value = get(&requirement.key);
            let listed = value.is_some_and(|v| items(&requirement.values).contains(v));
            match requirement.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}

/// Whether a selector asks for nothing.
pub fn selects_all(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(|l| l.is_empty()) && items(&selector.match_expressions).is_empty()
}

/// A moment as API objects carry it, in whole seconds.
pub fn time(now: Timestamp) -> Option<Time> {
    jiff::Timestamp::from_second(now.as_secs()).ok().map(Time)
}

/// A number or a text as messages show it.
pub fn shown(value: &IntOrString) -> BadValue {
    match value {
        IntOrString::Int(number) => (*number).into(),
        IntOrString::String(text) => text.into(),
    }
}

/// The same in the form that computes.
pub fn int_or_string(value: &IntOrString) -> wheelhouse_meta::intstr::IntOrString {
    match value {
        IntOrString::Int(number) => wheelhouse_meta::intstr::IntOrString::Int(*number),
        IntOrString::String(text) => wheelhouse_meta::intstr::IntOrString::String(text.clone()),
    }
}

/// Zero or more, or a percentage.
pub fn count_or_percent(value: &IntOrString, path: &Path<'_>, errors: &mut ErrorList) {
    match value {
        IntOrString::Int(number) => errors.extend(names::nonnegative(i64::from(*number), path)),
        IntOrString::String(text) => texts(names::percent(text), text, path, errors),
    }
}

/// A percentage above 100 is refused; a number may be any.
pub fn at_most_all(value: &IntOrString, path: &Path<'_>, errors: &mut ErrorList) {
    if percent_of(value).is_some_and(|p| p > 100) {
        errors.push(FieldError::invalid(path, shown(value), "must not be greater than 100%"));
    }
}

/// The number before the percent sign.
pub fn percent_of(value: &IntOrString) -> Option<i64> {
    match value {
        IntOrString::String(text) if names::percent(text).is_empty() => text.strip_suffix('%')?.parse().ok(),
        _ => None,
    }
}

/// Counts that may not be negative, each with its field.
pub fn nonnegative(fields: &[(&str, Option<i32>)], path: &Path<'_>, errors: &mut ErrorList) {
    for (field, value) in fields {
        if let Some(value) = value {
            errors.extend(names::nonnegative(i64::from(*value), &path.child(field)));
        }
    }
}

/// A struct as messages show it: JSON with its fields in Go's order. `definition` is its OpenAPI name.
pub fn ordered<T: Serialize>(value: &T, definition: &str) -> BadValue {
    let value = serde_json::to_value(value).unwrap_or_default();
    BadValue::Text(internal::tagged(&value, definition))
}

/// The same for a struct whose internal form upstream shows: Go's field names, and every field there.
pub fn untagged<T: Serialize>(value: &T, definition: &str) -> BadValue {
    let value = serde_json::to_value(value).unwrap_or_default();
    BadValue::Text(internal::untagged(&value, definition).compact())
}

/// OpenAPI names of structs that messages show.
pub const LABEL_SELECTOR: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";

/// The text at a dotted path of an object; empty where there is none. Numbers and booleans are printed.
pub fn text_at(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |value, step| value.get(step));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(_) | Value::Number(_)) => found.map(Value::to_string).unwrap_or_default(),
        _ => String::new(),
    }
}
