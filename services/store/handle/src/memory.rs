//! A store in this process's memory alone: one replica that always leads. For tests, simulations and `--store-only` trials.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;
use wheelhouse_base::{ReplicaId, Revision};
use wheelhouse_mvcc::{Applied, Command, KeyRange, Outcome, Snapshot, State};

use crate::{CommitError, Leadership, ReadError, Store, Watch, WatchError, WatchHub, check_size};

/// The one replica's id.
const REPLICA: ReplicaId = ReplicaId(1);

/// See the module. Cheap to share behind an [`Arc`].
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
    hub: Arc<WatchHub>,
    leadership: watch::Sender<Leadership>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(State::new())
    }
}

impl MemoryStore {
    /// Serves `state` as the leader of term 1.
    pub fn new(state: State) -> Self {
        let hub = WatchHub::new(state.snapshot());
        let leadership = watch::Sender::new(Leadership { term: 1, leader: Some(REPLICA), here: true });
        Self { state: Mutex::new(state), hub, leadership }
    }

    /// Begins the next term, as an election does: commands fenced to an earlier one are refused from here on.
    pub fn next_term(&self) {
        // Within the lock that commits take, so that no command is applied under a term that has ended.
        let _state = self.state.lock();
        self.leadership.send_modify(|leadership| leadership.term += 1);
    }

    /// Ends every watch and refuses every later write.
    pub fn stop(&self) {
        self.hub.stop();
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn snapshot(&self) -> Snapshot {
        self.hub.snapshot()
    }

    async fn barrier(&self) -> Result<Snapshot, ReadError> {
        if self.hub.is_stopped() { Err(ReadError::Stopped) } else { Ok(self.hub.snapshot()) }
    }

    async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<Snapshot, ReadError> {
        self.hub.wait_for(revision, timeout).await
    }

    async fn commit(&self, command: Command) -> Result<Outcome, CommitError> {
        check_size(&command)?;
        if self.hub.is_stopped() {
            return Err(CommitError::Stopped);
        }
        let mut state = self.state.lock();
        let term = self.leadership.borrow().term;
        if matches!(&command, Command::Txn { fence: Some(fence), .. } if fence.term != term) {
            return Err(CommitError::NotLeader);
        }
        let Applied { outcome, batch } = state.apply(&command, term);
        self.hub.publish(batch.as_slice(), state.snapshot());
        Ok(outcome)
    }

    fn watch(&self, range: KeyRange, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        Ok(Box::new(self.hub.subscribe(range, after)?))
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    fn replica(&self) -> ReplicaId {
        REPLICA
    }
}
