//! What a ConfigMap must be.

use k8s_openapi::api::core::v1::ConfigMap;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};

use crate::validation;

/// All keys and values together, in bytes: what a stored object may hold beside its metadata.
const MAX_DATA_BYTES: usize = 1024 * 1024;

pub fn create(object: &ConfigMap) -> ErrorList {
    let mut errors = ErrorList::new();
    let (data, binary) = (Path::new("data"), Path::new("binaryData"));
    let mut total = 0;
    for (key, value) in object.data.iter().flatten() {
        validation::config_map_key(key, &data.key(key), &mut errors);
        if object.binary_data.as_ref().is_some_and(|b| b.contains_key(key)) {
            errors.push(FieldError::invalid(&data.key(key), key, "duplicate of key present in binaryData"));
        }
        total += value.len();
    }
    for (key, value) in object.binary_data.iter().flatten() {
        validation::config_map_key(key, &binary.key(key), &mut errors);
        total += value.0.len();
    }
    if total > MAX_DATA_BYTES {
        errors.push(FieldError::too_long(&Path::root(), MAX_DATA_BYTES));
    }
    errors
}

pub fn update(new: &ConfigMap, old: &ConfigMap) -> ErrorList {
    let mut errors = ErrorList::new();
    if old.immutable == Some(true) {
        let frozen = |path: &str| FieldError::forbidden(&Path::new(path), "field is immutable when `immutable` is set");
        if new.immutable != Some(true) {
            errors.push(frozen("immutable"));
        }
        if !validation::same(&new.data, &old.data) {
            errors.push(frozen("data"));
        }
        if !validation::same(&new.binary_data, &old.binary_data) {
            errors.push(frozen("binaryData"));
        }
    }
    errors.extend(create(new));
    errors
}
