//! A pod's status as its node sees it.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodIP, PodSpec,
    PodStatus,
};
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::time::api_time;

use super::containers::{Role, all_containers, progress, restarts};
use super::memory::{ERROR_SHOWN, Memory, Operation, Why};
use super::{Progress, Stage, conditions};
use crate::observed::{self, Exit, PodRuntime, State};

/// Prefix of container ids in the API; the runtime's name.
pub const ID_SCHEME: &str = "containerd://";

/// What the status says beside the runtime's facts.
pub struct Surroundings<'a> {
    pub host_ips: &'a [IpAddr],
    pub now: Timestamp,
    pub stage: Stage,
}

/// The whole status. Conditions that are others' (gates, disruption) are kept from the pod's own.
pub fn of(pod: &Pod, runtime: &PodRuntime, memory: &Memory, around: &Surroundings<'_>) -> PodStatus {
    let Some(spec) = &pod.spec else { return PodStatus::default() };
    let old = pod.status.clone().unwrap_or_default();
    let view = View { pod, spec, runtime, memory, now: around.now, ended: around.stage == Stage::Ended };
    let list = |role: Role| {
        let all: Vec<ContainerStatus> =
            all_containers(spec).filter(|(_, r)| *r == role).map(|(container, _)| view.container(&container, role)).collect();
        (!all.is_empty()).then_some(all)
    };
    let (main, init, ephemeral) = (list(Role::Main).unwrap_or_default(), list(Role::Init), list(Role::Ephemeral));
    let (reason, message) = match memory.ending.as_ref().map(|ending| &ending.why) {
        Some(Why::Failed { reason, message }) => (Some(reason.clone()), Some(message.clone())),
        _ => (old.reason.clone(), old.message.clone()),
    };
    let (reason, message) = match view.deadline() {
        true => (Some("DeadlineExceeded".to_owned()), Some("Pod was active on the node longer than the specified deadline".to_owned())),
        false => (reason, message),
    };
    let phase = view.phase(&main, old.phase.as_deref(), reason.is_some() && (memory.ending.is_some() || view.deadline()));
    let ips: Vec<String> = match spec.host_network {
        Some(true) => around.host_ips.iter().map(ToString::to_string).collect(),
        _ => runtime.sandboxes.first().iter().flat_map(|sandbox| &sandbox.ips).map(ToString::to_string).collect(),
    };
    let host: Vec<HostIP> = around.host_ips.iter().map(|ip| HostIP { ip: ip.to_string() }).collect();
    let mut status = PodStatus {
        observed_generation: pod.metadata.generation,
        qos_class: Some(wheelhouse_kinds::core::pod::qos::qos_class(spec).to_owned()),
        start_time: old.start_time.clone().or_else(|| Some(api_time(memory.first_seen))),
        host_ip: host.first().map(|host| host.ip.clone()),
        host_ips: (!host.is_empty()).then_some(host),
        pod_ip: ips.first().cloned().or_else(|| old.pod_ip.clone()),
        pod_ips: if ips.is_empty() { old.pod_ips.clone() } else { Some(ips.into_iter().map(|ip| PodIP { ip }).collect()) },
        container_statuses: Some(main),
        init_container_statuses: init,
        ephemeral_container_statuses: ephemeral,
        reason,
        message,
        phase: Some(phase.to_owned()),
        ..PodStatus::default()
    };
    status.conditions = Some(conditions::of(pod, spec, &status, runtime, around.now));
    status
}

struct View<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    runtime: &'a PodRuntime,
    memory: &'a Memory,
    now: Timestamp,
    ended: bool,
}

