//! What a PersistentVolume must be.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use wheelhouse_meta::validation as names;

use crate::core::persistentvolumeclaim::validate::{ACCESS_MODES, VOLUME_MODES};
use crate::core::pod::validate::{one_of, quantity, scheduling, volumes};
use crate::internal;
use crate::prelude::*;

const SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeSpec";

/// The kinds of source in the order of upstream's struct.
const SOURCES: &[&str] = &[
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "hostPath",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "flexVolume",
    "cinder",
    "cephfs",
    "fc",
    "flocker",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub fn create(object: &PersistentVolume) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    access_modes(items(&spec.access_modes), &path.child("accessModes"), &mut errors);
    capacity(&spec, &path.child("capacity"), &mut errors);
    let policy = text(&spec.persistent_volume_reclaim_policy);
    if !policy.is_empty() {
        one_of(policy, &["Delete", "Recycle", "Retain"], &path.child("persistentVolumeReclaimPolicy"), &mut errors);
    }
    if let Some(affinity) = &spec.node_affinity {
        let path = path.child("nodeAffinity");
        match &affinity.required {
            Some(required) => scheduling::node_selector(required, &path.child("required"), &mut errors),
            None => errors.push(FieldError::required(&path.child("required"), "must specify required node constraints")),
        }
    }
    source(&spec, &path, &mut errors);
    if let Some(class) = spec.storage_class_name.as_ref().filter(|c| !c.is_empty()) {
        validation::texts(names::dns1123_subdomain(class), class, &path.child("storageClassName"), &mut errors);
    }
    if let Some(mode) = &spec.volume_mode {
        one_of(mode, VOLUME_MODES, &path.child("volumeMode"), &mut errors);
    }
    errors
}

/// How it may be mounted: at least one way.
pub fn access_modes(modes: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    if modes.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    for mode in modes.iter().filter(|m| !ACCESS_MODES.contains(&m.as_str())) {
        errors.push(FieldError::not_supported(path, mode, ACCESS_MODES));
    }
    if modes.len() > 1 && modes.iter().any(|m| m == "ReadWriteOncePod") {
        errors.push(FieldError::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

fn capacity(spec: &PersistentVolumeSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let capacity = spec.capacity.clone().unwrap_or_default();
    if capacity.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        errors.push(FieldError::not_supported(path, BadValue::typed(&capacity), &["storage"]));
    }
    for (name, size) in &capacity {
        let path = path.key(name);
        let amount = quantity(size);
        if amount.sign() < 0 {
            errors.push(FieldError::invalid(&path, amount.value(), "must be a valid resource quantity"));
        }
        if amount.sign() <= 0 {
            errors.push(FieldError::invalid(&path, &size.0, "must be greater than zero"));
        }
    }
}

/// Exactly one, and sound as far as the kinds of source go that a cluster of today can mount.
pub fn source(spec: &PersistentVolumeSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let fields = serde_json::to_value(spec).unwrap_or_default();
    let mut set = SOURCES.iter().filter(|name| fields.get(**name).is_some());
    let Some(first) = set.next() else {
        errors.push(FieldError::required(path, "must specify a volume type"));
        return;
    };
    let here = path.child(first);
    let mut require = |field: &str, value: &str| {
        if value.is_empty() {
            errors.push(FieldError::required(&here.child(field), ""));
        }
    };
    match *first {
        "hostPath" => {
            let host = spec.host_path.clone().unwrap_or_default();
            require("path", &host.path);
            volumes::no_backsteps(&host.path, &here.child("path"), errors);
        }
        "nfs" => {
            let nfs = spec.nfs.clone().unwrap_or_default();
            require("server", &nfs.server);
            require("path", &nfs.path);
            if !nfs.path.starts_with('/') {
                errors.push(FieldError::invalid(&here.child("path"), &nfs.path, "must be an absolute path"));
            }
        }
        "local" => {
            let local = spec.local.clone().unwrap_or_default();
            require("path", &local.path);
            volumes::no_backsteps(&local.path, &here.child("path"), errors);
            if spec.node_affinity.as_ref().is_none_or(|a| a.required.is_none()) {
                errors.push(FieldError::required(&path.child("nodeAffinity"), "Local volume requires node affinity"));
            }
        }
        "csi" => {
            let csi = spec.csi.clone().unwrap_or_default();
            volumes::csi_driver_name(&csi.driver, &here.child("driver"), errors);
            if csi.volume_handle.is_empty() {
                errors.push(FieldError::required(&here.child("volumeHandle"), ""));
            }
        }
        _ => {}
    }
    for further in set {
        errors.push(FieldError::forbidden(&path.child(further), "may not specify more than 1 volume type"));
    }
}

pub fn update(new: &PersistentVolume, old: &PersistentVolume) -> ErrorList {
    let mut errors = create(new);
    let (new, old) = (new.spec.clone().unwrap_or_default(), old.spec.clone().unwrap_or_default());
    let lines = |spec: &PersistentVolumeSpec| internal::some_untagged(&serde_json::to_value(spec).unwrap_or_default(), SPEC, SOURCES).lines();
    let (was, is) = (lines(&old), lines(&new));
    if was != is {
        let difference = crate::line_difference::unified(&was, &is);
        let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
        errors.push(FieldError::forbidden(&Path::new("spec").child("persistentvolumesource"), why));
    }
    if new.volume_mode != old.volume_mode {
        errors.push(FieldError::immutable(&Path::new("volumeMode"), text(&new.volume_mode)));
    }
    if old.node_affinity.is_some() && new.node_affinity != old.node_affinity {
        let shown = validation::untagged(&new.node_affinity, "io.k8s.api.core.v1.VolumeNodeAffinity");
        let why = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError::invalid(&Path::new("nodeAffinity"), shown, why));
    }
    errors
}
