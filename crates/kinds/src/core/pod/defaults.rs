//! Defaults of a pod's spec. A bare pod gets a little more than a template.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, EphemeralContainer, HTTPGetAction, LifecycleHandler, ObjectFieldSelector, Pod, PodIP, PodSpec, Probe, Volume,
};
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Lifecycle};

use crate::validation::text;

/// `rw-r--r--`, the default mode of projected files.
const FILE_MODE: i32 = 0o644;
/// How long a projected token lives by default, in seconds.
const TOKEN_SECONDS: i64 = 60 * 60;

/// Sets an unset or empty text.
pub fn or_text(field: &mut Option<String>, default: &str) {
    if text(field).is_empty() {
        *field = Some(default.to_owned());
    }
}

fn or_number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or_default() == 0 {
        *field = Some(default);
    }
}

/// What a Pod gets beyond [`pod_spec`].
pub fn pod(object: &mut Pod) {
    // The single address and the list are one field in two shapes; the single one wins.
    if let Some(status) = object.status.as_mut() {
        let single = text(&status.pod_ip).to_owned();
        match status.pod_ips.as_deref().unwrap_or_default().first() {
            Some(first) if single.is_empty() => status.pod_ip = Some(first.ip.clone()),
            Some(first) if first.ip == single => {}
            _ if !single.is_empty() => status.pod_ips = Some(vec![PodIP { ip: single }]),
            _ => {}
        }
    }
    let Some(spec) = object.spec.as_mut() else { return };
    pod_spec(spec);
    spec.enable_service_links.get_or_insert(true);
    let host_network = spec.host_network == Some(true);
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        if let Some(resources) = container.resources.as_mut()
            && let Some(limits) = resources.limits.as_ref().filter(|l| !l.is_empty())
        {
            let requests = resources.requests.get_or_insert_default();
            for (name, limit) in limits {
                requests.entry(name.clone()).or_insert_with(|| limit.clone());
            }
        }
        if host_network {
            container.ports.iter_mut().flatten().for_each(same_host_port);
        }
    }
}

fn same_host_port(port: &mut ContainerPort) {
    if port.host_port.unwrap_or_default() == 0 {
        port.host_port = Some(port.container_port);
    }
}

/// What the spec of a pod and of a pod template get alike.
pub fn pod_spec(spec: &mut PodSpec) {
    or_text(&mut spec.dns_policy, "ClusterFirst");
    or_text(&mut spec.restart_policy, "Always");
    or_text(&mut spec.scheduler_name, "default-scheduler");
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(30);
    // The older name of the same field is kept in step.
    if text(&spec.service_account_name).is_empty() {
        spec.service_account_name = spec.service_account.clone().filter(|n| !n.is_empty());
    }
    spec.service_account.clone_from(&spec.service_account_name);
    spec.volumes.iter_mut().flatten().for_each(volume);
    spec.containers.iter_mut().for_each(container);
    spec.init_containers.iter_mut().flatten().for_each(container);
    spec.ephemeral_containers.iter_mut().flatten().for_each(ephemeral_container);
}

fn container(container: &mut Container) {
    or_text(&mut container.image_pull_policy, pull_policy(text(&container.image)));
    or_text(&mut container.termination_message_path, "/dev/termination-log");
    or_text(&mut container.termination_message_policy, "File");
    container.resources.get_or_insert_default();
    for port in container.ports.iter_mut().flatten() {
        or_text(&mut port.protocol, "TCP");
    }
    container.env.iter_mut().flatten().for_each(env);
    for probe in [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe] {
        self::probe(probe);
    }
    lifecycle(&mut container.lifecycle);
}

fn ephemeral_container(container: &mut EphemeralContainer) {
    or_text(&mut container.image_pull_policy, pull_policy(text(&container.image)));
    or_text(&mut container.termination_message_path, "/dev/termination-log");
    or_text(&mut container.termination_message_policy, "File");
    container.resources.get_or_insert_default();
    for port in container.ports.iter_mut().flatten() {
        or_text(&mut port.protocol, "TCP");
    }
    container.env.iter_mut().flatten().for_each(env);
    for probe in [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe] {
        self::probe(probe);
    }
    lifecycle(&mut container.lifecycle);
}

