//! What is remembered of a pod that neither the API nor the runtime can say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use wheelhouse_base::Timestamp;

use super::backoff::Backoff;
use super::{Action, grace_of};

/// After a failure that is not a pull's: upstream's `backOffPeriod`.
const RETRY: Duration = Duration::from_secs(10);
/// How long a pull's own error is shown before the status says that it is being backed off from.
pub(super) const ERROR_SHOWN: Duration = Duration::from_secs(2);
/// A stop is asked for again only if it shall be over this much earlier.
const SOONER: Duration = Duration::from_secs(1);

/// Something that is carried out at most once at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Prepare,
    /// Making one.
    Sandbox,
    /// Starting the container of this name.
    Container(String),
    /// By id, of a container or a sandbox.
    Stop(String),
    Remove(String),
    CleanUp,
}

/// Why something is stopped; also the reason and message that the user reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    Deleted,
    /// Reason and message of the pod's status, as an eviction or a refusal gives them.
    Failed {
        reason: String,
        message: String,
    },
    DeadlineExceeded,
    Completed,
    /// `Liveness` or `Startup`.
    ProbeFailed(&'static str),
    SpecChanged,
    SandboxChanged,
}

/// A pod that is ended from outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    pub since: Timestamp,
    pub why: Why,
    /// Instead of the pod's own.
    pub grace: Option<Duration>,
}

impl Ending {
    /// The shorter of what the pod and the ending say: a later deletion may only hurry.
    pub(super) fn grace(&self, pod: &Pod) -> Duration {
        let own = grace_of(pod);
        self.grace.map_or(own, |grace| grace.min(own))
    }
}

/// The last attempt at an operation failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    /// `ErrImagePull`, `CreateContainerError` …
    pub reason: String,
    pub message: String,
    pub at: Timestamp,
    pub retry_at: Timestamp,
}

/// What probes found about one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeFacts {
    pub ready: bool,
    pub started: bool,
    /// Which probe condemned it, and the grace period that the probe sets.
    pub failed: Option<(&'static str, Option<i64>)>,
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done,
    Failed { reason: String, message: String },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    pub first_seen: Timestamp,
    pub prepared: bool,
    pub cleaned: bool,
    pub ending: Option<Ending>,
    /// Set by the shell when it begins one; stops carry the time by which they are over.
    under_way: BTreeMap<Operation, Timestamp>,
    failures: BTreeMap<Operation, Failed>,
    /// Of restarts, by container; of pulls, by `image:` and container.
    backoffs: BTreeMap<String, Backoff>,
    /// By container id.
    pub probes: BTreeMap<String, ProbeFacts>,
    pub stopped_sandboxes: BTreeSet<String>,
    /// Why this process stopped a container, by id.
    pub stop_reasons: BTreeMap<String, Why>,
}

impl Memory {
    pub fn new(now: Timestamp) -> Self {
        Self { first_seen: now, ..Self::default() }
    }

    pub fn operation(action: &Action) -> Operation {
        match action {
            Action::Prepare => Operation::Prepare,
            Action::CreateSandbox { .. } => Operation::Sandbox,
            Action::StartContainer { name, .. } => Operation::Container(name.clone()),
            Action::StopContainer { id, .. } | Action::StopSandbox { id } => Operation::Stop(id.clone()),
            Action::RemoveContainer { id } | Action::RemoveSandbox { id } => Operation::Remove(id.clone()),
            Action::CleanUp => Operation::CleanUp,
        }
    }

    pub(super) fn is_under_way(&self, action: &Action, now: Timestamp) -> bool {
        let Some(until) = self.under_way.get(&Self::operation(action)) else { return false };
        match action {
            Action::StopContainer { grace, .. } => now.plus(*grace).plus(SOONER) >= *until,
            _ => true,
        }
    }