impl View<'_> {
    fn deadline(&self) -> bool {
        let Some(seconds) = self.spec.active_deadline_seconds else { return false };
        let started = self.pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let started = started.map_or(self.memory.first_seen, wheelhouse_kinds::time::timestamp);
        self.now >= started.plus(super::seconds_of(seconds))
    }

    fn container(&self, container: &Container, role: Role) -> ContainerStatus {
        let latest = self.runtime.latest(&container.name);
        let previous = self.runtime.of_name(&container.name).nth(1);
        let (state, last) = match latest {
            None => (self.waiting(container, None), None),
            Some(latest) => match &latest.state {
                State::Created => (waiting("ContainerCreating", ""), previous.and_then(terminated)),
                State::Running { started_at } => {
                    let running = ContainerStateRunning { started_at: Some(api_time(*started_at)) };
                    (ContainerState { running: Some(running), ..ContainerState::default() }, previous.and_then(terminated))
                }
                State::Exited(exit) if self.starts_again(container, role, exit) => {
                    let shown = self.waiting(container, Some(exit));
                    match shown.waiting {
                        // Between an exit and its restart: still the exit.
                        Some(ContainerStateWaiting { reason: None, .. }) | None => {
                            (terminated(latest).unwrap_or_default(), previous.and_then(terminated))
                        }
                        Some(_) => (shown, terminated(latest)),
                    }
                }
                State::Exited(_) => (terminated(latest).unwrap_or_default(), previous.and_then(terminated)),
                State::Unknown => (waiting("ContainerStatusUnknown", "The container could not be located"), previous.and_then(terminated)),
            },
        };
        let running = latest.is_some_and(observed::Container::is_running);
        let started = running && latest.is_some_and(|latest| self.memory.is_started(container, &latest.id));
        let ready = match role {
            Role::Init if !super::is_sidecar(container) => latest.and_then(|latest| latest.exit()).is_some_and(|exit| exit.exit_code == 0),
            Role::Ephemeral => false,
            _ => running && latest.is_some_and(|latest| self.memory.is_ready(container, &latest.id)),
        };
        ContainerStatus {
            name: container.name.clone(),
            image: latest.map(|latest| latest.image.clone()).filter(|i| !i.is_empty()).or_else(|| container.image.clone()).unwrap_or_default(),
            image_id: latest.map(|latest| latest.image_id.clone()).unwrap_or_default(),
            container_id: latest.map(|latest| format!("{ID_SCHEME}{}", latest.id)),
            restart_count: latest.map_or(0, |latest| i32::try_from(latest.attempt).unwrap_or(i32::MAX)),
            state: Some(state),
            last_state: Some(last.unwrap_or_default()),
            ready,
            started: (role != Role::Ephemeral).then_some(started),
            allocated_resources: container.resources.as_ref().and_then(|r| r.requests.clone()).filter(|_| running),
            resources: container.resources.clone().filter(|_| running),
            ..ContainerStatus::default()
        }
    }

    fn starts_again(&self, container: &Container, role: Role, exit: &Exit) -> bool {
        let ending = self.ended || self.memory.ending.is_some() || self.pod.metadata.deletion_timestamp.is_some() || self.deadline();
        !ending && !progress(self.spec, self.runtime).is_over() && restarts(self.spec, container, role, exit)
    }

    /// Why a container does not run; without a reason if it is about to.
    fn waiting(&self, container: &Container, exit: Option<&Exit>) -> ContainerState {
        let name = &container.name;
        if let Some((_, delay)) = self.memory.restart_wait(name, exit.map(|exit| exit.finished_at), self.now) {
            let meta = &self.pod.metadata;
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let back_off = if delay.as_secs() >= 60 && delay.as_secs().is_multiple_of(60) {
                format!("{}m0s", delay.as_secs() / 60)
            } else if delay.as_secs() >= 60 {
                format!("{}m{}s", delay.as_secs() / 60, delay.as_secs() % 60)
            } else {
                format!("{}s", delay.as_secs())
            };
            let pod = format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid));
            return waiting("CrashLoopBackOff", &format!("back-off {back_off} restarting failed container={name} pod={pod}"));
        }
        if let Some(failed) = self.memory.failure(&Operation::Container(name.clone())) {
            let image = container.image.as_deref().unwrap_or_default();
            return match failed.reason.as_str() {
                "ErrImagePull" if failed.at.plus(ERROR_SHOWN) <= self.now => {
                    waiting("ImagePullBackOff", &format!("Back-off pulling image \"{image}\": ErrImagePull: {}", failed.message))
                }
                reason => waiting(reason, &failed.message),
            };
        }
        match exit {
            Some(_) => waiting("", ""),
            None if self.ended => terminated_unknown(),
            None if self.spec.init_containers.as_ref().is_some_and(|list| !list.is_empty()) => waiting("PodInitializing", ""),
            None => waiting("ContainerCreating", ""),
        }
    }

    /// Upstream's `getPhase`.
    fn phase(&self, main: &[ContainerStatus], old: Option<&str>, failed: bool) -> &'static str {
        // A phase that is final stays.
        match old {
            Some("Succeeded") => return "Succeeded",
            Some("Failed") => return "Failed",
            _ if failed => return "Failed",
            _ => {}
        }
        let progress = progress(self.spec, self.runtime);
        match progress {
            Progress::InitFailed => return "Failed",
            Progress::Initializing if self.ended => return "Failed",
            Progress::Initializing => return "Pending",
            Progress::Running | Progress::Over => {}
        }
        let state = |status: &ContainerStatus| status.state.clone().unwrap_or_default();
        let exited_before = |status: &ContainerStatus| status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
        let running = main.iter().filter(|status| state(status).running.is_some()).count();
        let waiting = main.iter().filter(|status| state(status).waiting.is_some() && !exited_before(status)).count();
        let succeeded = main.iter().filter(|status| state(status).terminated.is_some_and(|t| t.exit_code == 0)).count();
        let over = progress == Progress::Over || self.ended;
        match (running, waiting) {
            _ if over && running == 0 => {
                if succeeded == main.len() {
                    "Succeeded"
                } else {
                    "Failed"
                }
            }
            (_, 1..) => "Pending",
            _ => "Running",
        }
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ContainerState { waiting: Some(ContainerStateWaiting { reason: text(reason), message: text(message) }), ..ContainerState::default() }
}

/// A container of an ended pod that never came to be, or of which nothing is left.
fn terminated_unknown() -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".into()),
        message: Some("The container could not be located when the pod was terminated".into()),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

fn terminated(container: &observed::Container) -> Option<ContainerState> {
    let exit = container.exit()?;
    let terminated = ContainerStateTerminated {
        container_id: Some(format!("{ID_SCHEME}{}", container.id)),
        exit_code: exit.exit_code,
        reason: Some(exit.reason.clone()).filter(|reason| !reason.is_empty()),
        message: Some(exit.message.clone()).filter(|message| !message.is_empty()),
        started_at: Some(api_time(exit.started_at.unwrap_or(Timestamp::from_secs(0)))),
        finished_at: Some(api_time(exit.finished_at)),
        signal: None,
    };
    Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() })
}
