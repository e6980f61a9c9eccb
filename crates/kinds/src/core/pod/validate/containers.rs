//! Containers of the three sorts.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvFromSource, EnvVar, EphemeralContainer, Lifecycle, PodSpec, Probe, ResourceRequirements, SecurityContext,
    VolumeDevice, VolumeMount,
};
use wheelhouse_meta::validation as names;

use super::volumes::{ByName, local_descending_path, no_backsteps};
use super::{env, one_of, probes, resources, security};
use crate::prelude::*;

/// What of the pod a container may refer to.
pub struct Around<'a> {
    pub volumes: &'a ByName<'a>,
    pub claims: &'a [&'a str],
}

/// The fields that containers of every sort have alike.
struct Common<'a> {
    name: &'a str,
    image: &'a str,
    image_pull_policy: &'a str,
    termination_message_policy: &'a str,
    ports: &'a [ContainerPort],
    env: &'a [EnvVar],
    env_from: &'a [EnvFromSource],
    volume_mounts: &'a [VolumeMount],
    volume_devices: &'a [VolumeDevice],
    resources: Option<&'a ResourceRequirements>,
    security_context: Option<&'a SecurityContext>,
}

macro_rules! common_of {
    ($container:expr) => {
        Common {
            name: &$container.name,
            image: text(&$container.image),
            image_pull_policy: text(&$container.image_pull_policy),
            termination_message_policy: text(&$container.termination_message_policy),
            ports: items(&$container.ports),
            env: items(&$container.env),
            env_from: items(&$container.env_from),
            volume_mounts: items(&$container.volume_mounts),
            volume_devices: items(&$container.volume_devices),
            resources: $container.resources.as_ref(),
            security_context: $container.security_context.as_ref(),
        }
    };
}

pub fn regular(list: &[Container], around: &Around<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    if list.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut taken: Vec<&str> = Vec::new();
    for (at, container) in list.iter().enumerate() {
        let path = path.index(at);
        common(&common_of!(container), around, &path, errors);
        unique(&container.name, &mut taken, &path, errors);
        lifecycle_and_probes(container, &path, errors);
        restart_rules(container, &["Always", "OnFailure", "Never"], &path, errors);
    }
    host_port_conflicts(list, 0, path, errors);
}

pub fn init(spec: &PodSpec, around: &Around<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let mut taken: Vec<&str> = spec.containers.iter().map(|c| c.name.as_str()).collect();
    for (at, container) in items(&spec.init_containers).iter().enumerate() {
        let here = path.index(at);
        common(&common_of!(container), around, &here, errors);
        restart_rules(container, &["Always", "OnFailure", "Never"], &here, errors);
        unique(&container.name, &mut taken, &here, errors);
        // They run one by one, so only ports of one and the same container collide.
        host_port_conflicts(std::slice::from_ref(container), at, path, errors);
        if is_sidecar(container) {
            lifecycle_and_probes(container, &here, errors);
            continue;
        }
        let set = [
            ("lifecycle", container.lifecycle.is_some()),
            ("livenessProbe", container.liveness_probe.is_some()),
            ("readinessProbe", container.readiness_probe.is_some()),
            ("startupProbe", container.startup_probe.is_some()),
        ];
        for (field, _) in set.into_iter().filter(|(_, set)| *set) {
            let why = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(&here.child(field), why));
        }
    }
}

/// An init container that goes on running beside the regular ones.
pub fn is_sidecar(container: &Container) -> bool {
    text(&container.restart_policy) == "Always"
}

