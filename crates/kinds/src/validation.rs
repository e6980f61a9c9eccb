//! Checks that several kinds share, each appending to an [`ErrorList`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};
use wheelhouse_meta::validation::{self as names, LabelSelectorOptions};


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
