//! A pod's volumes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource, Volume, VolumeProjection};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use wheelhouse_meta::validation as names;

use super::env;
use super::quantity;
use crate::prelude::*;

/// The sound volumes by name; mounts may refer to these only.
pub type ByName<'a> = BTreeMap<&'a str, &'a Volume>;

pub const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The sources in upstream's order, each with whether it is set.
fn sources(volume: &Volume) -> [(&'static str, bool); 30] {
    [
        ("emptyDir", volume.empty_dir.is_some()),
        ("hostPath", volume.host_path.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("secret", volume.secret.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("quobyte", volume.quobyte.is_some()),
        ("downwardAPI", volume.downward_api.is_some()),
        ("fc", volume.fc.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("storageos", volume.storageos.is_some()),
        ("projected", volume.projected.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("csi", volume.csi.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("image", volume.image.is_some()),
    ]
}

pub fn has_source(volume: &Volume) -> bool {
    sources(volume).iter().any(|(_, set)| *set)
}

pub fn validate<'a>(volumes: &'a [Volume], metadata: Option<&ObjectMeta>, path: &Path<'_>, errors: &mut ErrorList) -> ByName<'a> {
    let mut sound = ByName::new();
    for (at, volume) in volumes.iter().enumerate() {
        let path = path.index(at);
        let name = path.child("name");
        let mut own = ErrorList::new();
        source(volume, metadata, &path, &mut own);
        if volume.name.is_empty() {
            own.push(FieldError::required(&name, ""));
        } else {
            validation::texts(names::dns1123_label(&volume.name), &volume.name, &name, &mut own);
        }
        if sound.contains_key(volume.name.as_str()) {
            own.push(FieldError::duplicate(&name, &volume.name));
        }
        if own.is_empty() {
            sound.insert(&volume.name, volume);
        }
        errors.extend(own);
    }
    sound
}

fn require(value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
}

fn source(volume: &Volume, metadata: Option<&ObjectMeta>, path: &Path<'_>, errors: &mut ErrorList) {
    let mut set = sources(volume).into_iter().filter(|(_, set)| *set).map(|(name, _)| name);
    let Some(first) = set.next() else {
        errors.push(FieldError::required(path, "must specify a volume type"));
        return;
    };
    one_source(volume, first, metadata, path, errors);
    for further in set {
        errors.push(FieldError::forbidden(&path.child(further), "may not specify more than 1 volume type"));
    }
}

fn one_source(volume: &Volume, which: &str, metadata: Option<&ObjectMeta>, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child(which);
    if let Some(empty) = &volume.empty_dir {
        if empty.size_limit.as_ref().is_some_and(|limit| quantity(limit).sign() < 0) {
            errors.push(FieldError::forbidden(&here.child("sizeLimit"), "SizeLimit field must be a valid resource quantity"));
        }
    } else if let Some(host) = &volume.host_path {
        if host.path.is_empty() {
            errors.push(FieldError::required(&here.child("path"), ""));
        } else {
            no_backsteps(&host.path, &here.child("path"), errors);
        }
        let types = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
        if !types.contains(&text(&host.type_)) {
            errors.push(FieldError::not_supported(&here.child("type"), text(&host.type_), &types));
        }
    } else if let Some(git) = &volume.git_repo {
        require(&git.repository, &here.child("repository"), errors);
        local_descending_path(text(&git.directory), &here.child("directory"), errors);
    } else if let Some(secret) = &volume.secret {
        require(text(&secret.secret_name), &here.child("secretName"), errors);
        file_mode(secret.default_mode, &here.child("defaultMode"), errors);
        keys_to_paths(items(&secret.items), &here.child("items"), errors);
    } else if let Some(nfs) = &volume.nfs {
        require(&nfs.server, &here.child("server"), errors);
        require(&nfs.path, &here.child("path"), errors);
        if !nfs.path.starts_with('/') {
            errors.push(FieldError::invalid(&here.child("path"), &nfs.path, "must be an absolute path"));
        }
    } else if let Some(claim) = &volume.persistent_volume_claim {
        require(&claim.claim_name, &here.child("claimName"), errors);
    } else if let Some(downward) = &volume.downward_api {
        file_mode(downward.default_mode, &here.child("defaultMode"), errors);
        for file in items(&downward.items) {
            downward_file(file, &here, errors);
        }
    } else if let Some(config_map) = &volume.config_map {
        require(&config_map.name, &here.child("name"), errors);
        file_mode(config_map.default_mode, &here.child("defaultMode"), errors);
        keys_to_paths(items(&config_map.items), &here.child("items"), errors);
    } else if let Some(projected) = &volume.projected {
        projected_sources(projected, &here, errors);
        file_mode(projected.default_mode, &here.child("defaultMode"), errors);
    } else if let Some(csi) = &volume.csi {
        csi_driver_name(&csi.driver, &here.child("driver"), errors);
        if let Some(secret) = &csi.node_publish_secret_ref {
            let secret_ref = here.child("nodePublishSecretRef");
            require(&secret.name, &secret_ref.child("name"), errors);
        }
    } else if let Some(ephemeral) = &volume.ephemeral {
        let template = here.child("volumeClaimTemplate");
        match &ephemeral.volume_claim_template {
            None => errors.push(FieldError::required(&template, "")),
            Some(claim) => crate::core::persistentvolumeclaim::validate::spec(&claim.spec, &template.child("spec"), errors),
        }
        // The claim is named after the pod and the volume.
        if let Some(pod) = metadata.and_then(|m| m.name.as_deref()).filter(|n| !n.is_empty()) {
            let claim = format!("{pod}-{}", volume.name);
            for problem in names::dns1123_subdomain(&claim) {
                let detail = format!("PVC name {claim:?}: {problem}");
                errors.push(FieldError::invalid(&path.child("name"), &volume.name, detail));
            }
        }
    } else if let Some(image) = &volume.image {
        require(text(&image.reference), &here.child("reference"), errors);
        super::containers::pull_policy(text(&image.pull_policy), &here.child("pullPolicy"), errors);
    }
}

/// The name of a CSI driver: a domain, in any case.
pub fn csi_driver_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    /// In bytes.
    const MAX: usize = 63;
    require(name, path, errors);
    if name.len() > MAX {
        errors.push(FieldError::too_long(path, MAX));
    }
    if !name.is_empty() {
        validation::texts(names::dns1123_subdomain(&name.to_lowercase()), name, path, errors);
    }
}

fn file_mode(mode: Option<i32>, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(mode) = mode.filter(|m| !(0..=0o777).contains(m)) {
        errors.push(FieldError::invalid(path, mode, FILE_MODE));
    }
}

fn keys_to_paths(list: &[KeyToPath], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, item) in list.iter().enumerate() {
        key_to_path(item, &path.index(at), errors);
    }
}

fn key_to_path(item: &KeyToPath, path: &Path<'_>, errors: &mut ErrorList) {
    require(&item.key, &path.child("key"), errors);
    require(&item.path, &path.child("path"), errors);
    local_non_reserved_path(&item.path, &path.child("path"), errors);
    file_mode(item.mode, &path.child("mode"), errors);
}

fn downward_file(file: &DownwardAPIVolumeFile, path: &Path<'_>, errors: &mut ErrorList) {
    require(&file.path, &path.child("path"), errors);
    local_non_reserved_path(&file.path, &path.child("path"), errors);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), resource) => {
            env::field_selector(field, env::VOLUME_FIELDS, &path.child("fieldRef"), errors);
            if resource.is_some() {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, "resource", why));
            }
        }
        (None, Some(resource)) => env::resource_selector(resource, true, &path.child("resourceFieldRef"), errors),
        (None, None) => errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required")),
    }
    file_mode(file.mode, &path.child("mode"), errors);
}