pub fn ephemeral(spec: &PodSpec, around: &Around<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let others: Vec<&str> = spec.containers.iter().chain(items(&spec.init_containers)).map(|c| c.name.as_str()).collect();
    let mut taken = others.clone();
    for (at, container) in items(&spec.ephemeral_containers).iter().enumerate() {
        let path = path.index(at);
        common(&common_of!(container), around, &path, errors);
        unique(&container.name, &mut taken, &path, errors);
        let target = text(&container.target_container_name);
        if !target.is_empty() && !others.contains(&target) {
            errors.push(FieldError::not_found(&path.child("targetContainerName"), target));
        }
        for field in not_for_ephemeral(container) {
            errors.push(FieldError::forbidden(&path.child(field), EPHEMERAL));
        }
        let mounts = path.child("volumeMounts");
        for (at, mount) in items(&container.volume_mounts).iter().enumerate() {
            let path = mounts.index(at);
            if !text(&mount.sub_path).is_empty() {
                errors.push(FieldError::forbidden(&path.child("subPath"), EPHEMERAL));
            }
            if !text(&mount.sub_path_expr).is_empty() {
                errors.push(FieldError::forbidden(&path.child("subPathExpr"), EPHEMERAL));
            }
        }
    }
}

const EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

fn not_for_ephemeral(container: &EphemeralContainer) -> impl Iterator<Item = &'static str> {
    let resources = container.resources.as_ref();
    let has_resources = resources.is_some_and(|r| {
        r.limits.as_ref().is_some_and(|l| !l.is_empty()) || r.requests.as_ref().is_some_and(|r| !r.is_empty()) || !items(&r.claims).is_empty()
    });
    let set = [
        ("ports", !items(&container.ports).is_empty()),
        ("resources", has_resources),
        ("resizePolicy", !items(&container.resize_policy).is_empty()),
        ("restartPolicy", container.restart_policy.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
        ("lifecycle", container.lifecycle.is_some()),
    ];
    set.into_iter().filter(|(_, set)| *set).map(|(field, _)| field)
}

fn unique<'a>(name: &'a str, taken: &mut Vec<&'a str>, path: &Path<'_>, errors: &mut ErrorList) {
    if taken.contains(&name) {
        errors.push(FieldError::duplicate(&path.child("name"), name));
    } else if !name.is_empty() {
        taken.push(name);
    }
}

fn common(container: &Common<'_>, around: &Around<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    if container.name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else {
        validation::texts(names::dns1123_label(container.name), container.name, &path.child("name"), errors);
    }
    if container.image.is_empty() {
        errors.push(FieldError::required(&path.child("image"), ""));
    }
    let policies = ["FallbackToLogsOnError", "File"];
    one_of(container.termination_message_policy, &policies, &path.child("terminationMessagePolicy"), errors);
    ports(container.ports, &path.child("ports"), errors);
    env::validate(container.env, &path.child("env"), errors);
    env::from(container.env_from, &path.child("envFrom"), errors);
    volume_mounts(container, around.volumes, &path.child("volumeMounts"), errors);
    volume_devices(container, around.volumes, &path.child("volumeDevices"), errors);
    pull_policy(container.image_pull_policy, &path.child("imagePullPolicy"), errors);
    if let Some(resources) = container.resources {
        resources::validate(resources, around.claims, &path.child("resources"), errors);
    }
    if let Some(context) = container.security_context {
        security::container(context, &path.child("securityContext"), errors);
    }
}

pub fn pull_policy(policy: &str, path: &Path<'_>, errors: &mut ErrorList) {
    one_of(policy, &["Always", "IfNotPresent", "Never"], path, errors);
}

fn restart_rules(container: &Container, allowed: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    /// Rules of one container.
    const MAX_RULES: usize = 20;
    let rules = items(&container.restart_policy_rules);
    let here = path.child("restartPolicyRules");
    match &container.restart_policy {
        Some(policy) => one_of(policy, allowed, &path.child("restartPolicy"), errors),
        None if !rules.is_empty() => {
            errors.push(FieldError::required(&path.child("restartPolicy"), "must specify restartPolicy when restart rules are used"));
        }
        None => {}
    }
    if rules.len() > MAX_RULES {
        errors.push(FieldError::too_long(&here, MAX_RULES));
    }
    for (at, rule) in rules.iter().enumerate() {
        let path = here.index(at);
        one_of(&rule.action, &["Restart", "RestartAllContainers"], &path.child("action"), errors);
        match &rule.exit_codes {
            None => errors.push(FieldError::required(&path.child("exitCodes"), "must be specified")),
            Some(codes) => one_of(&codes.operator, &["In", "NotIn"], &path.child("exitCodes").child("operator"), errors),
        }
    }
}

