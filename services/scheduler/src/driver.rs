//! The loop around the engine: changes in, requests out, many pods per turn.
//!
//! ```text
//! Feed --changed--> inbox --turn--> Engine::apply ... Engine::step --Bind--> binding under way (64) --failed--> Engine::bind_failed
//!                                                          |
//!                                                          +--Report--> status, evictions under way (32)   events: a short queue of their own
//! ```
//!
//! A binding is not waited for: the next pods are decided while it is written. Requests under way when the scheduler is dropped stay fenced to the
//! leadership that they were made under.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tracing::{debug, warn};
use wheelhouse_base::{Clock, Timestamp};
use wheelhouse_client::events::EventRecorder;
use wheelhouse_client::{Client, ClientError, Identity};
use wheelhouse_controllers::feed::Consumer;
use wheelhouse_kinds::plan::EventNote;
use wheelhouse_kinds::view::{ObjectChange, View};

use crate::binder;
use crate::engine::{Engine, Report, Step};
use crate::metrics::{Attempt, SchedulerMetrics};
use crate::pod::{DEFAULT_SCHEDULER, PodInfo};

/// Bindings under way at once: enough to fill a Raft batch.
const MAX_BINDINGS: usize = 64;
/// Reports about unschedulable pods under way at once.
const MAX_REPORTS: usize = 32;
/// Pods decided in one turn before changes are taken in again, so that decisions rest on what is known.
const MAX_DECISIONS: usize = 64;
/// Events that wait to be recorded; beyond it they are lost, as upstream's are. Nothing depends on them.
const MAX_EVENTS: usize = 1_000;
/// Events being recorded at once.
const MAX_EVENTS_UNDER_WAY: usize = 16;

