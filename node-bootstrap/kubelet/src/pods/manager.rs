//! Who runs on this node: the API's pods that are bound to it, static pods from files, and leftovers that nobody asks for any more.
//!
//! One worker per pod uid. A pod that the runtime holds and that neither the API nor a file names is a leftover: it gets a worker with a removed pod,
//! which stops and erases it. That is decided only after the API has answered once, so a node that starts without its control plane kills nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::RwLock;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use wheelhouse_runtime::Stop;

use super::executor::Executor;
use super::worker::{Desired, Signals, Worker};
use crate::cri::{PodIdentity, Relist};
use crate::lifecycle::Why;
use crate::node::admit;
use crate::observed::PodRuntime;
use crate::spec::{labels, meta};

/// Upstream's period of the pod life-cycle event generator.
const RELIST: Duration = Duration::from_secs(1);
/// A leftover whose grace period nobody knows any more.
const LEFTOVER_GRACE: i64 = 30;

/// From other parts of the kubelet.
#[derive(Debug)]
pub enum Command {
    /// End a pod with this reason and message, within `grace`.
    Evict { uid: String, reason: &'static str, message: String, grace: Option<Duration> },
}

/// A pod as its worker last saw it.
#[derive(Clone)]
pub struct PodView {
    pub pod: Arc<Pod>,
    pub runtime: Arc<PodRuntime>,
}

/// What workers tell the rest of the kubelet.
#[derive(Default)]
pub struct Shared {
    pods: RwLock<BTreeMap<String, PodView>>,
}

impl Shared {
    pub(super) fn update(&self, uid: &str, pod: &Pod, runtime: &PodRuntime) {
        let view = PodView { pod: Arc::new(pod.clone()), runtime: Arc::new(runtime.clone()) };
        self.pods.write().insert(uid.to_owned(), view);
    }

    pub(super) fn forget(&self, uid: &str) {
        self.pods.write().remove(uid);
    }

    pub fn pods(&self) -> BTreeMap<String, PodView> {
        self.pods.read().clone()
    }
}

/// Comes from a file on the node.
pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, labels::STATIC_SOURCE) == Some("file")
}

fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, labels::MIRROR).is_some()
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

struct Handle {
    desired: watch::Sender<Desired>,
    changed: Arc<Notify>,
}

/// The pods of the API by namespace and name; `None` until it has answered.
pub type ApiPods = Option<BTreeMap<(String, String), Arc<Pod>>>;

pub struct Manager {
    pub executor: Arc<Executor>,
    pub shared: Arc<Shared>,
    pub api: watch::Receiver<ApiPods>,
    /// By uid.
    pub files: watch::Receiver<BTreeMap<String, Arc<Pod>>>,
    pub commands: mpsc::Receiver<Command>,
}

/// What the loop keeps.
#[derive(Default)]
struct Running {
    workers: BTreeMap<String, Handle>,
    tasks: JoinSet<String>,
    relist: Option<Relist>,
}