fn lifecycle_and_probes(container: &Container, path: &Path<'_>, errors: &mut ErrorList) {
    let lifecycle: Option<&Lifecycle> = container.lifecycle.as_ref();
    if let Some(lifecycle) = lifecycle {
        probes::lifecycle(lifecycle, &path.child("lifecycle"), errors);
    }
    let sorts: [(&str, Option<&Probe>); 3] = [
        ("livenessProbe", container.liveness_probe.as_ref()),
        ("readinessProbe", container.readiness_probe.as_ref()),
        ("startupProbe", container.startup_probe.as_ref()),
    ];
    for (field, probe) in sorts {
        if let Some(probe) = probe {
            probes::validate(probe, field, &path.child(field), errors);
        }
    }
}

fn ports(list: &[ContainerPort], path: &Path<'_>, errors: &mut ErrorList) {
    let mut taken: Vec<&str> = Vec::new();
    for (at, port) in list.iter().enumerate() {
        let path = path.index(at);
        let name = text(&port.name);
        if !name.is_empty() {
            let problems = names::port_name(name);
            if !problems.is_empty() {
                validation::texts(problems, name, &path.child("name"), errors);
            } else if taken.contains(&name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            } else {
                taken.push(name);
            }
        }
        if port.container_port == 0 {
            errors.push(FieldError::required(&path.child("containerPort"), ""));
        } else {
            validation::port(port.container_port, &path.child("containerPort"), errors);
        }
        if let Some(host) = port.host_port.filter(|p| *p != 0) {
            validation::port(host, &path.child("hostPort"), errors);
        }
        one_of(text(&port.protocol), &["SCTP", "TCP", "UDP"], &path.child("protocol"), errors);
    }
}

/// Two containers cannot have the same port of the node. `offset` is where the list begins under `path`.
fn host_port_conflicts(list: &[Container], offset: usize, path: &Path<'_>, errors: &mut ErrorList) {
    let mut taken: Vec<String> = Vec::new();
    for (at, container) in list.iter().enumerate() {
        let path = path.index(at + offset);
        let path = path.child("ports");
        for (at, port) in items(&container.ports).iter().enumerate() {
            let Some(number) = port.host_port.filter(|p| *p != 0) else { continue };
            let key = format!("{}/{}/{number}", text(&port.protocol), text(&port.host_ip));
            if taken.contains(&key) {
                errors.push(FieldError::duplicate(&path.index(at).child("hostPort"), key));
            } else {
                taken.push(key);
            }
        }
    }
}

