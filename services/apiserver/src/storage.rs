//! The store as the API server uses it: reads of the three consistencies, and one place where store errors become Statuses.
//!
//! ```text
//! resourceVersion unset   barrier        everything acknowledged before the read
//! "0"                     snapshot       whatever this replica has
//! N, not older than       wait_for       at most 3 s, then 504
//! N, exactly              remembered snapshot, else a read of history through the store
//! ```
//!
//! Pages of a limited list read one revision. The snapshot of a list that was cut is remembered for a while, so that its later pages cost
//! nothing; another replica, or this one after it forgot, reads history instead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use wheelhouse_base::Revision;
use wheelhouse_meta::Status;
use wheelhouse_meta::gvk::GroupResource;
use wheelhouse_mvcc::{Command, Fence, KeyRange, KeyValue, Op, OpOutcome, Outcome, Range, Refusal, Snapshot, Txn, TxnOutcome};
use wheelhouse_store::{CommitError, ReadError, Store};

use crate::request::Answer;

/// How long a read waits for this replica to reach the revision asked for; upstream's watch cache waits as long.
const CATCH_UP: Duration = Duration::from_secs(3);

/// Remembered snapshots per cluster. Each pins the records that changed since, so there are few.
const REMEMBERED: usize = 8;

/// Upstream compacts after five minutes, after which no continue token is honoured.
const REMEMBERED_FOR: Duration = Duration::from_secs(5 * 60);

/// Seconds after which a client should try again when the cluster has no leader.
const RETRY_WITHOUT_LEADER: u32 = 1;

pub struct Storage {
    store: Arc<dyn Store>,
    remembered: Mutex<VecDeque<(Instant, Snapshot)>>,
}

/// The records of a range at one revision.
pub enum Records {
    Snapshot(Snapshot),
    /// Read from history, in key order.
    History {
        revision: Revision,
        records: Vec<Arc<KeyValue>>,
    },
}

/// Why a read at an exact revision failed.
pub enum ExactError {
    Compacted,
    Other(Box<Status>),
}

impl Storage {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, remembered: Mutex::new(VecDeque::new()) }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whatever this replica has applied.
    pub fn local(&self) -> Snapshot {
        self.store.snapshot()
    }

    pub async fn linearizable(&self) -> Answer<Snapshot> {
        self.store.barrier().await.map_err(|error| Box::new(read_status(&error)))
    }

    pub async fn at_least(&self, revision: Revision) -> Answer<Snapshot> {
        match self.store.wait_for(revision, CATCH_UP).await {
            Ok(snapshot) => Ok(snapshot),
            Err(ReadError::Behind { requested, current }) => Err(Status::resource_version_too_large(requested, current).into()),
            Err(error) => Err(read_status(&error).into()),
        }
    }

    /// Keeps a snapshot for the next pages of a list.
    pub fn remember(&self, snapshot: &Snapshot) {
        let mut remembered = self.remembered.lock();
        let now = Instant::now();
        while remembered.front().is_some_and(|(since, _)| now.duration_since(*since) > REMEMBERED_FOR) {
            remembered.pop_front();
        }
        if remembered.iter().any(|(_, kept)| kept.revision() == snapshot.revision()) {
            return;
        }
        if remembered.len() == REMEMBERED {
            remembered.pop_front();
        }
        remembered.push_back((now, snapshot.clone()));
    }

    /// The records of `range` as they were at `revision`.
    pub async fn exactly(&self, range: KeyRange, revision: Revision) -> Result<Records, ExactError> {
        let local = self.at_least(revision).await.map_err(ExactError::Other)?;
        if local.revision() == revision {
            return Ok(Records::Snapshot(local));
        }
        if let Some((_, kept)) = self.remembered.lock().iter().find(|(_, kept)| kept.revision() == revision) {
            return Ok(Records::Snapshot(kept.clone()));
        }
        if revision <= local.compacted() {
            return Err(ExactError::Compacted);
        }
        let read = Range { revision, ..Range::of(range) };
        let txn = Txn { success: vec![Op::Range(read)], ..Txn::default() };
        match self.store.commit(Command::Txn { txn, fence: None }).await {
            Ok(Outcome::Txn(outcome)) => match outcome.responses.into_iter().next() {
                Some(OpOutcome::Range { kvs, .. }) => Ok(Records::History { revision, records: kvs }),
                _ => Err(ExactError::Other(Status::internal_error("the store answered a range with something else").into())),
            },
            Ok(Outcome::Failed(Refusal::Compacted { .. })) => Err(ExactError::Compacted),
            Ok(Outcome::Failed(refusal)) => Err(ExactError::Other(Status::internal_error(refusal).into())),
            Ok(_) => Err(ExactError::Other(Status::internal_error("the store answered a transaction with something else").into())),
            Err(error) => Err(ExactError::Other(commit_status(&error, &GroupResource::default()).into())),
        }
    }

    /// One all-or-nothing transaction. `resource` is what messages name.
    #[tracing::instrument(level = "debug", name = "commit", skip_all, fields(resource = %resource))]
    pub async fn commit(&self, txn: Txn, fence: Option<Fence>, resource: &GroupResource) -> Answer<TxnOutcome> {
        match self.store.commit(Command::Txn { txn, fence }).await {
            Ok(Outcome::Txn(outcome)) => Ok(outcome),
            Ok(Outcome::Fenced { term }) => {
                let why = format!("the leadership under which this was decided has ended; the term is now {term}");
                Err(Status::conflict(resource, "", why).into())
            }
            Ok(Outcome::Failed(refusal)) => Err(Status::internal_error(refusal).into()),
            Ok(_) => Err(Status::internal_error("the store answered a transaction with something else").into()),
            Err(error) => Err(commit_status(&error, resource).into()),
        }
    }
}

