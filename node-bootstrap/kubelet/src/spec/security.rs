//! Security contexts: a container's own settings over the pod's.

use k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile};

use super::ConfigError;
use crate::cri::api::{
    Capability, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, SeLinuxOption,
    SecurityProfile, SupplementalGroupsPolicy, security_profile::ProfileType,
};

/// What the runtime hides and protects unless `procMount` says otherwise.
const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

fn mode(host: Option<bool>, otherwise: NamespaceMode) -> i32 {
    (if host == Some(true) { NamespaceMode::Node } else { otherwise }) as i32
}

fn namespaces(pod: &Pod) -> NamespaceOption {
    let spec = pod.spec.as_ref();
    let own_pid = if spec.and_then(|s| s.share_process_namespace) == Some(true) { NamespaceMode::Pod } else { NamespaceMode::Container };
    NamespaceOption {
        network: mode(spec.and_then(|s| s.host_network), NamespaceMode::Pod),
        pid: mode(spec.and_then(|s| s.host_pid), own_pid),
        ipc: mode(spec.and_then(|s| s.host_ipc), NamespaceMode::Pod),
        ..NamespaceOption::default()
    }
}

/// The node's default when nothing is said is unconfined, as without `--seccomp-default`.
fn seccomp(profile: Option<&SeccompProfile>) -> SecurityProfile {
    let (kind, file) = match profile.map(|profile| profile.type_.as_str()) {
        Some("RuntimeDefault") => (ProfileType::RuntimeDefault, String::new()),
        Some("Localhost") => {
            let file = profile.and_then(|profile| profile.localhost_profile.clone()).unwrap_or_default();
            (ProfileType::Localhost, format!("/var/lib/kubelet/seccomp/{file}"))
        }
        _ => (ProfileType::Unconfined, String::new()),
    };
    SecurityProfile { profile_type: kind as i32, localhost_ref: file }
}

pub fn of_sandbox(pod: &Pod) -> LinuxSandboxSecurityContext {
    let spec = pod.spec.as_ref();
    let context = spec.and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let privileged = spec.is_some_and(|spec| {
        let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        all.into_iter().any(|c| c.security_context.as_ref().and_then(|s| s.privileged) == Some(true))
    });
    let mut groups = context.supplemental_groups.clone().unwrap_or_default();
    groups.extend(context.fs_group);
    LinuxSandboxSecurityContext {
        namespace_options: Some(NamespaceOption { target_id: String::new(), ..namespaces(pod) }),
        run_as_user: context.run_as_user.map(|value| Int64Value { value }),
        run_as_group: context.run_as_group.filter(|_| context.run_as_user.is_some()).map(|value| Int64Value { value }),
        supplemental_groups: groups,
        privileged,
        seccomp: Some(SecurityProfile { profile_type: ProfileType::RuntimeDefault as i32, localhost_ref: String::new() }),
        ..LinuxSandboxSecurityContext::default()
    }
}

/// Who the image says that its containers run as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    pub uid: Option<i64>,
    pub name: String,
}

pub fn of_container(pod: &Pod, container: &Container, image: &ImageUser, target_id: &str) -> Result<LinuxContainerSecurityContext, ConfigError> {
    let whole = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let user = own.run_as_user.or(whole.run_as_user);
    if own.run_as_non_root.or(whole.run_as_non_root) == Some(true) {
        refuse_root(user, image, &super::full_name(pod), &container.name)?;
    }
    let privileged = own.privileged == Some(true);
    let mut groups = whole.supplemental_groups.clone().unwrap_or_default();
    groups.extend(whole.fs_group);
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: &[&str]| if unmasked || privileged { Vec::new() } else { list.iter().map(|path| (*path).to_owned()).collect() };
    let mut namespaces = namespaces(pod);
    if !target_id.is_empty() {
        (namespaces.pid, namespaces.target_id) = (NamespaceMode::Target as i32, target_id.to_owned());
    }
    let selinux = own.se_linux_options.as_ref().or(whole.se_linux_options.as_ref());
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    Ok(LinuxContainerSecurityContext {
        capabilities: own.capabilities.map(|capabilities| Capability {
            add_capabilities: capabilities.add.unwrap_or_default(),
            drop_capabilities: capabilities.drop.unwrap_or_default(),
            ..Capability::default()
        }),
        privileged,
        namespace_options: Some(namespaces),
        selinux_options: selinux.map(|s| SeLinuxOption { user: text(&s.user), role: text(&s.role), r#type: text(&s.type_), level: text(&s.level) }),
        run_as_user: user.map(|value| Int64Value { value }),
        run_as_group: own.run_as_group.or(whole.run_as_group).map(|value| Int64Value { value }),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups,
        supplemental_groups_policy: if whole.supplemental_groups_policy.as_deref() == Some("Strict") {
            SupplementalGroupsPolicy::Strict as i32
        } else {
            SupplementalGroupsPolicy::Merge as i32
        },
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(MASKED),
        readonly_paths: paths(READ_ONLY),
        seccomp: Some(if privileged { seccomp(None) } else { seccomp(own.seccomp_profile.as_ref().or(whole.seccomp_profile.as_ref())) }),
        ..LinuxContainerSecurityContext::default()
    })
}

fn refuse_root(user: Option<i64>, image: &ImageUser, pod: &str, container: &str) -> Result<(), ConfigError> {
    let refused = |why: String| Err(ConfigError(format!("container has runAsNonRoot and {why} (pod: \"{pod}\", container: {container})")));
    match (user, image.uid) {
        (Some(0), _) => Err(ConfigError(format!("container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})"))),
        (Some(_), _) => Ok(()),
        (None, Some(0)) => refused("image will run as root".to_owned()),
        (None, None) if !image.name.is_empty() => refused(format!("image has non-numeric user ({}), cannot verify user is non-root", image.name)),
        (None, None) => refused("image will run as root".to_owned()),
        (None, Some(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_containers_settings_win_and_root_is_refused() {
        let pod: Pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"hostPID": true, "securityContext": {"runAsUser": 1000, "fsGroup": 7, "runAsNonRoot": true},
                     "containers": [{"name": "a"}, {"name": "b", "securityContext": {"runAsUser": 0}}, {"name": "c", "securityContext": {"runAsUser": 5, "privileged": true}}]}}))
        .unwrap();
        let of = |i: usize| of_container(&pod, &pod.spec.as_ref().unwrap().containers[i], &ImageUser::default(), "");
        let a = of(0).unwrap();
        assert_eq!((a.run_as_user.unwrap().value, a.supplemental_groups, a.masked_paths.len()), (1000, vec![7], MASKED.len()));
        assert_eq!(a.namespace_options.unwrap().pid, NamespaceMode::Node as i32);
        assert_eq!(of(1).unwrap_err().0, "container's runAsUser breaks non-root policy (pod: \"p_n(u)\", container: b)");
        let c = of(2).unwrap();
        assert!(c.privileged && c.masked_paths.is_empty() && c.run_as_user.unwrap().value == 5);
    }
}
