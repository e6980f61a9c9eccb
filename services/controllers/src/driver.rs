//! Runs one reconciler: keys in, plans out, one executor.
//!
//! ```text
//! Feed --changed--> queue --pop--> wait until the view holds this key's last write --> reconcile (pure) --> execute --> done
//!                     ^                                                                                 |
//!                     +---------------- back-off on failure, requeue_at, effect outcomes ---------------+
//! ```

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};
use wheelhouse_base::{Clock, Revision};
use wheelhouse_client::events::EventRecorder;
use wheelhouse_client::executor::Executor;
use wheelhouse_client::queue::WorkQueue;
use wheelhouse_kinds::plan::{EffectKind, EventType, MAX_OPERATIONS, Plan};
use wheelhouse_kinds::reconciler::{ANY, AnyReconciler, Context, Failure, Trigger};
use wheelhouse_kinds::view::{Key, ObjectChange, View};
use wheelhouse_store::Store;

use crate::effects::EffectHandler;
use crate::feed::Consumer;

/// Keys of one controller in flight at once: upstream's five workers, and some more since ours do not block on reads.
const MAX_IN_FLIGHT: usize = 16;

type EffectOutcomes = BTreeMap<(EffectKind, String), Result<Value, String>>;

/// One controller's queue and what it remembers per key.
pub struct Driver {
    reconciler: Arc<dyn AnyReconciler>,
    triggers: Vec<Trigger>,
    clock: Arc<dyn Clock>,
    queue: Mutex<WorkQueue<Key>>,
    wake: Notify,
}

/// What a driver needs to act.
pub struct Hands {
    pub store: Arc<dyn Store>,
    pub executor: Executor,
    pub recorder: EventRecorder,
    pub effects: Arc<dyn EffectHandler>,
}

/// State that only the running loop touches.
struct Running {
    memory: Box<dyn Any + Send>,
    /// The view must be at least this new before the key is looked at again.
    seen: HashMap<Key, Revision>,
    failures: HashMap<Key, Failure>,
    outcomes: HashMap<Key, EffectOutcomes>,
}

/// What became of one plan.
struct Done {
    key: Key,
    revision: Revision,
    result: Result<(), Failure>,
    outcomes: EffectOutcomes,
    requeue_at: Option<wheelhouse_base::Timestamp>,
}

impl Consumer for Driver {
    fn changed(&self, view: &View, changes: &[ObjectChange]) {
        let mut keys = Vec::new();
        for change in changes {
            for trigger in &self.triggers {
                if trigger.resource == ANY || trigger.resource == change.reference.resource {
                    keys.extend((trigger.keys)(view, change));
                }
            }
        }
        if keys.is_empty() {
            return;
        }
        let mut queue = self.queue.lock();
        for key in keys {
            queue.add(key);
        }
        drop(queue);
        self.wake.notify_one();
    }
}

impl Driver {
    pub fn new(reconciler: Arc<dyn AnyReconciler>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let triggers = reconciler.triggers();
        Arc::new(Self { reconciler, triggers, clock, queue: Mutex::default(), wake: Notify::new() })
    }

    pub fn name(&self) -> &'static str {
        self.reconciler.name()
    }

    /// Runs until the view's feed ends. Plans under way when it is dropped stay fenced to the leadership they were made under.
    pub async fn run(self: Arc<Self>, hands: Arc<Hands>, mut views: watch::Receiver<Arc<View>>) {
        if views.wait_for(|view| view.revision() > 0).await.is_err() {
            return;
        }
        let memory = self.reconciler.new_memory();
        let mut running = Running { memory, seen: HashMap::new(), failures: HashMap::new(), outcomes: HashMap::new() };
        let mut plans: JoinSet<Done> = JoinSet::new();
        loop {
            while plans.len() < MAX_IN_FLIGHT {
                let Some(key) = self.queue.lock().pop(self.clock.now()) else { break };
                if let Some(revision) = running.seen.remove(&key)
                    && views.wait_for(|view| view.revision() >= revision).await.is_err()
                {
                    return;
                }
                let view = views.borrow().clone();
                let plan = self.decide(&key, &view, &mut running);
                plans.spawn(execute(hands.clone(), key, plan));
            }
            let due = self.queue.lock().next_due();
            let timer = async {
                match due {
                    Some(at) => tokio::time::sleep(at.since(self.clock.now()).max(Duration::from_millis(1))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(done) = plans.join_next() => match done {
                    Ok(done) => self.finish(done, &mut running),
                    Err(error) => warn!(controller = self.name(), %error, "a plan's execution panicked"),
                },
                () = self.wake.notified() => {}
                () = timer, if plans.len() < MAX_IN_FLIGHT => {}
                changed = views.changed() => if changed.is_err() { return },
            }
        }
    }

    fn decide(&self, key: &Key, view: &View, running: &mut Running) -> Plan {
        let none = EffectOutcomes::new();
        let cx = Context { now: self.clock.now(), failure: running.failures.get(key), effects: running.outcomes.get(key).unwrap_or(&none) };
        let mut plan = self.reconciler.reconcile(key, view, &cx, running.memory.as_mut());
        if plan.operations.len() > MAX_OPERATIONS {
            warn!(controller = self.name(), %key, operations = plan.operations.len(), "a plan is over the limit and is cut");
            plan.operations.truncate(MAX_OPERATIONS);
            plan.requeue_no_later_than(cx.now);
        }
        plan
    }

    fn finish(&self, done: Done, running: &mut Running) {
        let Done { key, revision, result, outcomes, requeue_at } = done;
        let answered = !outcomes.is_empty();
        if answered {
            running.outcomes.insert(key.clone(), outcomes);
        } else {
            running.outcomes.remove(&key);
        }
        let now = self.clock.now();
        let mut queue = self.queue.lock();
        queue.done(&key);
        running.seen.insert(key.clone(), revision);
        match result {
            Ok(()) => {
                queue.forget(&key);
                running.failures.remove(&key);
                if answered {
                    queue.add(key.clone());
                }
            }
            Err(failure) => {
                debug!(controller = self.name(), %key, code = failure.code, message = failure.message, "the plan is tried again");
                running.failures.insert(key.clone(), failure);
                queue.add_rate_limited(key.clone(), now);
            }
        }
        if let Some(at) = requeue_at {
            queue.add_at(key, at);
        }
    }
}

async fn execute(hands: Arc<Hands>, key: Key, plan: Plan) -> Done {
    let wrote = !plan.operations.is_empty();
    let result = hands.executor.run(&plan.operations).await;
    // A plan that ended early did not do all that its events tell of; its warnings are about what was before.
    let told = plan.events.iter().filter(|note| result.is_ok() || note.kind_of_event == EventType::Warning);
    for note in told {
        if let Err(error) = hands.recorder.record(note).await {
            debug!(%key, reason = note.reason, error = &error as &dyn std::error::Error, "an event was not recorded");
        }
    }
    let mut outcomes = EffectOutcomes::new();
    if result.is_ok() {
        for effect in plan.effects {
            let outcome = hands.effects.run(&effect).await;
            outcomes.insert((effect.kind, effect.id), outcome);
        }
    }
    // The leader answers a write after applying it here, so this replica's snapshot holds all that the plan wrote.
    let revision = if wrote { hands.store.snapshot().revision() } else { 0 };
    Done { key, revision, result, outcomes, requeue_at: plan.requeue_at }
}
