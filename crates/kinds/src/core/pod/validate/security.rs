//! Security contexts of pods and containers.

use k8s_openapi::api::core::v1::{AppArmorProfile, PodSpec, SeccompProfile, SecurityContext};
use wheelhouse_meta::validation as names;

use super::one_of;
use crate::prelude::*;

fn id(value: Option<i64>, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(id) = value {
        errors.extend(names::user_or_group_id(id).into_iter().map(|why| FieldError::invalid(path, id, why)));
    }
}

pub fn container(context: &SecurityContext, path: &Path<'_>, errors: &mut ErrorList) {
    id(context.run_as_user, &path.child("runAsUser"), errors);
    id(context.run_as_group, &path.child("runAsGroup"), errors);
    if let Some(mount) = &context.proc_mount
        && !matches!(mount.as_str(), "Default" | "Unmasked")
    {
        errors.push(FieldError::not_supported(&path.child("procMount"), mount, &["Default", "Unmasked"]));
    }
    seccomp(context.seccomp_profile.as_ref(), &path.child("seccompProfile"), errors);
    if context.allow_privilege_escalation == Some(false) {
        if context.privileged == Some(true) {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(FieldError::invalid(path, BadValue::typed(context), why));
        }
        let added = context.capabilities.as_ref().map(|c| items(&c.add)).unwrap_or_default();
        if added.iter().any(|c| c == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(path, BadValue::typed(context), why));
        }
    }
    app_armor(context.app_armor_profile.as_ref(), &path.child("appArmorProfile"), errors);
}

/// `path` is the spec's.
pub fn pod(spec: &PodSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(context) = &spec.security_context else { return };
    let path = path.child("securityContext");
    id(context.fs_group, &path.child("fsGroup"), errors);
    id(context.run_as_user, &path.child("runAsUser"), errors);
    id(context.run_as_group, &path.child("runAsGroup"), errors);
    let groups = path.child("supplementalGroups");
    for (at, group) in items(&context.supplemental_groups).iter().enumerate() {
        id(Some(*group), &groups.index(at), errors);
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(&path.child("shareProcessNamespace"), true, why));
    }
    sysctls(spec, &path.child("sysctls"), errors);
    if let Some(policy) = &context.fs_group_change_policy {
        one_of(policy, &["Always", "OnRootMismatch"], &path.child("fsGroupChangePolicy"), errors);
    }
    seccomp(context.seccomp_profile.as_ref(), &path.child("seccompProfile"), errors);
    if let Some(policy) = &context.supplemental_groups_policy {
        one_of(policy, &["Merge", "Strict"], &path.child("supplementalGroupsPolicy"), errors);
    }
    if let Some(policy) = &context.se_linux_change_policy {
        one_of(policy, &["MountOption", "Recursive"], &path.child("seLinuxChangePolicy"), errors);
    }
    app_armor(context.app_armor_profile.as_ref(), &path.child("appArmorProfile"), errors);
}

fn sysctls(spec: &PodSpec, path: &Path<'_>, errors: &mut ErrorList) {
    /// In bytes.
    const MAX: usize = 253;
    const SHAPE: &str = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?([\\./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
    let list = spec.security_context.as_ref().map(|c| items(&c.sysctls)).unwrap_or_default();
    let mut taken: Vec<&str> = Vec::new();
    for (at, sysctl) in list.iter().enumerate() {
        let (name, path) = (sysctl.name.as_str(), path.index(at));
        let path = path.child("name");
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if name.len() > MAX || !is_sysctl_name(name) {
            errors.push(FieldError::invalid(&path, name, format!("must have at most {MAX} characters and match regex ^{SHAPE}$")));
        } else if taken.contains(&name) {
            errors.push(FieldError::duplicate(&path, name));
        }
        // Those of a namespace that the pod shares with its node would change the node.
        let dotted = name.replace('/', ".");
        if spec.host_network == Some(true) && dotted.starts_with("net.") {
            errors.push(FieldError::invalid(&path, name, "may not be specified when 'hostNetwork' is true"));
        }
        let ipc = dotted.starts_with("kernel.shm") || dotted.starts_with("kernel.msg") || dotted == "kernel.sem" || dotted.starts_with("fs.mqueue.");
        if spec.host_ipc == Some(true) && ipc {
            errors.push(FieldError::invalid(&path, name, "may not be specified when 'hostIPC' is true"));
        }
        taken.push(name);
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.split(['.', '/']).all(|part| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(edge) && bytes.last().is_some_and(edge) && bytes.iter().all(|b| edge(b) || matches!(b, b'-' | b'_'))
    })
}

fn seccomp(profile: Option<&SeccompProfile>, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(profile) = profile else { return };
    let here = path.child("type");
    let local = profile.localhost_profile.as_deref();
    local_profile(&profile.type_, local, "seccomp", path, errors);
    if profile.type_.is_empty() {
        errors.push(FieldError::required(&here, "type is required when seccompProfile is set"));
    } else if !PROFILE_TYPES.contains(&profile.type_.as_str()) {
        errors.push(FieldError::not_supported(&here, &profile.type_, PROFILE_TYPES));
    }
}

const PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

fn local_profile(type_: &str, local: Option<&str>, what: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("localhostProfile");
    match (type_, local) {
        ("Localhost", None) => errors.push(FieldError::required(&here, format!("must be set when {what} type is Localhost"))),
        ("Localhost", Some(profile)) => {
            super::volumes::local_descending_path(profile, &here, errors);
        }
        (_, Some(profile)) if what == "seccomp" => {
            errors.push(FieldError::invalid(&here, profile, "can only be set when seccomp type is Localhost"));
        }
        (_, Some(profile)) => errors.push(FieldError::invalid(&here, profile, "can only be set when type is Localhost")),
        (_, None) => {}
    }
}

fn app_armor(profile: Option<&AppArmorProfile>, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(profile) = profile else { return };
    let here = path.child("localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("", _) => errors.push(FieldError::required(&path.child("type"), "type is required when appArmorProfile is set")),
        ("Localhost", None) => errors.push(FieldError::required(&here, "must be set when AppArmor type is Localhost")),
        ("Localhost", Some(local)) => {
            let trimmed = local.trim();
            if trimmed != local {
                errors.push(FieldError::invalid(&here, local, "must not be padded with whitespace"));
            } else if trimmed.is_empty() {
                errors.push(FieldError::required(&here, "must be set when AppArmor type is Localhost"));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(local)) => {
            errors.push(FieldError::invalid(&here, local, "can only be set when AppArmor type is Localhost"));
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        (other, _) => errors.push(FieldError::not_supported(&path.child("type"), other, PROFILE_TYPES)),
    }
}
