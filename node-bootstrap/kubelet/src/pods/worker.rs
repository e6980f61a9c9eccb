//! One pod's worker: looks, steps, carries out, reports.
//!
//! ```text
//! desired pod, runtime changed, probe's verdict, timer --wake--> look at the runtime -> step -> actions (each its own task) -> status
//! ```
//!
//! Everything that wakes it is a level, not an edge: missing one is made up for by the next. It ends when its pod is gone from the API and from the node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use wheelhouse_base::Timestamp;
use wheelhouse_client::{ClientError, PatchKind};
use wheelhouse_kinds::plan::{DeleteOptions, EventType};

use super::executor::{Executor, pod_ip};
use super::manager::Shared;
use crate::lifecycle::{self, Action, Decision, Ending, Memory, Outcome, ProbeFacts, Stage, Why, status};
use crate::observed::{PodRuntime, State};
use crate::probes::{self, Count, Kind, Target};
use crate::spec::meta;

/// Between looks at a runtime that does not answer, and between writes that fail.
const RETRY: Duration = Duration::from_secs(1);
/// How often files of ConfigMaps, Secrets and tokens are brought up to date; upstream's sync period.
const REFRESH: Duration = Duration::from_secs(60);
/// Verdicts that wait for the worker.
const VERDICTS: usize = 16;
/// The conditions that this node sets; others are left to those who set them.
const OWN_CONDITIONS: &[&str] = &["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// What the manager wants of a worker.
#[derive(Clone, Debug)]
pub(super) struct Desired {
    pub(super) pod: Arc<Pod>,
    /// Its object is gone.
    pub(super) removed: bool,
    /// End it, for another reason than a deletion.
    pub(super) end: Option<(Why, Option<Duration>)>,
}

/// What wakes a worker.
pub(super) struct Signals {
    pub(super) desired: watch::Receiver<Desired>,
    /// The runtime has something new about the pod.
    pub(super) changed: Arc<Notify>,
}

struct Verdict {
    container_id: String,
    kind: Kind,
    good: bool,
}

/// A write to the API that ended.
enum Written {
    Status(Result<PodStatus, ClientError>),
    Deleted(Result<(), ClientError>),
}

pub(super) struct Worker {
    uid: String,
    pod: Pod,
    desired: Desired,
    memory: Memory,
    runtime: PodRuntime,
    /// The runtime was not looked at since something happened.
    stale: bool,
    executor: Arc<Executor>,
    shared: Arc<Shared>,
    operations: JoinSet<(Action, Outcome)>,
    writes: JoinSet<Written>,
    written: Option<PodStatus>,
    /// No write before this.
    write_after: Timestamp,
    prober_tasks: JoinSet<()>,
    probing: BTreeMap<(String, Kind), AbortHandle>,
    verdicts: (mpsc::Sender<Verdict>, mpsc::Receiver<Verdict>),
}

impl Worker {
    pub(super) fn new(desired: Desired, executor: Arc<Executor>, shared: Arc<Shared>) -> Self {
        let pod = Pod::clone(&desired.pod);
        let now = executor.clock.now();
        let mut memory = Memory::new(now);
        // What ended before this process began stays ended.
        if matches!(wheelhouse_kinds::core::pod::state::phase(&pod), "Succeeded" | "Failed") {
            memory.ending = Some(Ending { since: now, why: Why::Completed, grace: None });
        }
        Self {
            uid: meta(&pod.metadata.uid).to_owned(),
            written: pod.status.clone(),
            pod,
            desired,
            memory,
            runtime: PodRuntime::default(),
            stale: true,
            executor,
            shared,
            operations: JoinSet::new(),
            writes: JoinSet::new(),
            write_after: now,
            prober_tasks: JoinSet::new(),
            probing: BTreeMap::new(),
            verdicts: mpsc::channel(VERDICTS),
        }
    }

    pub(super) async fn run(mut self, mut signals: Signals) {
        let mut refresh = tokio::time::interval(REFRESH);
        refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        refresh.tick().await;
        self.adopt();
        loop {
            let mut wake = None;
            if self.stale && !self.look().await {
                wake = Some(self.now().plus(RETRY));
            } else {
                let decision = self.step();
                self.probe();
                self.report(decision.stage);
                if decision.stage == Stage::Ended && self.desired.removed && self.operations.is_empty() {
                    break;
                }
                wake = decision.wake_at.or(wake);
                if self.write_after > self.now() {
                    wake = Some(wake.map_or(self.write_after, |at| at.min(self.write_after)));
                }
            }
            let now = self.now();
            let timer = async {
                match wake {
                    Some(at) => tokio::time::sleep(at.since(now).max(Duration::from_millis(1))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = signals.desired.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.desired = signals.desired.borrow_and_update().clone();
                    self.adopt();
                }
                () = signals.changed.notified() => self.stale = true,
                Some(done) = self.operations.join_next() => {
                    // A task that panicked has logged; the runtime tells what it left.
                    if let Ok((action, outcome)) = done {
                        let now = self.now();
                        self.memory.note(&action, outcome, now);
                    }
                    self.stale = true;
                }
                Some(written) = self.writes.join_next() => self.note_write(written.ok()),
                Some(verdict) = self.verdicts.1.recv() => self.judge(&verdict),
                _ = refresh.tick() => self.refresh(),
                () = timer => {}
            }
        }
        self.prober_tasks.abort_all();
        self.executor.erase(&self.pod, &self.runtime).await;
        self.shared.forget(&self.uid);
    }

    fn now(&self) -> Timestamp {
        self.executor.clock.now()
    }

    /// Takes in what the manager wants. Own conditions are this node's word; the rest of the status that others may write is the API's.
    fn adopt(&mut self) {
        let mut pod = Pod::clone(&self.desired.pod);
        if let Some(own) = self.pod.status.take() {
            let theirs = pod.status.take().and_then(|status| status.conditions).unwrap_or_default();
            let conditions = own.conditions.clone().unwrap_or_default();
            let ours = conditions.into_iter().filter(|condition| OWN_CONDITIONS.contains(&condition.type_.as_str()));
            let others = theirs.into_iter().filter(|condition| !OWN_CONDITIONS.contains(&condition.type_.as_str()));
            pod.status = Some(PodStatus { conditions: Some(ours.chain(others).collect()), ..own });
        }
        self.pod = pod;
        let now = self.now();
        if let Some((why, grace)) = self.desired.end.clone() {
            self.memory.ending.get_or_insert(Ending { since: now, why, grace });
        }
        if self.desired.removed || self.pod.metadata.deletion_timestamp.is_some() {
            self.memory.ending.get_or_insert(Ending { since: now, why: Why::Deleted, grace: None });
        }
    }

    async fn look(&mut self) -> bool {
        match self.executor.runtime.pod(&self.uid).await {
            Ok(runtime) => {
                self.runtime = runtime;
                self.stale = false;
                self.memory.forget_gone(&self.runtime);
                true
            }
            Err(error) => {
                tracing::debug!(
                    pod = crate::spec::full_name(&self.pod),
                    error = &error as &dyn std::error::Error,
                    "the runtime does not tell of the pod"
                );
                false
            }
        }
    }

    fn step(&mut self) -> Decision {
        let now = self.now();
        let decision = lifecycle::step(&self.pod, &self.runtime, &self.memory, now);
        for action in &decision.actions {
            let failed_at = match action {
                Action::StartContainer { name, .. } => self.runtime.latest(name).and_then(|c| c.exit()).map(|exit| exit.finished_at),
                _ => None,
            };
            self.memory.begin(action, failed_at, now);
            let (executor, pod, runtime, action) = (Arc::clone(&self.executor), self.pod.clone(), self.runtime.clone(), action.clone());
            self.operations.spawn(async move {
                let outcome = executor.carry_out(&pod, &runtime, &action).await;
                (action, outcome)
            });
        }
        decision
    }

    /// Keeps exactly the probes running that should.
    fn probe(&mut self) {
        let mut wanted: BTreeMap<(String, Kind), Container> = BTreeMap::new();
        let ending = self.memory.ending.is_some();
        let Some(spec) = self.pod.spec.clone() else { return };
        for (container, role) in lifecycle::all_containers(&spec) {
            let probed = role == lifecycle::Role::Main || lifecycle::is_sidecar(&container);
            let Some(latest) = self.runtime.latest(&container.name).filter(|latest| probed && latest.is_running()) else { continue };
            let known = self.known(&latest.id.clone());
            let facts = self.memory.probes.entry(latest.id.clone()).or_insert(known);
            let started = container.startup_probe.is_none() || facts.started;
            for kind in Kind::ALL {
                // While a pod ends, only its readiness still matters.
                if kind.of(&container).is_some() && kind.runs(started) && (!ending || kind == Kind::Readiness) {
                    wanted.insert((latest.id.clone(), kind), container.clone());
                }
            }
        }
        self.probing.retain(|key, task| {
            let keep = wanted.contains_key(key);
            if !keep {
                task.abort();
            }
            keep
        });
        for ((id, kind), container) in wanted {
            if !self.probing.contains_key(&(id.clone(), kind)) {
                let task = self.prober_tasks.spawn(self.prober(id.clone(), kind, container));
                self.probing.insert((id, kind), task);
            }
        }
        while self.prober_tasks.try_join_next().is_some() {}
    }

    /// What the API last said of this very container: a restarted kubelet goes on from there.
    fn known(&self, id: &str) -> ProbeFacts {
        let full = format!("{}{id}", status::ID_SCHEME);
        let status = self.pod.status.as_ref();
        let all = status.iter().flat_map(|s| s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten()));
        let found = all.into_iter().find(|status| status.container_id.as_deref() == Some(full.as_str()));
        found.map(|status| ProbeFacts { ready: status.ready, started: status.started == Some(true), failed: None }).unwrap_or_default()
    }

    fn prober(&self, id: String, kind: Kind, container: Container) -> impl Future<Output = ()> + Send + 'static {
        let started = match self.runtime.latest(&container.name).map(|latest| latest.state.clone()) {
            Some(State::Running { started_at }) => started_at,
            _ => self.now(),
        };
        let (executor, pod) = (Arc::clone(&self.executor), self.pod.clone());
        let pod_ip = pod_ip(&self.runtime, &executor.facts.load(), &pod);
        let verdicts = self.verdicts.0.clone();
        async move {
            let Some(probe) = kind.of(&container).cloned() else { return };
            let target = Target { container, container_id: id.clone(), pod_ip };
            let first = started.plus(probes::initial_delay(&probe));
            tokio::time::sleep(first.since(executor.clock.now())).await;
            let mut count = Count::default();
            loop {
                let answer = executor.prober.probe(&target, &probe).await;
                let good = answer.is_ok();
                if let Err(why) = answer {
                    executor.unhealthy(&pod, kind.name(), &why).await;
                }
                if let Some(good) = count.observe(&probe, good)
                    && verdicts.send(Verdict { container_id: id.clone(), kind, good }).await.is_err()
                {
                    return;
                }
                tokio::time::sleep(probes::period(&probe)).await;
            }
        }
    }

    fn judge(&mut self, verdict: &Verdict) {
        let container = self.runtime.containers.iter().find(|container| container.id == verdict.container_id);
        let Some(container) = container.and_then(|found| lifecycle::find(self.pod.spec.as_ref()?, &found.name)).map(|(container, _)| container)
        else {
            return;
        };
        let grace = verdict.kind.of(&container).and_then(|probe| probe.termination_grace_period_seconds);
        let facts = self.memory.probes.entry(verdict.container_id.clone()).or_default();
        match (verdict.kind, verdict.good) {
            (Kind::Readiness, good) => facts.ready = good,
            (Kind::Startup, true) => facts.started = true,
            (Kind::Liveness, true) => {}
            (kind, false) => facts.failed = Some((kind.name(), grace)),
        }
    }

    fn refresh(&mut self) {
        if self.memory.ending.is_some() || !self.memory.prepared {
            return;
        }
        let (executor, pod) = (Arc::clone(&self.executor), self.pod.clone());
        let ips = self.runtime.sandboxes.first().map(|sandbox| sandbox.ips.clone()).unwrap_or_default();
        // Bounded by the next tick's own work: a refresh reads a few objects and writes a few files.
        self.prober_tasks.spawn(async move {
            if let Err(message) = executor.refresh(&pod, &ips).await {
                executor.note(&pod, EventType::Warning, "FailedMount", message).await;
            }
        });
    }

    /// Brings the API's status up to date, and takes the object away once nothing is left of a deleted pod.
    fn report(&mut self, stage: Stage) {
        let facts = self.executor.facts.load();
        let now = self.now();
        let around = status::Surroundings { host_ips: &facts.ips, now, stage };
        let computed = status::of(&self.pod, &self.runtime, &self.memory, &around);
        self.pod.status = Some(computed.clone());
        self.shared.update(&self.uid, &self.pod, &self.runtime);
        if self.desired.removed || !self.writes.is_empty() || self.write_after > now {
            return;
        }
        if self.written.as_ref() != Some(&computed) {
            let (executor, pod) = (Arc::clone(&self.executor), self.pod.clone());
            self.writes.spawn(async move { Written::Status(write_status(&executor, &pod, computed).await) });
        } else if stage == Stage::Ended && self.pod.metadata.deletion_timestamp.is_some() {
            let (executor, pod) = (Arc::clone(&self.executor), self.pod.clone());
            self.writes.spawn(async move { Written::Deleted(delete(&executor, &pod).await) });
        }
    }

    fn note_write(&mut self, written: Option<Written>) {
        match written {
            Some(Written::Status(Ok(status))) => self.written = Some(status),
            Some(Written::Status(Err(error)) | Written::Deleted(Err(error))) if error.is_not_found() => {
                // The watch tells the rest; until then nothing can be written.
                self.write_after = self.now().plus(RETRY);
            }
            Some(Written::Status(Err(error)) | Written::Deleted(Err(error))) => {
                tracing::debug!(pod = crate::spec::full_name(&self.pod), error = &error as &dyn std::error::Error, "the pod's state was not written");
                self.write_after = self.now().plus(RETRY);
            }
            // The watch tells that the object is gone.
            Some(Written::Deleted(Ok(()))) => self.write_after = self.now().plus(RETRY),
            None => {}
        }
    }
}