/// Bounds of a projected token's life in seconds.
const TOKEN_SECONDS_MIN: i64 = 10 * 60;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

fn projected_sources(projected: &ProjectedVolumeSource, path: &Path<'_>, errors: &mut ErrorList) {
    let list = path.child("sources");
    let mut taken: Vec<&str> = Vec::new();
    for (at, source) in items(&projected.sources).iter().enumerate() {
        projected_source(source, &list.index(at), path, &mut taken, errors);
    }
}

fn projected_source<'a>(source: &'a VolumeProjection, path: &Path<'_>, volume: &Path<'_>, taken: &mut Vec<&'a str>, errors: &mut ErrorList) {
    let mut count = 0;
    let mut first = |at: &Path<'_>, errors: &mut ErrorList| {
        count += 1;
        if count > 1 {
            errors.push(FieldError::forbidden(at, "may not specify more than 1 volume type per source"));
        }
        count == 1
    };
    let mut take = |file: &'a str, owner: &str, errors: &mut ErrorList| {
        if file.is_empty() {
            return;
        }
        if taken.contains(&file) {
            errors.push(FieldError::invalid(volume, owner, "conflicting duplicate paths"));
        } else {
            taken.push(file);
        }
    };
    if let Some(secret) = &source.secret {
        let here = path.child("secret");
        if first(&here, errors) {
            require(&secret.name, &here.child("name"), errors);
            for (at, item) in items(&secret.items).iter().enumerate() {
                key_to_path(item, &here.child("items").index(at), errors);
                take(&item.path, &secret.name, errors);
            }
        }
    }
    if let Some(config_map) = &source.config_map {
        let here = path.child("configMap");
        if first(&here, errors) {
            require(&config_map.name, &here.child("name"), errors);
            for (at, item) in items(&config_map.items).iter().enumerate() {
                key_to_path(item, &here.child("items").index(at), errors);
                take(&item.path, &config_map.name, errors);
            }
        }
    }
    if let Some(downward) = &source.downward_api {
        let here = path.child("downwardAPI");
        if first(&here, errors) {
            for file in items(&downward.items) {
                downward_file(file, &here, errors);
                take(&file.path, &file.path, errors);
            }
        }
    }
    if let Some(token) = &source.service_account_token {
        let here = path.child("serviceAccountToken");
        if first(&here, errors) {
            let seconds = token.expiration_seconds.unwrap_or_default();
            if seconds < TOKEN_SECONDS_MIN {
                let why = "may not specify a duration less than 10 minutes";
                errors.push(FieldError::invalid(&here.child("expirationSeconds"), seconds, why));
            }
            if seconds > TOKEN_SECONDS_MAX {
                let why = "may not specify a duration larger than 2^32 seconds";
                errors.push(FieldError::invalid(&here.child("expirationSeconds"), seconds, why));
            }
            // Upstream reports the path at the volume, not at the source.
            if token.path.is_empty() {
                errors.push(FieldError::required(&volume.child("path"), ""));
            } else {
                local_non_reserved_path(&token.path, &volume.child("path"), errors);
            }
            take(&token.path, &token.path, errors);
        }
    }
    if let Some(bundle) = &source.cluster_trust_bundle {
        let here = path.child("clusterTrustBundle");
        if first(&here, errors) {
            require(&bundle.path, &here.child("path"), errors);
            local_non_reserved_path(&bundle.path, &here.child("path"), errors);
            take(&bundle.path, &bundle.path, errors);
        }
    }
}

/// A relative path that stays below where it starts.
pub fn local_descending_path(value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if value.starts_with('/') {
        errors.push(FieldError::invalid(path, value, "must be a relative path"));
    }
    no_backsteps(value, path, errors);
}

pub fn no_backsteps(value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if value.split(['/', '\\']).any(|part| part == "..") {
        errors.push(FieldError::invalid(path, value, "must not contain '..'"));
    }
}

/// The same, and no name that the kubelet uses itself.
fn local_non_reserved_path(value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    local_descending_path(value, path, errors);
    if value.starts_with("..") && !value.starts_with("../") && value != ".." {
        errors.push(FieldError::invalid(path, value, "must not start with '..'"));
    }
}
