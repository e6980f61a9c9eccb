//! Supervised tasks: each has a name, an owner and a stop.
//!
//! A [`Tasks`] belongs to whoever spawned into it (the process, one cluster's replica, one connection listener). Stopping it asks every task to
//! end, waits a while, then aborts what is left; dropping it aborts at once. So a deleted cluster leaves no task behind.
//! A task that panics is logged with its name and does not take others with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tracing::Instrument;

use crate::shutdown::{Stop, StopHandle, stop_pair};

/// Finished tasks are forgotten once this many handles are held, so that a listener may spawn for ever.
const SWEEP_AT: usize = 256;

/// A group of tasks with one owner. Clones share it.
#[derive(Clone)]
pub struct Tasks(Arc<Inner>);

struct Inner {
    owner: String,
    handle: StopHandle,
    stop: Stop,
    running: Arc<AtomicUsize>,
    tasks: Mutex<Vec<(Arc<str>, JoinHandle<()>)>>,
}

impl Tasks {
    /// `owner` appears in every log line of its tasks.
    pub fn new(owner: impl Into<String>) -> Self {
        let (handle, stop) = stop_pair();
        Self(Arc::new(Inner { owner: owner.into(), handle, stop, running: Arc::default(), tasks: Mutex::default() }))
    }

    /// What the tasks watch.
    pub fn stop_signal(&self) -> Stop {
        self.0.stop.clone()
    }

    /// Tasks that have not ended.
    pub fn running(&self) -> usize {
        self.0.running.load(Ordering::Relaxed)
    }

    /// Starts a task. It should end soon after [`Tasks::stop_signal`] resolves.
    pub fn spawn(&self, name: &str, work: impl Future<Output = ()> + Send + 'static) {
        let span = tracing::info_span!(parent: None, "task", owner = %self.0.owner, name);
        let running = Counted::new(Arc::clone(&self.0.running));
        let task = tokio::spawn(
            async move {
                let _running = running;
                work.await;
            }
            .instrument(span),
        );
        let mut tasks = self.0.tasks.lock();
        if tasks.len() >= SWEEP_AT && tasks.len() >= 2 * self.running() {
            tasks.retain(|(_, task)| !task.is_finished());
        }
        tasks.push((Arc::from(name), task));
    }

    /// Asks every task to end and waits up to `grace` for all of them; what is left is aborted and named in the log.
    pub async fn stop(&self, grace: Duration) {
        self.0.handle.stop();
        let deadline = tokio::time::Instant::now() + grace;
        // Tasks may spawn others while they end.
        loop {
            let Some((name, mut task)) = self.0.tasks.lock().pop() else { return };
            match tokio::time::timeout_at(deadline, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.is_panic() => tracing::error!(owner = %self.0.owner, task = %name, "a task panicked"),
                Ok(Err(_)) => {}
                Err(_) => {
                    tracing::warn!(owner = %self.0.owner, task = %name, "aborting a task that did not stop");
                    task.abort();
                    let _ = task.await;
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for (_, task) in self.tasks.get_mut() {
            task.abort();
        }
    }
}

/// Counts while it lives, also through a panic or an abort.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stopping_ends_the_willing_and_aborts_the_rest() {
        let tasks = Tasks::new("test");
        let mut stop = tasks.stop_signal();
        tasks.spawn("willing", async move { stop.stopped().await });
        tasks.spawn("stuck", std::future::pending());
        tasks.spawn("panics", async { panic!("expected by this test") });
        assert!(tasks.running() >= 2);
        tasks.stop(Duration::from_millis(20)).await;
        assert_eq!(tasks.running(), 0);
    }

    #[tokio::test]
    async fn finished_tasks_are_forgotten() {
        let tasks = Tasks::new("test");
        for _ in 0..10 * SWEEP_AT {
            tasks.spawn("short", async {});
            tokio::task::yield_now().await;
        }
        assert!(tasks.0.tasks.lock().len() <= 2 * SWEEP_AT);
    }
}