    /// Whether any container or sandbox is being made: it may appear after the runtime was last looked at.
    pub(super) fn is_starting(&self) -> bool {
        self.under_way.keys().any(|operation| matches!(operation, Operation::Sandbox | Operation::Container(_) | Operation::Prepare))
    }

    /// The action is being carried out from now on. A start counts against the restarts' back-off.
    pub fn begin(&mut self, action: &Action, failed_at: Option<Timestamp>, now: Timestamp) {
        let until = match action {
            Action::StopContainer { id, grace, why, .. } => {
                self.stop_reasons.entry(id.clone()).or_insert_with(|| why.clone());
                now.plus(*grace)
            }
            _ => now,
        };
        if let (Action::StartContainer { name, .. }, Some(failed_at)) = (action, failed_at) {
            let next = Backoff::next(self.backoffs.get(name), failed_at, now);
            self.backoffs.insert(name.clone(), next);
        }
        self.under_way.insert(Self::operation(action), until);
    }

    /// The action is over. The caller looks at the runtime again before the next step.
    pub fn note(&mut self, action: &Action, outcome: Outcome, now: Timestamp) {
        let operation = Self::operation(action);
        self.under_way.remove(&operation);
        match outcome {
            Outcome::Done => {
                self.failures.remove(&operation);
                match action {
                    Action::Prepare => (self.prepared, self.cleaned) = (true, false),
                    Action::CleanUp => (self.prepared, self.cleaned) = (false, true),
                    Action::StopSandbox { id } => drop(self.stopped_sandboxes.insert(id.clone())),
                    Action::StartContainer { name, .. } => drop(self.backoffs.remove(&pull_key(name))),
                    _ => {}
                }
            }
            Outcome::Failed { reason, message } => {
                let retry_at = match (&operation, reason.as_str()) {
                    (Operation::Container(name), "ErrImagePull" | "RegistryUnavailable" | "SignatureValidationFailed") => {
                        let next = Backoff::next(self.backoffs.get(&pull_key(name)), now, now);
                        self.backoffs.insert(pull_key(name), next);
                        Backoff::remaining(Some(&next), now, now).map_or(now.plus(RETRY), |(_, until)| until)
                    }
                    (Operation::Stop(_) | Operation::Remove(_), _) => now,
                    _ => now.plus(RETRY),
                };
                self.failures.insert(operation, Failed { reason, message, at: now, retry_at });
            }
        }
    }

    pub fn failure(&self, operation: &Operation) -> Option<&Failed> {
        self.failures.get(operation)
    }

    /// Until when a restart waits, and how long that is in all.
    pub(super) fn restart_wait(&self, name: &str, failed_at: Option<Timestamp>, now: Timestamp) -> Option<(Timestamp, Duration)> {
        // A restart that is under way has set the delay of the next one already.
        if self.under_way.contains_key(&Operation::Container(name.to_owned())) {
            return None;
        }
        Backoff::remaining(self.backoffs.get(name), failed_at?, now).map(|(delay, until)| (until, delay))
    }

    pub(super) fn is_started(&self, container: &Container, id: &str) -> bool {
        container.startup_probe.is_none() || self.probes.get(id).is_some_and(|facts| facts.started)
    }

    pub(super) fn is_ready(&self, container: &Container, id: &str) -> bool {
        self.is_started(container, id) && (container.readiness_probe.is_none() || self.probes.get(id).is_some_and(|facts| facts.ready))
    }

    /// Forgets what belongs to containers that are no more.
    pub fn forget_gone(&mut self, runtime: &crate::observed::PodRuntime) {
        self.probes.retain(|id, _| runtime.containers.iter().any(|container| container.id == *id));
        self.stop_reasons.retain(|id, _| runtime.containers.iter().any(|container| container.id == *id));
        self.stopped_sandboxes.retain(|id| runtime.sandboxes.iter().any(|sandbox| sandbox.id == *id));
    }
}

fn pull_key(name: &str) -> String {
    format!("image:{name}")
}
