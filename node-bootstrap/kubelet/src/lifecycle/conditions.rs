//! The conditions of a pod that its node sets.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodSpec, PodStatus};
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::time::api_time;

use super::is_sidecar;
use crate::observed::PodRuntime;

/// A condition to be: type, whether it holds, reason and message if it does not.
struct Wanted {
    kind: &'static str,
    holds: bool,
    reason: String,
    message: String,
}

fn wanted(kind: &'static str, unmet: Option<(&str, String)>) -> Wanted {
    match unmet {
        None => Wanted { kind, holds: true, reason: String::new(), message: String::new() },
        Some((reason, message)) => Wanted { kind, holds: false, reason: reason.to_owned(), message },
    }
}

/// The node's own conditions, with transition times kept where nothing changed, then those that others set.
pub(super) fn of(pod: &Pod, spec: &PodSpec, status: &PodStatus, runtime: &PodRuntime, now: Timestamp) -> Vec<PodCondition> {
    let old = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ours = [
        wanted("PodReadyToStartContainers", runtime.ready_sandbox().is_none().then(|| ("", String::new()))),
        wanted("Initialized", initialized(spec, status)),
        wanted("Ready", ready(spec, status, old)),
        wanted("ContainersReady", containers_ready(spec, status)),
        wanted("PodScheduled", None),
    ];
    let mut conditions: Vec<PodCondition> = ours.into_iter().map(|wanted| condition(wanted, old, pod.metadata.generation, now)).collect();
    let others: Vec<PodCondition> = old.iter().filter(|c| !conditions.iter().any(|own| own.type_ == c.type_)).cloned().collect();
    conditions.extend(others);
    conditions
}

fn condition(wanted: Wanted, old: &[PodCondition], generation: Option<i64>, now: Timestamp) -> PodCondition {
    let before = old.iter().find(|condition| condition.type_ == wanted.kind);
    let status = if wanted.holds { "True" } else { "False" };
    let text = |text: String| (!text.is_empty()).then_some(text);
    let since = before.filter(|before| before.status == status).and_then(|before| before.last_transition_time.clone());
    PodCondition {
        type_: wanted.kind.to_owned(),
        status: status.to_owned(),
        reason: text(wanted.reason),
        message: text(wanted.message),
        last_transition_time: since.or_else(|| Some(api_time(now))),
        last_probe_time: None,
        observed_generation: generation,
    }
}

fn initialized(spec: &PodSpec, status: &PodStatus) -> Option<(&'static str, String)> {
    let statuses = status.init_container_statuses.as_deref().unwrap_or_default();
    let started_main = status.container_statuses.iter().flatten().any(|main| main.container_id.is_some());
    let incomplete = spec.init_containers.iter().flatten().filter(|container| {
        let own = statuses.iter().find(|status| status.name == container.name);
        let done = if is_sidecar(container) { own.and_then(|s| s.started).unwrap_or(false) } else { own.is_some_and(|s| s.ready) };
        !done && !started_main
    });
    let names: Vec<&str> = incomplete.map(|container| container.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    Some(("ContainersNotInitialized", format!("containers with incomplete status: [{}]", names.join(" "))))
}

fn containers_ready(spec: &PodSpec, status: &PodStatus) -> Option<(&'static str, String)> {
    match status.phase.as_deref() {
        Some("Succeeded") => return Some(("PodCompleted", String::new())),
        Some("Failed") => return Some(("PodFailed", String::new())),
        _ => {}
    }
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container)).map(|container| &container.name);
    let names: Vec<&String> = sidecars.chain(spec.containers.iter().map(|container| &container.name)).collect();
    let statuses: Vec<&ContainerStatus> = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten()).collect();
    let unready: Vec<&str> =
        names.into_iter().filter(|name| !statuses.iter().any(|status| status.name == **name && status.ready)).map(String::as_str).collect();
    if unready.is_empty() {
        return None;
    }
    Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))))
}

/// Ready containers, and every readiness gate that the spec names holds.
fn ready(spec: &PodSpec, status: &PodStatus, old: &[PodCondition]) -> Option<(&'static str, String)> {
    if let Some(unready) = containers_ready(spec, status) {
        return Some(unready);
    }
    let gates = spec.readiness_gates.iter().flatten();
    let mut unmet = Vec::new();
    for gate in gates {
        match old.iter().find(|condition| condition.type_ == gate.condition_type) {
            None => unmet.push(format!("corresponding condition of pod readiness gate \"{}\" does not exist.", gate.condition_type)),
            Some(condition) if condition.status != "True" => {
                unmet.push(format!("the status of pod readiness gate \"{}\" is not \"True\", but {}", gate.condition_type, condition.status));
            }
            Some(_) => {}
        }
    }
    (!unmet.is_empty()).then(|| ("ReadinessGatesNotReady", unmet.join(", ")))
}