fn volume_mounts(container: &Common<'_>, volumes: &ByName<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let mut taken: Vec<&str> = Vec::new();
    for (at, mount) in container.volume_mounts.iter().enumerate() {
        let here = path.index(at);
        if mount.name.is_empty() {
            errors.push(FieldError::required(&here.child("name"), ""));
        }
        if !volumes.contains_key(mount.name.as_str()) {
            errors.push(FieldError::not_found(&here.child("name"), &mount.name));
        }
        if mount.mount_path.is_empty() {
            errors.push(FieldError::required(&here.child("mountPath"), ""));
        }
        if taken.contains(&mount.mount_path.as_str()) {
            errors.push(FieldError::invalid(&here.child("mountPath"), &mount.mount_path, "must be unique"));
        }
        taken.push(&mount.mount_path);
        let devices = container.volume_devices;
        if devices.iter().any(|d| d.name == mount.name) {
            errors.push(FieldError::invalid(&here.child("name"), &mount.name, "must not already exist in volumeDevices"));
        }
        if devices.iter().any(|d| d.device_path == mount.mount_path) {
            let why = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(&here.child("mountPath"), &mount.mount_path, why));
        }
        let (plain, expression) = (text(&mount.sub_path), text(&mount.sub_path_expr));
        // Upstream reports these two at the list, not at the mount.
        if !plain.is_empty() {
            local_descending_path(plain, &path.child("subPath"), errors);
        }
        if !expression.is_empty() {
            if !plain.is_empty() {
                let why = "subPathExpr and subPath are mutually exclusive";
                errors.push(FieldError::invalid(&here.child("subPathExpr"), expression, why));
            }
            local_descending_path(expression, &path.child("subPathExpr"), errors);
        }
        if let Some(propagation) = &mount.mount_propagation {
            let here = path.child("mountPropagation");
            let allowed = ["Bidirectional", "HostToContainer", "None"];
            if !allowed.contains(&propagation.as_str()) {
                errors.push(FieldError::not_supported(&here, propagation, &allowed));
            }
            let privileged = container.security_context.is_some_and(|c| c.privileged == Some(true));
            if propagation == "Bidirectional" && !privileged {
                errors.push(FieldError::forbidden(&here, "Bidirectional mount propagation is available only to privileged containers"));
            }
        }
        if let Some(mode) = &mount.recursive_read_only {
            recursive_read_only(mount, mode, &path.child("recursiveReadOnly"), errors);
        }
    }
}

fn recursive_read_only(mount: &VolumeMount, mode: &str, path: &Path<'_>, errors: &mut ErrorList) {
    match mode {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if mount.read_only != Some(true) {
                errors.push(FieldError::forbidden(path, "may only be specified when readOnly is true"));
            }
            if !matches!(mount.mount_propagation.as_deref(), None | Some("None")) {
                errors.push(FieldError::forbidden(path, "may only be specified when mountPropagation is None or not specified"));
            }
        }
        _ => errors.push(FieldError::not_supported(path, mode, &["Disabled", "Enabled", "IfPossible"])),
    }
}

fn volume_devices(container: &Common<'_>, volumes: &ByName<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let (mut taken_names, mut taken_paths): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (at, device) in container.volume_devices.iter().enumerate() {
        let path = path.index(at);
        let (name, device_path) = (device.name.as_str(), device.device_path.as_str());
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        if taken_names.contains(&name) {
            errors.push(FieldError::invalid(&path.child("name"), name, "must be unique"));
        }
        match volumes.get(name) {
            None => errors.push(FieldError::not_found(&path.child("name"), name)),
            Some(volume) if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() => {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(&path.child("name"), name, why));
            }
            Some(_) => {}
        }
        if device_path.is_empty() {
            errors.push(FieldError::required(&path.child("devicePath"), ""));
        }
        if taken_paths.contains(&device_path) {
            errors.push(FieldError::invalid(&path.child("devicePath"), device_path, "must be unique"));
        }
        let mut backsteps = ErrorList::new();
        no_backsteps(device_path, &path, &mut backsteps);
        if backsteps.is_empty() {
            taken_paths.push(device_path);
        } else {
            errors.push(FieldError::invalid(&path.child("devicePath"), device_path, "can not contain backsteps ('..')"));
        }
        if container.volume_mounts.iter().any(|m| m.name == name) {
            errors.push(FieldError::invalid(&path.child("name"), name, "must not already exist in volumeMounts"));
        }
        if container.volume_mounts.iter().any(|m| m.mount_path == device_path) {
            let why = "must not already exist as a path in volumeMounts";
            errors.push(FieldError::invalid(&path.child("devicePath"), device_path, why));
        }
        if !name.is_empty() {
            taken_names.push(name);
        }
    }
}
