//! What a claim must be.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use wheelhouse_meta::validation as names;

use crate::core::pod::validate::quantity;
use crate::core::pod::validate::resources;
use crate::prelude::*;

/// In the order that messages list them.
pub const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

pub fn create(object: &PersistentVolumeClaim) -> ErrorList {
    let mut errors = ErrorList::new();
    spec(&object.spec.clone().unwrap_or_default(), &Path::new("spec"), &mut errors);
    errors
}

/// Shared with the claims that pods and stateful sets make.
pub fn spec(spec: &PersistentVolumeClaimSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let modes = items(&spec.access_modes);
    access_modes(modes, &path.child("accessModes"), errors);
    if let Some(selector) = &spec.selector {
        validation::label_selector(selector, &path.child("selector"), errors);
    }
    let storage = path.child("resources");
    let storage = storage.key("storage");
    let requests = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
    match requests.and_then(|r| r.get("storage")) {
        None => errors.push(FieldError::required(&storage, "")),
        Some(size) if quantity(size).sign() <= 0 => {
            errors.push(FieldError::invalid(&storage, &size.0, "must be greater than zero"));
        }
        Some(size) => resources::value_is_sound("storage", size, &storage, errors),
    }
    if let Some(class) = spec.storage_class_name.as_ref().filter(|c| !c.is_empty()) {
        validation::texts(names::dns1123_subdomain(class), class, &path.child("storageClassName"), errors);
    }
    if let Some(mode) = &spec.volume_mode
        && !VOLUME_MODES.contains(&mode.as_str())
    {
        errors.push(FieldError::not_supported(&path.child("volumeMode"), mode, VOLUME_MODES));
    }
    if let Some(source) = &spec.data_source {
        let here = path.child("dataSource");
        if source.name.is_empty() {
            errors.push(FieldError::required(&here.child("name"), ""));
        }
        if source.kind.is_empty() {
            errors.push(FieldError::required(&here.child("kind"), ""));
        }
        if text(&source.api_group).is_empty() && source.kind != "PersistentVolumeClaim" {
            let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(FieldError::invalid(&here, &source.kind, why));
        }
    }
    if let Some(class) = spec.volume_attributes_class_name.as_ref().filter(|c| !c.is_empty()) {
        validation::texts(names::dns1123_subdomain(class), class, &path.child("volumeAttributesClassName"), errors);
    }
}

pub fn access_modes(modes: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    if modes.is_empty() {
        errors.push(FieldError::required(path, "at least 1 access mode is required"));
    }
    for mode in modes {
        if !ACCESS_MODES.contains(&mode.as_str()) {
            errors.push(FieldError::not_supported(path, mode, ACCESS_MODES));
        }
    }
    let alone = modes.iter().any(|m| m == "ReadWriteOncePod");
    if alone && modes.iter().any(|m| m != "ReadWriteOncePod") {
        errors.push(FieldError::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

pub fn update(new: &PersistentVolumeClaim, old: &PersistentVolumeClaim) -> ErrorList {
    let mut errors = create(new);
    let (Some(new_spec), Some(old_spec)) = (&new.spec, &old.spec) else { return errors };
    let path = Path::new("spec");
    let bound = old.status.as_ref().is_some_and(|s| text(&s.phase) == "Bound");
    let size = |spec: &PersistentVolumeClaimSpec| spec.resources.as_ref().and_then(|r| r.requests.as_ref()?.get("storage").map(quantity));
    let mut munged = new_spec.clone();
    // A claim without a volume may still be given one.
    if text(&old_spec.volume_name).is_empty() {
        munged.volume_name.clone_from(&old_spec.volume_name);
    }
    munged.volume_attributes_class_name.clone_from(&old_spec.volume_attributes_class_name);
    if bound {
        munged.resources.clone_from(&old_spec.resources);
    }
    if munged != *old_spec {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden(&path, why));
    }
    if bound && size(new_spec) < size(old_spec) {
        let why = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden(&path.child("resources").child("requests").child("storage"), why));
    }
    if old_spec.volume_mode != new_spec.volume_mode {
        errors.push(FieldError::immutable(&path.child("volumeMode"), text(&new_spec.volume_mode)));
    }
    errors
}
