//! The life of a pod on its node, as a pure machine.
//!
//! ```text
//! (pod, what the runtime says, what is remembered, now) -- step --> actions, when to look again, stage
//! an action's outcome -- Memory::note --> memory                     (the shell carries actions out, several at once)
//! (the same inputs) -- status::of --> PodStatus
//! ```
//!
//! A step is told the whole state and never an event, so a lost notification delays and breaks nothing. It emits an action as long as the action is due
//! and not under way; carrying one out twice must be harmless. The memory holds only what neither the API nor the runtime can say: failures and
//! their back-off, probes' answers, what is under way. When it is lost with the process, the runtime's containers and the pod's spec rebuild the rest.
//!
//! A pod's stages: its volumes are prepared; a sandbox is made; init containers run one by one (sidecars stay); the other containers run and are
//! restarted as the policy says. A pod ends by itself when nothing is left to run, or is ended from outside (deleted, evicted, over its deadline): then
//! containers are stopped within the grace period, sidecars last; the sandbox goes; volumes go.

pub mod backoff;
mod conditions;
mod containers;
mod memory;
pub mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::time::timestamp;

use containers::Progress;
pub use containers::{Role, all_containers, find, is_sidecar};
pub use memory::{Ending, Failed, Memory, Operation, Outcome, ProbeFacts, Why};

use crate::observed::PodRuntime;

/// Upstream's default, for pods that an old API server left without one.
const DEFAULT_GRACE: i64 = 30;

/// What to do for a pod. Each is an [`Operation`] while it is under way.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Directories, cgroup and volumes.
    Prepare,
    CreateSandbox {
        attempt: u32,
    },
    /// Pull what is missing, make the container, start it, run its post-start hook.
    StartContainer {
        name: String,
        attempt: u32,
        sandbox_id: String,
    },
    /// The pre-stop hook and SIGTERM share `grace`; SIGKILL after it.
    StopContainer {
        id: String,
        name: String,
        grace: Duration,
        why: Why,
    },
    /// A container that ended and that nobody will look at again.
    RemoveContainer {
        id: String,
    },
    /// Network and all that lives in the sandbox.
    StopSandbox {
        id: String,
    },
    RemoveSandbox {
        id: String,
    },
    /// Volumes and cgroup; logs stay.
    CleanUp,
}

/// Where a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its containers run, or shall.
    Alive,
    /// Something of it is still being stopped.
    Ending,
    /// Nothing runs, nothing is mounted, nothing will start again.
    Ended,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    /// When to step again even if nothing changes.
    pub wake_at: Option<Timestamp>,
    pub stage: Stage,
}

/// What is due for the pod now.
pub fn step(pod: &Pod, runtime: &PodRuntime, memory: &Memory, now: Timestamp) -> Decision {
    let Some(spec) = &pod.spec else { return Decision { actions: Vec::new(), wake_at: None, stage: Stage::Ended } };
    let mut step = Step { pod, spec, runtime, memory, now, actions: Vec::new(), wake_at: None };
    let ending = memory.ending.clone().or_else(|| step.deadline());
    let stage = match ending {
        Some(ending) => step.end(ending.grace(pod), ending.since, &ending.why),
        None => step.live(),
    };
    step.collect(stage);
    let Step { mut actions, wake_at, .. } = step;
    actions.retain(|action| !memory.is_under_way(action, now));
    Decision { actions, wake_at, stage }
}

struct Step<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    runtime: &'a PodRuntime,
    memory: &'a Memory,
    now: Timestamp,
    actions: Vec<Action>,
    wake_at: Option<Timestamp>,
}