/// An image without a tag, or with the tag `latest`, may change under its name.
fn pull_policy(image: &str) -> &'static str {
    let without_digest = image.split_once('@');
    let name = without_digest.map_or(image, |(name, _)| name);
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), without_digest) {
        (Some((_, "latest")), _) | (None, None) => "Always",
        _ => "IfNotPresent",
    }
}

fn env(env: &mut EnvVar) {
    if let Some(source) = env.value_from.as_mut() {
        source.field_ref.iter_mut().for_each(field_ref);
    }
}

fn field_ref(field: &mut ObjectFieldSelector) {
    or_text(&mut field.api_version, "v1");
}

fn probe(probe: &mut Option<Probe>) {
    let Some(probe) = probe.as_mut() else { return };
    or_number(&mut probe.timeout_seconds, 1);
    or_number(&mut probe.period_seconds, 10);
    or_number(&mut probe.success_threshold, 1);
    or_number(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(http_get);
    if let Some(grpc) = probe.grpc.as_mut() {
        grpc.service.get_or_insert_default();
    }
}

fn http_get(action: &mut HTTPGetAction) {
    or_text(&mut action.path, "/");
    or_text(&mut action.scheme, "HTTP");
}

fn lifecycle(lifecycle: &mut Option<Lifecycle>) {
    let handler = |handler: &mut LifecycleHandler| handler.http_get.iter_mut().for_each(http_get);
    if let Some(lifecycle) = lifecycle.as_mut() {
        lifecycle.post_start.iter_mut().for_each(handler);
        lifecycle.pre_stop.iter_mut().for_each(handler);
    }
}

fn volume(volume: &mut Volume) {
    if !super::validate::volumes::has_source(volume) {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(secret) = volume.secret.as_mut() {
        secret.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(config_map) = volume.config_map.as_mut() {
        config_map.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(downward) = volume.downward_api.as_mut() {
        downward.default_mode.get_or_insert(FILE_MODE);
        downward.items.iter_mut().flatten().filter_map(|i| i.field_ref.as_mut()).for_each(field_ref);
    }
    if let Some(projected) = volume.projected.as_mut() {
        projected.default_mode.get_or_insert(FILE_MODE);
        for source in projected.sources.iter_mut().flatten() {
            if let Some(token) = source.service_account_token.as_mut() {
                token.expiration_seconds.get_or_insert(TOKEN_SECONDS);
            }
            if let Some(downward) = source.downward_api.as_mut() {
                downward.items.iter_mut().flatten().filter_map(|i| i.field_ref.as_mut()).for_each(field_ref);
            }
        }
    }
    if let Some(host_path) = volume.host_path.as_mut() {
        host_path.type_.get_or_insert_default();
    }
    if let Some(claim) = volume.ephemeral.as_mut().and_then(|e| e.volume_claim_template.as_mut()) {
        or_text(&mut claim.spec.volume_mode, "Filesystem");
    }
    if let Some(iscsi) = volume.iscsi.as_mut() {
        or_text(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = volume.rbd.as_mut() {
        or_text(&mut rbd.pool, "rbd");
        or_text(&mut rbd.user, "admin");
        or_text(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(scale_io) = volume.scale_io.as_mut() {
        or_text(&mut scale_io.storage_mode, "ThinProvisioned");
        or_text(&mut scale_io.fs_type, "xfs");
    }
    if let Some(disk) = volume.azure_disk.as_mut() {
        or_text(&mut disk.caching_mode, "ReadWrite");
        or_text(&mut disk.kind, "Shared");
        or_text(&mut disk.fs_type, "ext4");
        disk.read_only.get_or_insert(false);
    }
    if let Some(image) = volume.image.as_mut() {
        or_text(&mut image.pull_policy, pull_policy(text(&image.reference)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_may_change_are_pulled_always() {
        for image in ["nginx", "nginx:latest", "localhost:5000/a/nginx", "a/b:latest@sha256:00"] {
            assert_eq!(pull_policy(image), "Always", "{image}");
        }
        for image in ["nginx:1", "localhost:5000/nginx:v2", "nginx@sha256:00", "a/b:1@sha256:00"] {
            assert_eq!(pull_policy(image), "IfNotPresent", "{image}");
        }
    }
}
