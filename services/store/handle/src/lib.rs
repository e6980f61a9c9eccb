//! What the rest of a replica sees of its store: one trait, [`Store`].
//!
//! ```text
//!   apiserver, controllers, etcd API
//!            |  Store: snapshot, barrier, commit, watch, leadership
//!            v
//!   MemoryStore (one process, no disk)   |   wheelhouse-replication (Raft group on RocksDB)
//! ```
//!
//! Both implementations pass the suite in [`suite`]. Reads never lock: a [`Snapshot`](wheelhouse_mvcc::Snapshot) is an immutable root.

mod error;
mod hub;
mod memory;
mod retention;
mod size;
pub mod suite;

pub use error::{CommitError, ReadError, WatchError};
pub use hub::{HubWatch, WatchHub};
pub use memory::MemoryStore;
pub use retention::Retention;
pub use size::check_size;

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wheelhouse_base::{ReplicaId, Revision, Term};
use wheelhouse_mvcc::{Command, KeyRange, Outcome, Snapshot};

/// Who leads, as this replica knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Leadership {
    pub term: Term,
    pub leader: Option<ReplicaId>,
    /// True only while this replica leads `term` and has applied every entry of earlier terms: its snapshots then
    /// hold all that was ever acknowledged, so controllers may act.
    pub here: bool,
}

/// One cluster's replicated store, as seen from one replica.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The newest state applied on this replica (`resourceVersion=0` reads).
    fn snapshot(&self) -> Snapshot;

    /// A state at least as new as everything acknowledged before the call (a linearizable read through ReadIndex, on any replica).
    async fn barrier(&self) -> Result<Snapshot, ReadError>;

    /// A state at or after `revision`; waits at most `timeout` for this replica to catch up.
    async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<Snapshot, ReadError>;

    /// Proposes a command and answers once a quorum has it on disk and this replica's leader has applied it. Followers forward
    /// it, except a fenced transaction, which only the leader of its term proposes. `Unknown` means it may still take effect.
    async fn commit(&self, command: Command) -> Result<Outcome, CommitError>;

    /// Events on keys in `range` after `after`, in order and without gaps.
    fn watch(&self, range: KeyRange, after: Revision) -> Result<Box<dyn Watch>, WatchError>;

    /// Changes whenever this replica's view of the leadership does.
    fn leadership(&self) -> watch::Receiver<Leadership>;

    /// This replica.
    fn replica(&self) -> ReplicaId;
}

/// A cursor on the event ring.
#[async_trait]
pub trait Watch: Send {
    /// The next revision's events that fall into the range. Cancel-safe: a dropped future loses nothing.
    async fn next(&mut self) -> Result<Changes, WatchError>;

    /// Everything up to this revision has been returned or did not concern the range. What a bookmark carries. It moves with the store
    /// while nothing concerns the range, also when [`next`](Self::next) is not polled.
    fn position(&self) -> Revision;
}

/// Part of a [`Batch`](wheelhouse_mvcc::Batch) that falls into a watch's range.
#[derive(Clone, Debug)]
pub struct Changes {
    pub revision: Revision,
    pub events: Vec<wheelhouse_mvcc::Event>,
}
