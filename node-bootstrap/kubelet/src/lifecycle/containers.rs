//! Which containers of a pod are due to start, and whether it is over.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use wheelhouse_base::Timestamp;

use super::memory::Memory;
use crate::observed::{Exit, PodRuntime};

/// Which of a pod's lists a container stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Init,
    Main,
    Ephemeral,
}

/// An init container that goes on running beside the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The container of that name in any list, an ephemeral one in the shape of the others.
pub fn find(spec: &PodSpec, name: &str) -> Option<(Container, Role)> {
    all_containers(spec).find(|(container, _)| container.name == name)
}

pub fn all_containers(spec: &PodSpec) -> impl Iterator<Item = (Container, Role)> + '_ {
    let init = spec.init_containers.iter().flatten().map(|container| (container.clone(), Role::Init));
    let main = spec.containers.iter().map(|container| (container.clone(), Role::Main));
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|container| (as_container(container), Role::Ephemeral));
    init.chain(main).chain(ephemeral)
}

fn as_container(ephemeral: &k8s_openapi::api::core::v1::EphemeralContainer) -> Container {
    let e = ephemeral.clone();
    Container {
        name: e.name,
        image: e.image,
        command: e.command,
        args: e.args,
        working_dir: e.working_dir,
        env: e.env,
        env_from: e.env_from,
        volume_mounts: e.volume_mounts,
        volume_devices: e.volume_devices,
        image_pull_policy: e.image_pull_policy,
        security_context: e.security_context,
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        tty: e.tty,
        termination_message_path: e.termination_message_path,
        termination_message_policy: e.termination_message_policy,
        ..Container::default()
    }
}

/// How far a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// An init container is still due.
    Initializing,
    /// An init container failed and may not run again.
    InitFailed,
    Running,
    /// Every main container ended and none may run again.
    Over,
}

impl Progress {
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Progress::InitFailed | Progress::Over)
    }
}

/// Whether a container that ended like this is started again.
pub(super) fn restarts(spec: &PodSpec, container: &Container, role: Role, exit: &Exit) -> bool {
    let ruled = container.restart_policy_rules.iter().flatten().find(|rule| {
        let Some(codes) = &rule.exit_codes else { return false };
        let named = codes.values.iter().flatten().any(|code| *code == exit.exit_code);
        if codes.operator == "NotIn" { !named } else { named }
    });
    if ruled.is_some_and(|rule| rule.action == "Restart") {
        return true;
    }
    let policy = container.restart_policy.as_deref().or(spec.restart_policy.as_deref()).unwrap_or("Always");
    match (role, policy) {
        (Role::Ephemeral, _) | (_, "Never") => false,
        (Role::Init, "Always") if is_sidecar(container) => true,
        // An init container that succeeded is through, whatever the policy.
        (Role::Init, _) | (_, "OnFailure") => exit.exit_code != 0,
        _ => true,
    }
}

pub(super) fn progress(spec: &PodSpec, runtime: &PodRuntime) -> Progress {
    let started_main = spec.containers.iter().any(|container| runtime.latest(&container.name).is_some());
    if !started_main {
        for container in spec.init_containers.iter().flatten().filter(|container| !is_sidecar(container)) {
            match runtime.latest(&container.name).map(|latest| latest.exit()) {
                Some(Some(exit)) if exit.exit_code == 0 => {}
                Some(Some(exit)) if !restarts(spec, container, Role::Init, exit) => return Progress::InitFailed,
                _ => return Progress::Initializing,
            }
        }
        return Progress::Running;
    }
    let over = spec.containers.iter().all(|container| {
        let exit = runtime.latest(&container.name).and_then(|latest| latest.exit());
        exit.is_some_and(|exit| !restarts(spec, container, Role::Main, exit))
    });
    if over { Progress::Over } else { Progress::Running }
}

/// A container to start.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    pub(super) name: String,
    pub(super) attempt: u32,
    /// When the one before it ended, for the back-off.
    pub(super) failed_at: Option<Timestamp>,
}

/// Containers that should run and do not, in the order in which they may start.
pub(super) fn due(spec: &PodSpec, runtime: &PodRuntime, memory: &Memory) -> Vec<Start> {
    let mut starts = Vec::new();
    let started_main = spec.containers.iter().any(|container| runtime.latest(&container.name).is_some());
    for container in spec.init_containers.iter().flatten() {
        let latest = runtime.latest(&container.name);
        if is_sidecar(container) {
            match latest {
                Some(latest) if latest.is_running() => {
                    if !started_main && !memory.is_started(container, &latest.id) {
                        return starts;
                    }
                    continue;
                }
                Some(latest) if latest.is_alive() => return starts,
                _ => starts.push(start(container, latest)),
            }
            if !started_main {
                return starts;
            }
            continue;
        }
        if started_main {
            continue;
        }
        match latest {
            Some(latest) if latest.is_alive() => return starts,
            Some(latest) if latest.exit().is_some_and(|exit| exit.exit_code == 0) => {}
            _ => {
                starts.push(start(container, latest));
                return starts;
            }
        }
    }
    for container in &spec.containers {
        match runtime.latest(&container.name) {
            Some(latest) if latest.is_alive() => {}
            Some(latest) if latest.exit().is_some_and(|exit| !restarts(spec, container, Role::Main, exit)) => {}
            latest => starts.push(start(container, latest)),
        }
    }
    for container in spec.ephemeral_containers.iter().flatten() {
        if runtime.latest(&container.name).is_none() {
            starts.push(Start { name: container.name.clone(), attempt: 0, failed_at: None });
        }
    }
    starts
}

fn start(container: &Container, latest: Option<&crate::observed::Container>) -> Start {
    let failed_at = latest.and_then(|latest| latest.exit()).map(|exit| exit.finished_at);
    Start { name: container.name.clone(), attempt: latest.map_or(0, |latest| latest.attempt + 1), failed_at }
}
