//! What a VolumeAttachment must be.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource};
use wheelhouse_meta::validation as names;

use crate::core::persistentvolume;
use crate::core::pod::validate::volumes::csi_driver_name;
use crate::prelude::*;

const SPEC: &str = "io.k8s.api.storage.v1.VolumeAttachmentSpec";

/// What the attacher may report, in bytes: all of its metadata, and one error's text.
const MAX_METADATA: usize = 256 * 1024;
const MAX_MESSAGE: usize = 1024;

pub fn create(object: &VolumeAttachment) -> ErrorList {
    let mut errors = spec(object);
    let dotted = Path::new("spec");
    csi_driver_name(&object.spec.attacher, &dotted.child("attacher"), &mut errors);
    if let Some(name) = &object.spec.source.persistent_volume_name {
        let source = dotted.child("source");
        validation::texts(names::dns1123_subdomain(name), name, &source.child("persistentVolumeName"), &mut errors);
    }
    errors
}

fn spec(object: &VolumeAttachment) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = &object.spec;
    if spec.attacher.is_empty() {
        errors.push(FieldError::required(&path.child("attacher"), ""));
    }
    source(&spec.source, &path.child("source"), &mut errors);
    validation::texts(names::dns1123_subdomain(&spec.node_name), &spec.node_name, &path.child("nodeName"), &mut errors);
    errors.extend(status(object));
    errors
}

fn source(source: &VolumeAttachmentSource, path: &Path<'_>, errors: &mut ErrorList) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (&source.inline_volume_spec, &source.persistent_volume_name) {
        (None, None) => errors.push(FieldError::required(path, ONE)),
        (Some(_), Some(_)) => errors.push(FieldError::forbidden(path, ONE)),
        (None, Some(name)) if name.is_empty() => {
            errors.push(FieldError::required(&path.child("persistentVolumeName"), "must specify non empty persistentVolumeName"));
        }
        (None, Some(_)) => {}
        (Some(inline), None) => inline_volume(inline, &path.child("inlineVolumeSpec"), errors),
    }
}

/// A volume that a pod brought itself: a driver's own, with what a stored volume must have, and nothing that only binding needs.
fn inline_volume(spec: &PersistentVolumeSpec, path: &Path<'_>, errors: &mut ErrorList) {
    for (field, is_set) in [
        ("persistentVolumeReclaimPolicy", spec.persistent_volume_reclaim_policy.is_some()),
        ("storageClassName", spec.storage_class_name.is_some()),
        ("claimRef", spec.claim_ref.is_some()),
        ("capacity", spec.capacity.as_ref().is_some_and(|c| !c.is_empty())),
    ] {
        if is_set {
            errors.push(FieldError::forbidden(&path.child(field), "may not be specified in the context of inline volumes"));
        }
    }
    if spec.csi.is_none() {
        errors.push(FieldError::required(&path.child("csi"), "has to be specified in the context of inline volumes"));
    }
    persistentvolume::access_modes(items(&spec.access_modes), &path.child("accessModes"), errors);
    persistentvolume::source(spec, path, errors);
}

pub fn status(object: &VolumeAttachment) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let Some(status) = &object.status else { return errors };
    let metadata = status.attachment_metadata.clone().unwrap_or_default();
    let here = path.child("attachmentMetadata");
    if metadata.contains_key("") {
        errors.push(FieldError::invalid(&here, "", "field can not be empty."));
    }
    if metadata.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() > MAX_METADATA {
        errors.push(FieldError::too_long(&here, MAX_METADATA));
    }
    for (field, error) in [("attachError", &status.attach_error), ("detachError", &status.detach_error)] {
        if error.as_ref().is_some_and(|e| text(&e.message).len() > MAX_MESSAGE) {
            errors.push(FieldError::too_long(&path.child(field).child("message"), MAX_MESSAGE));
        }
    }
    errors
}

/// Another volume or node is another attachment.
pub fn update(new: &VolumeAttachment, old: &VolumeAttachment) -> ErrorList {
    let mut errors = spec(new);
    if new.spec != old.spec {
        errors.push(FieldError::immutable(&Path::new("spec"), validation::untagged(&new.spec, SPEC)));
    }
    errors
}