/// Resources that the engine reads.
const RESOURCES: [(&str, &str); 8] = [
    ("", "pods"),
    ("", "nodes"),
    ("", "namespaces"),
    ("", "services"),
    ("", "replicationcontrollers"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("policy", "poddisruptionbudgets"),
];

/// The default scheduler of one cluster for the length of one leadership.
pub struct Scheduler {
    client: Client,
    clock: Arc<dyn Clock>,
    metrics: SchedulerMetrics,
    /// Changes since the last turn. Not bounded: a turn takes all of it, and the records are the view's own.
    inbox: Mutex<Vec<ObjectChange>>,
    wake: Notify,
}

impl Consumer for Scheduler {
    fn changed(&self, _view: &View, changes: &[ObjectChange]) {
        let ours = |change: &&ObjectChange| {
            let resource = &change.reference.resource;
            RESOURCES.contains(&(&*resource.group, &*resource.plural))
        };
        let mut inbox = self.inbox.lock();
        let before = inbox.len();
        inbox.extend(changes.iter().filter(ours).cloned());
        let grown = inbox.len() > before;
        drop(inbox);
        if grown {
            self.wake.notify_one();
        }
    }
}

/// A pod on its way to a node.
struct Binding {
    pod: Arc<PodInfo>,
    node: Arc<str>,
    /// When it was taken up.
    since: Instant,
}

/// What is under way while the scheduler runs.
struct Running {
    engine: Engine,
    bindings: JoinSet<Result<(), ClientError>>,
    /// Which pod a binding is for and where, also if its task panics.
    bound: HashMap<Id, Binding>,
    /// Answers the pod if its victims could not all be evicted.
    reports: JoinSet<Option<Arc<PodInfo>>>,
    events: mpsc::Sender<EventNote>,
}

impl Scheduler {
    /// `client` is fenced to the leadership; the scheduler acts as `system:kube-scheduler`.
    pub fn new(client: Client, clock: Arc<dyn Clock>, metrics: SchedulerMetrics) -> Arc<Self> {
        let client = client.identity(Identity::component("system:kube-scheduler")).user_agent("kube-scheduler");
        Arc::new(Self { client, clock, metrics, inbox: Mutex::default(), wake: Notify::new() })
    }

    /// Runs until the view's feed ends. Register the scheduler as a consumer of that feed before it starts.
    pub async fn run(self: Arc<Self>, mut views: watch::Receiver<Arc<View>>) {
        if views.wait_for(|view| view.revision() > 0).await.is_err() {
            return;
        }
        let (events, waiting) = mpsc::channel(MAX_EVENTS);
        let mut recorders = JoinSet::new();
        recorders.spawn(record_events(EventRecorder::new(self.client.clone(), DEFAULT_SCHEDULER, self.clock.clone()), waiting));
        let seed = u64::try_from(self.clock.now().as_micros()).unwrap_or(1);
        let mut running = Running { engine: Engine::new(seed), bindings: JoinSet::new(), bound: HashMap::new(), reports: JoinSet::new(), events };
        loop {
            let changes = std::mem::take(&mut *self.inbox.lock());
            let now = self.clock.now();
            changes.iter().for_each(|change| running.engine.apply(change, now));
            if self.decide(&mut running, now) {
                // More may be due: let the feed and the requests have their turn, and look again.
                tokio::task::yield_now().await;
                while let Some(done) = running.bindings.try_join_next_with_id() {
                    self.bound(&mut running, done);
                }
                continue;
            }
            self.metrics.waiting(running.engine.queues());
            let timer = self.timer(&running);
            tokio::select! {
                Some(done) = running.bindings.join_next_with_id() => self.bound(&mut running, done),
                Some(done) = running.reports.join_next() => self.reported(&mut running, done),
                () = self.wake.notified() => {}
                () = timer => {}
                changed = views.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Decides about pods that are due, as many as may be under way; whether it stopped for having decided enough.
    fn decide(&self, running: &mut Running, now: Timestamp) -> bool {
        for _ in 0..MAX_DECISIONS {
            if running.is_full() {
                return false;
            }
            let since = Instant::now();
            let step = running.engine.step(now);
            if step.is_some() {
                self.metrics.decided(since.elapsed());
            }
            match step {
                None => return false,
                Some(Step::Bind { pod, node }) => {
                    let (client, target, place) = (self.client.clone(), pod.clone(), node.clone());
                    let task = running.bindings.spawn(async move { binder::bind(&client, &target, &place).await });
                    running.bound.insert(task.id(), Binding { pod, node, since });
                }
                Some(Step::Report { pod, report }) => {
                    self.metrics.attempted(Attempt::Unschedulable, since.elapsed());
                    if !report.victims.is_empty() {
                        self.metrics.preempted(report.victims.len());
                    }
                    running.note(binder::failed_event(&pod, &report.message));
                    if report.condition_changes || report.nomination.is_some() || !report.victims.is_empty() {
                        running.reports.spawn(carry_out(self.client.clone(), running.events.clone(), pod, report, now));
                    }
                }
            }
        }
        true
    }

    fn timer(&self, running: &Running) -> impl Future<Output = ()> + use<> {
        let due = running.engine.next_due().filter(|_| !running.is_full());
        let wait = due.map(|at| at.since(self.clock.now()).max(Duration::from_millis(1)));
        async move {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        }
    }

    fn bound(&self, running: &mut Running, done: Result<(Id, Result<(), ClientError>), JoinError>) {
        let (id, result) = match done {
            Ok((id, result)) => (id, result.map_err(|error| error.to_string())),
            Err(error) => (error.id(), Err(error.to_string())),
        };
        let Some(Binding { pod, node, since }) = running.bound.remove(&id) else { return };
        self.metrics.attempted(if result.is_ok() { Attempt::Scheduled } else { Attempt::Error }, since.elapsed());
        match result {
            Ok(()) => running.note(binder::scheduled_event(&pod, &node)),
            // Gone, bound by another, or no answer: the feed tells which, and until then the pod is tried again after a back-off.
            Err(error) => {
                debug!(pod = %pod.key, node = %node, error, "a binding was not written");
                running.engine.bind_failed(&pod, self.clock.now());
            }
        }
    }

    fn reported(&self, running: &mut Running, done: Result<Option<Arc<PodInfo>>, JoinError>) {
        match done {
            Ok(None) => {}
            Ok(Some(pod)) => running.engine.eviction_failed(&pod, self.clock.now()),
            Err(error) => warn!(%error, "a report about an unschedulable pod panicked"),
        }
    }
}

impl Running {
    fn is_full(&self) -> bool {
        self.bindings.len() >= MAX_BINDINGS || self.reports.len() >= MAX_REPORTS
    }

    fn note(&self, event: EventNote) {
        let _ = self.events.try_send(event);
    }
}

/// Says why the pod waits, then makes room for it. Answers the pod if not all of the room could be made.
async fn carry_out(client: Client, events: mpsc::Sender<EventNote>, pod: Arc<PodInfo>, report: Report, now: Timestamp) -> Option<Arc<PodInfo>> {
    if let Err(error) = binder::report(&client, &pod, &report, now).await {
        debug!(pod = %pod.key, error = &error as &dyn std::error::Error, "the status of an unschedulable pod was not written");
    }
    let node = report.nomination.as_deref().filter(|node| !node.is_empty()).unwrap_or(pod.nominated_node());
    for victim in &report.victims {
        if let Err(error) = binder::evict(&client, victim, now).await {
            warn!(pod = %pod.key, victim = %victim.key, error = &error as &dyn std::error::Error, "a pod was not evicted");
            let withdrawn = Report { nomination: Some(String::new()), condition_changes: false, ..report.clone() };
            if let Err(error) = binder::report(&client, &pod, &withdrawn, now).await {
                debug!(pod = %pod.key, error = &error as &dyn std::error::Error, "a nomination was not withdrawn");
            }
            return Some(pod);
        }
        let _ = events.try_send(binder::preempted_event(victim, &pod, node));
    }
    None
}

async fn record_events(recorder: EventRecorder, waiting: mpsc::Receiver<EventNote>) {
    let notes = futures::stream::unfold(waiting, |mut waiting| async { waiting.recv().await.map(|note| (note, waiting)) });
    let recorder = &recorder;
    let record = |note: EventNote| async move {
        if let Err(error) = recorder.record(&note).await {
            debug!(pod = %note.key, reason = note.reason, error = &error as &dyn std::error::Error, "an event was not recorded");
        }
    };
    notes.for_each_concurrent(MAX_EVENTS_UNDER_WAY, record).await;
}

#[cfg(test)]
mod tests;
