//! The one writer of a host: whatever all groups want written by the time it looks becomes one batch and at most one sync.
//!
//! ```text
//! group 1 --append--> |       |
//! group 2 --state---> | queue | --> all that waits, merged --> engine.write(one batch, synced if any job asks) --> callbacks
//! group 3 --vote----> |       |
//! ```
//!
//! While a sync runs the next jobs gather, so the batch grows with the load and nobody waits for a timer. The queue has no bound of its own:
//! what can wait in it is bounded by Raft's windows (64 unanswered appends per group) and by the proposals that a leader admits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::engine::{Durability, Engine, EngineError, Op};

/// Called once, when the job is as durable as it asked, or has failed.
pub type Done = Box<dyn FnOnce(Result<(), DiskError>) + Send>;

/// One batch's size at most, so that a burst of large values does not delay the small writes behind it by more than a few milliseconds.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// The reserve is the larger of this and a twentieth of the disk.
const RESERVE_BYTES: u64 = 1 << 30;
const RESERVE_FRACTION: u64 = 20;

#[derive(Clone, Debug, thiserror::Error)]
pub enum DiskError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A failed sync leaves it open what is on disk, so nothing is written after one until the disk is opened again.
    #[error("the disk failed earlier and must be opened again")]
    Poisoned,
    #[error("the disk is closed")]
    Closed,
    #[error("{0}")]
    Corrupt(String),
}

pub(crate) struct Job {
    pub ops: Vec<Op>,
    pub durability: Durability,
    pub done: Option<Done>,
}

/// What drives the writer.
pub enum Driver {
    /// A thread of its own; the engine's sync blocks it.
    Thread,
    /// A task on the current tokio runtime, for engines that never block. `sync_delay` is waited for before each synced write.
    Task { sync_delay: Box<dyn Fn() -> Duration + Send + Sync> },
}

pub(crate) struct Writer {
    engine: Arc<dyn Engine>,
    queue: Mutex<Queue>,
    ready: Condvar,
    notify: tokio::sync::Notify,
    space: Mutex<SpaceCheck>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
    poisoned: bool,
}

struct SpaceCheck {
    interval: Duration,
    looked: Option<Instant>,
    low: bool,
    /// Bytes; `None` for the usual share of the disk.
    reserve: Option<u64>,
}

impl Writer {
    /// `space_interval`: how long an answer about free space holds. `reserve`: bytes that stay free, if not the usual share.
    pub fn new(engine: Arc<dyn Engine>, space_interval: Duration, reserve: Option<u64>) -> Arc<Self> {
        let space = Mutex::new(SpaceCheck { interval: space_interval, looked: None, low: false, reserve });
        Arc::new(Self { engine, queue: Mutex::default(), ready: Condvar::new(), notify: tokio::sync::Notify::new(), space })
    }

    pub fn submit(&self, job: Job) {
        let refused = {
            let mut queue = self.queue.lock();
            if queue.closed {
                Some((job, DiskError::Closed))
            } else if queue.poisoned {
                Some((job, DiskError::Poisoned))
            } else {
                queue.jobs.push_back(job);
                None
            }
        };
        match refused {
            Some((job, error)) => finish(job.done, Err(error)),
            None => {
                self.ready.notify_one();
                self.notify.notify_one();
            }
        }
    }

    /// Takes no more jobs; what waits is still written.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.ready.notify_one();
        self.notify.notify_one();
    }

    pub fn is_poisoned(&self) -> bool {
        self.queue.lock().poisoned
    }

    /// Whether less than the reserve is free.
    pub fn is_low_on_space(&self) -> bool {
        let mut check = self.space.lock();
        if check.looked.is_none_or(|looked| looked.elapsed() >= check.interval) {
            check.looked = Some(Instant::now());
            // An unreadable file system is not proof of a full one.
            let reserve = |total: u64| check.reserve.unwrap_or(RESERVE_BYTES.max(total / RESERVE_FRACTION));
            check.low = self.engine.space().is_ok_and(|space| space.free < reserve(space.total));
        }
        check.low
    }

    /// Looks at the free space anew, whenever it was looked at last.
    pub fn refresh_space(&self) {
        self.space.lock().looked = None;
    }

    pub fn run_on_thread(self: Arc<Self>) {
        loop {
            let batch = {
                let mut queue = self.queue.lock();
                while queue.jobs.is_empty() && !queue.closed {
                    self.ready.wait(&mut queue);
                }
                take_batch(&mut queue.jobs)
            };
            if batch.is_empty() {
                return;
            }
            self.commit(batch);
        }
    }

    pub async fn run_as_task(self: Arc<Self>, sync_delay: Box<dyn Fn() -> Duration + Send + Sync>) {
        loop {
            let batch = {
                let mut queue = self.queue.lock();
                if queue.jobs.is_empty() && queue.closed {
                    return;
                }
                take_batch(&mut queue.jobs)
            };
            if batch.is_empty() {
                self.notify.notified().await;
                continue;
            }
            let delay = sync_delay();
            if !delay.is_zero() && batch.iter().any(|job| job.durability == Durability::Synced) {
                tokio::time::sleep(delay).await;
            }
            self.commit(batch);
        }
    }

    fn commit(&self, batch: Vec<Job>) {
        let durability = batch.iter().map(|job| job.durability).max().unwrap_or(Durability::Unsynced);
        let mut ops = Vec::with_capacity(batch.iter().map(|job| job.ops.len()).sum());
        let mut waiting = Vec::with_capacity(batch.len());
        for job in batch {
            ops.extend(job.ops);
            waiting.push(job.done);
        }
        let result = if self.is_poisoned() { Err(DiskError::Poisoned) } else { self.engine.write(ops, durability).map_err(DiskError::from) };
        if let Err(error) = &result {
            let mut queue = self.queue.lock();
            if !queue.poisoned {
                tracing::error!(%error, "the host's disk failed; nothing more is written until it is opened again");
            }
            queue.poisoned = true;
        }
        for done in waiting {
            finish(done, result.clone());
        }
    }
}

fn finish(done: Option<Done>, result: Result<(), DiskError>) {
    if let Some(done) = done {
        done(result);
    }
}

fn take_batch(jobs: &mut VecDeque<Job>) -> Vec<Job> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while let Some(job) = jobs.front() {
        bytes += job.ops.iter().map(Op::size).sum::<usize>();
        if bytes > MAX_BATCH_BYTES && !batch.is_empty() {
            break;
        }
        batch.extend(jobs.pop_front());
    }
    batch
}
