//! One container as the runtime is asked for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use super::env::Environment;
use super::security::{self, ImageUser};
use super::{ConfigError, NodeFacts, labels, meta, resources};
use crate::cri::api::{ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig, Mount, MountPropagation};

/// Upstream's default of `terminationMessagePath`.
const MESSAGE_PATH: &str = "/dev/termination-log";

/// What a container is made of beside its spec.
pub struct Parts<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub attempt: u32,
    pub node: &'a NodeFacts,
    pub environment: &'a Environment,
    /// The image's reference in the runtime, and who it runs as.
    pub image: &'a str,
    pub image_user: &'a ImageUser,
    /// Where each volume lies.
    pub volumes: &'a BTreeMap<String, PathBuf>,
    /// On the node; mounted at `/etc/hosts` unless the spec mounts something there.
    pub hosts_file: Option<&'a Path>,
    /// On the node; behind the termination message path.
    pub message_file: &'a Path,
    /// For an ephemeral container: whose processes it sees.
    pub target_id: &'a str,
}

/// Of the part of the spec that a running container cannot take over.
pub fn hash(container: &Container) -> String {
    let text = format!("{}\0{}", container.name, container.image.as_deref().unwrap_or_default());
    // FNV-1a, 32 bits.
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}

pub fn config(parts: &Parts<'_>) -> Result<ContainerConfig, ConfigError> {
    let Parts { pod, container, environment, .. } = parts;
    let expand = |list: &Option<Vec<String>>| list.iter().flatten().map(|text| environment.expand(text)).collect();
    let own = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let message_path = container.termination_message_path.as_deref().unwrap_or(MESSAGE_PATH);
    Ok(ContainerConfig {
        metadata: Some(ContainerMetadata { name: container.name.clone(), attempt: parts.attempt }),
        image: Some(ImageSpec {
            image: parts.image.to_owned(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command: expand(&container.command),
        args: expand(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: environment.iter().map(|(key, value)| KeyValue { key: key.to_owned(), value: value.as_bytes().to_vec() }).collect(),
        mounts: mounts(parts, message_path)?,
        labels: [
            own(labels::POD_NAME, meta(&pod.metadata.name)),
            own(labels::POD_NAMESPACE, meta(&pod.metadata.namespace)),
            own(labels::POD_UID, meta(&pod.metadata.uid)),
            own(labels::CONTAINER_NAME, &container.name),
        ]
        .into(),
        annotations: [
            own(labels::CONTAINER_HASH, &hash(container)),
            own(labels::RESTART_COUNT, &parts.attempt.to_string()),
            own(labels::MESSAGE_PATH, message_path),
            own(labels::MESSAGE_POLICY, container.termination_message_policy.as_deref().unwrap_or("File")),
            own(labels::MESSAGE_FILE, &parts.message_file.display().to_string()),
            own(labels::POD_GRACE, &pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30).to_string()),
        ]
        .into(),
        log_path: format!("{}/{}.log", container.name, parts.attempt),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: Some(LinuxContainerConfig {
            resources: Some(resources::of_container(pod, container, parts.node)),
            security_context: Some(security::of_container(pod, container, parts.image_user, parts.target_id)?),
        }),
        ..ContainerConfig::default()
    })
}

fn mounts(parts: &Parts<'_>, message_path: &str) -> Result<Vec<Mount>, ConfigError> {
    let mut mounts = Vec::new();
    for mount in parts.container.volume_mounts.iter().flatten() {
        mounts.push(volume_mount(parts, mount)?);
    }
    let taken = |mounts: &[Mount], path: &str| mounts.iter().any(|mount| mount.container_path == path);
    let plain = |path: &str, file: &Path, readonly| Mount {
        container_path: path.to_owned(),
        host_path: file.display().to_string(),
        readonly,
        ..Mount::default()
    };
    if let Some(file) = parts.hosts_file.filter(|_| !taken(&mounts, "/etc/hosts")) {
        let read_only_root = parts.container.security_context.as_ref().and_then(|c| c.read_only_root_filesystem) == Some(true);
        mounts.push(plain("/etc/hosts", file, read_only_root));
    }
    if !message_path.is_empty() && !taken(&mounts, message_path) {
        mounts.push(plain(message_path, parts.message_file, false));
    }
    Ok(mounts)
}

fn volume_mount(parts: &Parts<'_>, mount: &VolumeMount) -> Result<Mount, ConfigError> {
    let folder = parts
        .volumes
        .get(&mount.name)
        .ok_or_else(|| ConfigError(format!("cannot find volume \"{}\" to mount into container \"{}\"", mount.name, parts.container.name)))?;
    let expr = mount.sub_path_expr.as_deref().filter(|text| !text.is_empty()).map(|text| parts.environment.expand(text));
    let sub_path = expr.or_else(|| mount.sub_path.clone()).unwrap_or_default();
    if sub_path.starts_with('/') || sub_path.split('/').any(|part| part == "..") {
        return Err(ConfigError(format!("subPath \"{sub_path}\" must be a relative path without '..'")));
    }
    let host_path = if sub_path.is_empty() { folder.clone() } else { folder.join(&sub_path) };
    let propagation = match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => MountPropagation::PropagationBidirectional,
        _ => MountPropagation::PropagationPrivate,
    };
    let container_path = if mount.mount_path.starts_with('/') { mount.mount_path.clone() } else { format!("/{}", mount.mount_path) };
    Ok(Mount {
        container_path,
        host_path: host_path.display().to_string(),
        readonly: mount.read_only == Some(true),
        propagation: propagation as i32,
        ..Mount::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config_of(container: serde_json::Value) -> Result<ContainerConfig, ConfigError> {
        let pod: Pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [container]}}))
        .unwrap();
        let mut environment = Environment::default();
        environment.set("POD", "p".into());
        config(&Parts {
            pod: &pod,
            container: &pod.spec.as_ref().unwrap().containers[0],
            attempt: 2,
            node: &NodeFacts::default(),
            environment: &environment,
            image: "sha256:1",
            image_user: &ImageUser::default(),
            volumes: &BTreeMap::from([("v".to_owned(), PathBuf::from("/vol/v"))]),
            hosts_file: Some(Path::new("/pod/hosts")),
            message_file: Path::new("/pod/msg"),
            target_id: "",
        })
    }

    #[test]
    fn mounts_commands_and_files_come_together() {
        let mounts = json!([{"name": "v", "mountPath": "/data", "subPathExpr": "$(POD)/x", "readOnly": true}]);
        let config = config_of(json!({"name": "c", "image": "i", "command": ["run", "$(POD)"], "volumeMounts": mounts})).unwrap();
        assert_eq!(config.command, ["run", "p"]);
        let all: Vec<String> = config.mounts.iter().map(|m| format!("{}={} {}", m.container_path, m.host_path, m.readonly)).collect();
        assert_eq!(all, ["/data=/vol/v/p/x true", "/etc/hosts=/pod/hosts false", "/dev/termination-log=/pod/msg false"]);
        assert_eq!(config.log_path, "c/2.log");
    }

    #[test]
    fn a_mount_may_not_leave_its_volume() {
        for sub in ["../x", "/etc", "a/../../b"] {
            assert!(config_of(json!({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/d", "subPath": sub}]})).is_err(), "{sub}");
        }
        let unknown = config_of(json!({"name": "c", "volumeMounts": [{"name": "w", "mountPath": "/d"}]}));
        assert_eq!(unknown.unwrap_err().0, "cannot find volume \"w\" to mount into container \"c\"");
    }
}