impl Manager {
    /// Runs until stopped. Containers run on.
    pub async fn run(mut self, mut stop: Stop) {
        let mut running = Running::default();
        let mut relist = tokio::time::interval(RELIST);
        relist.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.stopped() => return,
                changed = self.api.changed() => if changed.is_err() { return },
                changed = self.files.changed() => if changed.is_err() { return },
                Some(command) = self.commands.recv() => {
                    let Command::Evict { uid, reason, message, grace } = command;
                    if let Some(worker) = running.workers.get(&uid) {
                        let why = Why::Failed { reason: reason.to_owned(), message };
                        worker.desired.send_modify(|desired| desired.end = Some((why, grace)));
                    }
                    continue;
                }
                Some(ended) = running.tasks.join_next() => {
                    if let Ok(uid) = ended {
                        running.workers.remove(&uid);
                        // It erased the pod; the last list is older than that.
                        if let Some(relist) = &mut running.relist {
                            relist.pods.remove(&uid);
                        }
                    }
                }
                _ = relist.tick() => self.relist(&mut running).await,
            }
            self.align(&mut running);
        }
    }

    async fn relist(&self, running: &mut Running) {
        match Relist::take(&self.executor.runtime).await {
            Ok(relist) => {
                let before = running.relist.replace(relist).unwrap_or_default();
                for identity in running.relist.iter().flat_map(|now| now.changed_since(&before)) {
                    if let Some(worker) = running.workers.get(&identity.uid) {
                        worker.changed.notify_one();
                    }
                }
            }
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "the runtime cannot be listed"),
        }
    }

    /// Gives every pod its worker and every worker its pod.
    fn align(&self, running: &mut Running) {
        let api = self.api.borrow().clone();
        let files = self.files.borrow().clone();
        let from_api = api.iter().flatten().map(|(_, pod)| pod).filter(|pod| !is_mirror(pod));
        let mut wanted: BTreeMap<&str, &Arc<Pod>> = from_api.map(|pod| (meta(&pod.metadata.uid), pod)).collect();
        wanted.extend(files.iter().map(|(uid, pod)| (uid.as_str(), pod)));
        // Oldest first, so that on a full node those that were there keep their place.
        let mut order: Vec<&Arc<Pod>> = wanted.values().copied().collect();
        order.sort_by_key(|pod| (pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone()));
        for pod in order {
            let uid = meta(&pod.metadata.uid);
            match running.workers.get(uid) {
                Some(worker) => {
                    worker.desired.send_if_modified(|desired| {
                        let newer = !Arc::ptr_eq(&desired.pod, pod) || desired.removed;
                        if newer {
                            (desired.pod, desired.removed) = (Arc::clone(pod), false);
                        }
                        newer
                    });
                }
                None => {
                    let end = self.refusal(pod);
                    self.spawn(running, Desired { pod: Arc::clone(pod), removed: false, end });
                }
            }
        }
        if api.is_none() {
            return;
        }
        for (uid, worker) in &running.workers {
            if !wanted.contains_key(uid.as_str()) {
                worker.desired.send_if_modified(|desired| !std::mem::replace(&mut desired.removed, true));
            }
        }
        let left: Vec<PodIdentity> = running.relist.iter().flat_map(|relist| relist.pods.values()).map(|pod| pod.0.clone()).collect();
        let known: BTreeSet<String> = running.workers.keys().cloned().collect();
        for identity in left.into_iter().filter(|identity| !known.contains(&identity.uid) && !wanted.contains_key(identity.uid.as_str())) {
            tracing::info!(namespace = identity.namespace, name = identity.name, uid = identity.uid, "a pod is left over and is taken down");
            self.spawn(running, Desired { pod: Arc::new(leftover(&identity)), removed: true, end: None });
        }
    }

    /// Why this node does not take the pod, if it does not.
    fn refusal(&self, pod: &Pod) -> Option<(Why, Option<Duration>)> {
        let started = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
        if started || is_static(pod) || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let others: Vec<Arc<Pod>> =
            self.shared.pods().into_values().map(|view| view.pod).filter(|other| other.metadata.uid != pod.metadata.uid).collect();
        let facts = self.executor.facts.load();
        admit::check(pod, &others, &facts, self.executor.config.max_pods).err().map(|refused| {
            let why = Why::Failed { reason: refused.reason, message: refused.message };
            (why, Some(Duration::ZERO))
        })
    }

    fn spawn(&self, running: &mut Running, desired: Desired) {
        let uid = meta(&desired.pod.metadata.uid).to_owned();
        let changed = Arc::new(Notify::new());
        // Known from the first moment, so that the next pod is measured against it.
        self.shared.update(&uid, &desired.pod, &PodRuntime::default());
        let worker = Worker::new(desired.clone(), Arc::clone(&self.executor), Arc::clone(&self.shared));
        let (sender, receiver) = watch::channel(desired);
        let signals = Signals { desired: receiver, changed: Arc::clone(&changed) };
        running.workers.insert(uid.clone(), Handle { desired: sender, changed });
        running.tasks.spawn(async move {
            worker.run(signals).await;
            uid
        });
    }
}

/// A pod of which only its name is known.
fn leftover(identity: &PodIdentity) -> Pod {
    let metadata = ObjectMeta {
        name: Some(identity.name.clone()),
        namespace: Some(identity.namespace.clone()),
        uid: Some(identity.uid.clone()),
        deletion_grace_period_seconds: Some(LEFTOVER_GRACE),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: Some(k8s_openapi::api::core::v1::PodSpec::default()), status: None }
}