async fn write_status(executor: &Executor, pod: &Pod, status: PodStatus) -> Result<PodStatus, ClientError> {
    let mut own = serde_json::to_value(&status).unwrap_or_default();
    if let Some(conditions) = own["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"].as_str().is_some_and(|kind| OWN_CONDITIONS.contains(&kind)));
        for condition in conditions {
            for field in ["reason", "message"] {
                // A merge by key keeps what is not named.
                if condition[field].is_null() {
                    condition[field] = Value::Null;
                }
            }
        }
    }
    let mirror = super::manager::is_static(pod);
    let metadata = if mirror { json!({}) } else { json!({"uid": pod.metadata.uid}) };
    let patch = json!({"metadata": metadata, "status": own});
    let pods = executor.client.api("", "v1", "pods", meta(&pod.metadata.namespace));
    pods.patch::<Value>(meta(&pod.metadata.name), "status", PatchKind::Strategic, "", &patch).await?;
    Ok(status)
}

async fn delete(executor: &Executor, pod: &Pod) -> Result<(), ClientError> {
    let options = DeleteOptions { uid: pod.metadata.uid.clone(), grace_period_seconds: Some(0), ..DeleteOptions::default() };
    let pods = executor.client.api("", "v1", "pods", meta(&pod.metadata.namespace));
    pods.delete(meta(&pod.metadata.name), &options).await.map(drop)
}