impl Records {
    pub fn revision(&self) -> Revision {
        match self {
            Records::Snapshot(snapshot) => snapshot.revision(),
            Records::History { revision, .. } => *revision,
        }
    }

    /// Records with `start <= key < end`, in key order.
    pub fn range<'a>(&'a self, start: &'a [u8], end: &'a [u8]) -> Box<dyn Iterator<Item = &'a Arc<KeyValue>> + Send + 'a> {
        match self {
            Records::Snapshot(snapshot) => Box::new(snapshot.range(start, Some(end))),
            Records::History { records, .. } => Box::new(records.iter().filter(move |kv| &kv.key[..] >= start && &kv.key[..] < end)),
        }
    }
}

fn with_retry(mut status: Status, seconds: u32) -> Status {
    status.details.get_or_insert_default().retry_after_seconds = seconds;
    status
}

fn read_status(error: &ReadError) -> Status {
    match error {
        ReadError::Unavailable | ReadError::Stopped => with_retry(Status::service_unavailable(error.to_string()), RETRY_WITHOUT_LEADER),
        ReadError::Behind { requested, current } => Status::resource_version_too_large(*requested, *current),
    }
}

/// The one table from a failed commit to the wire. Only an unknown outcome is a timeout: every other one certainly did not happen.
fn commit_status(error: &CommitError, resource: &GroupResource) -> Status {
    match error {
        CommitError::Unavailable | CommitError::Stopped => with_retry(Status::service_unavailable(error.to_string()), RETRY_WITHOUT_LEADER),
        CommitError::NotLeader => Status::conflict(resource, "", error),
        CommitError::Unknown(_) => Status::timeout("request did not complete within the allotted timeout", 0),
        CommitError::Overloaded => Status::too_many_requests(error.to_string(), RETRY_WITHOUT_LEADER),
        CommitError::DiskFull => Status::service_unavailable(error.to_string()),
        CommitError::TooLarge { limit, .. } => Status::request_entity_too_large(format!("limit is {limit}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_outcome_is_a_timeout() {
        let pods = GroupResource::new("", "pods");
        let cases = [
            (CommitError::Unavailable, 503, Some(1)),
            (CommitError::Stopped, 503, Some(1)),
            (CommitError::NotLeader, 409, None),
            (CommitError::Unknown("lost"), 504, None),
            (CommitError::Overloaded, 429, Some(1)),
            (CommitError::DiskFull, 503, None),
            (CommitError::TooLarge { size: 9, limit: 8 }, 413, None),
        ];
        for (error, code, retry) in cases {
            let status = commit_status(&error, &pods);
            assert_eq!((status.code, status.retry_after_seconds()), (code, retry), "{error}");
        }
    }

    #[test]
    fn remembered_snapshots_are_few() {
        let storage = Storage::new(Arc::new(wheelhouse_store::MemoryStore::default()));
        for _ in 0..3 * REMEMBERED {
            storage.remember(&storage.local());
        }
        assert_eq!(storage.remembered.lock().len(), 1, "one revision is kept once");
    }
}