impl Step<'_> {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// `activeDeadlineSeconds` counts from when this kubelet first saw the pod.
    fn deadline(&mut self) -> Option<Ending> {
        let seconds = u64::try_from(self.spec.active_deadline_seconds?).ok()?;
        let started = self.pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(self.memory.first_seen, timestamp);
        let until = started.plus(Duration::from_secs(seconds));
        if until > self.now {
            self.wake(until);
            return None;
        }
        Some(Ending { since: until, why: Why::DeadlineExceeded, grace: None })
    }

    fn live(&mut self) -> Stage {
        let progress = containers::progress(self.spec, self.runtime);
        if progress.is_over() {
            // Main containers are through: sidecars go, then the rest.
            return self.end(grace_of(self.pod), self.memory.first_seen, &Why::Completed);
        }
        self.stop_stale();
        if !self.memory.prepared {
            self.retry(Action::Prepare, self.memory.failure(&Operation::Prepare));
            return Stage::Alive;
        }
        let Some(sandbox) = self.runtime.ready_sandbox().map(|sandbox| sandbox.id.clone()) else {
            self.replace_sandbox();
            return Stage::Alive;
        };
        self.start_containers(&sandbox);
        Stage::Alive
    }

    /// A sandbox is replaced once nothing of the old one is alive.
    fn replace_sandbox(&mut self) {
        let mut clear = true;
        for container in self.runtime.containers.iter().filter(|container| container.is_alive()) {
            clear = false;
            self.actions.push(stop(container, grace_of(self.pod), Why::SandboxChanged));
        }
        if let Some(old) = self.runtime.sandboxes.first().filter(|_| clear) {
            let unstopped = !self.memory.stopped_sandboxes.contains(&old.id);
            if unstopped {
                self.actions.push(Action::StopSandbox { id: old.id.clone() });
                clear = false;
            }
        }
        if clear {
            let attempt = self.runtime.sandboxes.iter().map(|sandbox| sandbox.attempt + 1).max().unwrap_or(0);
            self.retry(Action::CreateSandbox { attempt }, self.memory.failure(&Operation::Sandbox));
        }
    }

    /// Containers whose spec changed under them or whose probes say they are dead, and any that the spec no longer names.
    fn stop_stale(&mut self) {
        for (name, container) in self.runtime.all_latest() {
            if !container.is_running() {
                continue;
            }
            let Some((wanted, _)) = find(self.spec, name) else { continue };
            let failed = self.memory.probes.get(&container.id).and_then(|facts| facts.failed.clone());
            if let Some((probe, seconds)) = failed {
                let grace = seconds.map_or_else(|| spec_grace(self.spec), seconds_of);
                self.actions.push(stop(container, grace, Why::ProbeFailed(probe)));
            } else if container.hash != crate::spec::container::hash(&wanted) {
                self.actions.push(stop(container, spec_grace(self.spec), Why::SpecChanged));
            }
        }
    }

    fn start_containers(&mut self, sandbox: &str) {
        for start in containers::due(self.spec, self.runtime, self.memory) {
            let operation = Operation::Container(start.name.clone());
            if let Some((until, _)) = self.memory.restart_wait(&start.name, start.failed_at, self.now) {
                self.wake(until);
                continue;
            }
            let action = Action::StartContainer { name: start.name, attempt: start.attempt, sandbox_id: sandbox.to_owned() };
            self.retry(action, self.memory.failure(&operation));
        }
    }

    /// Emits an action unless it failed a moment ago.
    fn retry(&mut self, action: Action, failed: Option<&Failed>) {
        match failed.filter(|failed| failed.retry_at > self.now) {
            Some(failed) => {
                let at = failed.retry_at;
                // The shown reason changes before the next attempt.
                let shown = failed.at.plus(memory::ERROR_SHOWN);
                self.wake(if shown > self.now { shown.min(at) } else { at });
            }
            None => self.actions.push(action),
        }
    }

    /// Stops everything: containers, sidecars once the others are gone, then the sandbox, then volumes.
    fn end(&mut self, grace: Duration, since: Timestamp, why: &Why) -> Stage {
        let alive = || self.runtime.containers.iter().filter(|container| container.is_alive());
        let sidecar = |name: &str| self.spec.init_containers.iter().flatten().any(|c| c.name == name && is_sidecar(c));
        // The grace period is one for all: what the main containers used up, sidecars do not get again.
        let left = if *why == Why::Completed { grace } else { grace.saturating_sub(self.now.since(since)) };
        let mut stops = Vec::new();
        for container in alive().filter(|container| !sidecar(&container.name)) {
            stops.push(stop(container, left, why.clone()));
        }
        if stops.is_empty() {
            // In reverse order of their start, one after the other, as far as the grace period lasts.
            let names: Vec<&str> = self.spec.init_containers.iter().flatten().filter(|c| is_sidecar(c)).map(|c| c.name.as_str()).collect();
            let last = names.iter().rev().find_map(|name| alive().find(|container| container.name == *name));
            stops.extend(last.map(|container| stop(container, left, why.clone())));
        }
        // Whatever the spec does not name, or a second one of a name.
        let all_gone = alive().next().is_none() && !self.memory.is_starting();
        self.actions.extend(stops);
        if !all_gone {
            return Stage::Ending;
        }
        let open: Vec<&str> =
            self.runtime.sandboxes.iter().filter(|s| s.ready || !self.memory.stopped_sandboxes.contains(&s.id)).map(|s| s.id.as_str()).collect();
        if !open.is_empty() {
            self.actions.extend(open.iter().map(|id| Action::StopSandbox { id: (*id).to_owned() }));
            return Stage::Ending;
        }
        if !self.memory.cleaned {
            self.retry(Action::CleanUp, self.memory.failure(&Operation::CleanUp));
            return Stage::Ending;
        }
        Stage::Ended
    }

    /// Keeps of each name the newest container and, for `logs --previous`, the one before; of sandboxes those that something still lies in.
    fn collect(&mut self, stage: Stage) {
        let mut name = "";
        let mut seen = 0;
        for container in &self.runtime.containers {
            seen = if container.name == name { seen + 1 } else { 1 };
            name = &container.name;
            if seen > 2 && !container.is_alive() {
                self.actions.push(Action::RemoveContainer { id: container.id.clone() });
            }
        }
        if stage == Stage::Alive {
            for sandbox in self.runtime.sandboxes.iter().skip(1).filter(|sandbox| !sandbox.ready) {
                if !self.runtime.containers.iter().any(|container| container.sandbox_id == sandbox.id) {
                    self.actions.push(Action::RemoveSandbox { id: sandbox.id.clone() });
                }
            }
        }
    }
}

fn stop(container: &crate::observed::Container, grace: Duration, why: Why) -> Action {
    Action::StopContainer { id: container.id.clone(), name: container.name.clone(), grace, why }
}

fn seconds_of(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn spec_grace(spec: &PodSpec) -> Duration {
    seconds_of(spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE))
}

/// What a deletion asked for, or else what the spec says.
fn grace_of(pod: &Pod) -> Duration {
    let asked = pod.metadata.deletion_grace_period_seconds;
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    seconds_of(asked.or(own).unwrap_or(DEFAULT_GRACE))
}
