//! `kubectl get pods`, and the field selectors.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::validate::containers::is_sidecar;
use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Ready", "How many of its containers are ready."),
    table::text("Status", "What it is doing, or why it is not."),
    table::text("Restarts", "How often its containers were restarted, and when last."),
    table::AGE,
    table::wide("IP", "Its address."),
    table::wide("Node", "Where it runs."),
    table::wide("Nominated Node", "Where it is about to run, once others have made room."),
    table::wide("Readiness Gates", "How many of its readiness gates hold."),
];

/// Whether all its containers are done for good.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().map(|s| text(&s.phase)).unwrap_or_default()
}

pub fn row(pod: &Pod, now: Timestamp) -> Vec<Value> {
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    let summary = Summary::of(pod, status);
    let spec = pod.spec.as_ref();
    let or_none = |value: &str| -> Value { if value.is_empty() { "<none>".into() } else { value.into() } };
    let restarts = match summary.last_restart {
        Some(time) if summary.restarts != 0 => format!("{} ({} ago)", summary.restarts, table::since(Some(time), now)),
        _ => summary.restarts.to_string(),
    };
    vec![
        table::name(&pod.metadata),
        format!("{}/{}", summary.ready, summary.containers).into(),
        summary.reason.into(),
        restarts.into(),
        table::age(&pod.metadata, now),
        or_none(items(&status.pod_ips).first().map(|ip| ip.ip.as_str()).unwrap_or_default()),
        or_none(spec.map(|s| text(&s.node_name)).unwrap_or_default()),
        or_none(text(&status.nominated_node_name)),
        or_none(&readiness_gates(pod, status)),
    ]
}

fn readiness_gates(pod: &Pod, status: &PodStatus) -> String {
    let gates = pod.spec.as_ref().map(|s| items(&s.readiness_gates)).unwrap_or_default();
    if gates.is_empty() {
        return String::new();
    }
    let holds = |gate: &str| items(&status.conditions).iter().find(|c| c.type_ == gate).is_some_and(|c| c.status == "True");
    format!("{}/{}", gates.iter().filter(|g| holds(&g.condition_type)).count(), gates.len())
}

/// What the row says about the containers as a whole.
struct Summary<'a> {
    containers: usize,
    ready: usize,
    reason: String,
    restarts: i32,
    last_restart: Option<&'a Time>,
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Pod, status: &'a PodStatus) -> Self {
        let init_specs = pod.spec.as_ref().map(|s| items(&s.init_containers)).unwrap_or_default();
        let sidecars = init_specs.iter().filter(|c| is_sidecar(c)).count();
        let mut summary = Self {
            containers: pod.spec.as_ref().map_or(0, |s| s.containers.len()) + sidecars,
            ready: 0,
            reason: text(&status.phase).to_owned(),
            restarts: 0,
            last_restart: None,
        };
        let reason = text(&status.reason);
        if !reason.is_empty() {
            summary.reason = reason.to_owned();
        }
        let conditions = items(&status.conditions);
        if conditions.iter().any(|c| c.type_ == "PodScheduled" && text(&c.reason) == "SchedulingGated") {
            summary.reason = "SchedulingGated".to_owned();
        }
        let holds = |condition: &str| conditions.iter().any(|c| c.type_ == condition && c.status == "True");
        let initializing = summary.init_containers(pod, status);
        if !initializing || holds("Initialized") {
            summary.regular_containers(pod, status, holds("Ready"));
        }
        if pod.metadata.deletion_timestamp.is_some() {
            if reason == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if !is_terminal(pod) {
                summary.reason = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Counts the init containers up to the first that is not through; says whether there is one.
    fn init_containers(&mut self, pod: &Pod, status: &'a PodStatus) -> bool {
        let specs = pod.spec.as_ref().map(|s| items(&s.init_containers)).unwrap_or_default();
        for (at, container) in items(&status.init_container_statuses).iter().enumerate() {
            self.restarts += container.restart_count;
            self.saw_restart(container);
            let sidecar = specs.iter().any(|c| c.name == container.name && is_sidecar(c));
            let state = container.state.as_ref();
            let terminated = state.and_then(|s| s.terminated.as_ref());
            let waiting = state.and_then(|s| s.waiting.as_ref()).map(|w| text(&w.reason)).unwrap_or_default();
            match terminated {
                Some(t) if t.exit_code == 0 => continue,
                _ if sidecar && container.started == Some(true) => {
                    self.ready += usize::from(container.ready);
                    continue;
                }
                Some(t) if text(&t.reason).is_empty() => self.reason = format!("Init:{}", how_it_ended(t.signal, t.exit_code)),
                Some(t) => self.reason = format!("Init:{}", text(&t.reason)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => self.reason = format!("Init:{waiting}"),
                None => self.reason = format!("Init:{at}/{}", specs.len()),
            }
            return true;
        }
        false
    }

    fn regular_containers(&mut self, pod: &Pod, status: &'a PodStatus, ready_condition: bool) {
        // Of the init containers only those that go on running still count.
        let specs = pod.spec.as_ref().map(|s| items(&s.init_containers)).unwrap_or_default();
        self.restarts = 0;
        self.last_restart = None;
        for container in items(&status.init_container_statuses) {
            if specs.iter().any(|c| c.name == container.name && is_sidecar(c)) {
                self.restarts += container.restart_count;
                self.saw_restart(container);
            }
        }
        let mut running = false;
        // From the last to the first, so that the first container's reason wins.
        for container in items(&status.container_statuses).iter().rev() {
            self.restarts += container.restart_count;
            self.saw_restart(container);
            let state = container.state.as_ref();
            let waiting = state.and_then(|s| s.waiting.as_ref()).map(|w| text(&w.reason)).unwrap_or_default();
            let terminated = state.and_then(|s| s.terminated.as_ref());
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(t) = terminated {
                self.reason = if text(&t.reason).is_empty() { how_it_ended(t.signal, t.exit_code) } else { text(&t.reason).to_owned() };
            } else if container.ready && state.is_some_and(|s| s.running.is_some()) {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            self.reason = if ready_condition { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn saw_restart(&mut self, container: &'a ContainerStatus) {
        let ended = container.last_state.as_ref().and_then(|s| s.terminated.as_ref()).and_then(|t| t.finished_at.as_ref());
        self.last_restart = self.last_restart.max(ended);
    }
}

fn how_it_ended(signal: Option<i32>, exit_code: i32) -> String {
    match signal.filter(|s| *s != 0) {
        Some(signal) => format!("Signal:{signal}"),
        None => format!("ExitCode:{exit_code}"),
    }
}

pub const SELECTABLE: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

pub fn selectable_fields(pod: &Value) -> Vec<(&'static str, String)> {
    let value = |name: &'static str| match name {
        "spec.hostNetwork" => pod["spec"]["hostNetwork"].as_bool().unwrap_or_default().to_string(),
        // Both mean the first address.
        "status.podIP" | "status.podIPs" => validation::text_at(&pod["status"]["podIPs"][0], "ip"),
        name => validation::text_at(pod, name),
    };
    SELECTABLE.iter().map(|name| (*name, value(name))).collect()
}
