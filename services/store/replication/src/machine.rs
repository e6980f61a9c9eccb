//! The state machine: applies entries, publishes what they made, and keeps the disk behind it.
//!
//! ```text
//! entries --> State::apply --> publish (hub) --> answer the clients
//!                  |
//!                  +--> dirty records --(many entries later)--> GroupDisk::write_state, together with "applied up to"
//! ```
//!
//! Answers leave after the state is published, so that whoever was answered finds its write in the next snapshot. The disk gets the state
//! lazily and each record once per flush; after a crash the log replays what the disk had not yet seen.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use openraft::entry::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use parking_lot::Mutex;
use tokio::sync::watch;
use wheelhouse_base::{Revision, Term};
use wheelhouse_mvcc::{Batch, Command, KeyValue, Outcome, Snapshot, State};
use wheelhouse_rocks::codec::{Reader, Writer};
use wheelhouse_rocks::{Boot, DiskError, Generation, GroupDisk, OpenGroupError, StateWrite};
use wheelhouse_store::WatchHub;

use crate::encode;
use crate::raft_types::{LogId, Outcomes, SnapshotMeta, SnapshotOf, StoredMembership, TypeConfig, term_of};

/// Changed records that wait for the disk at most. Replaying as many after a crash takes milliseconds.
const DIRTY_RECORDS: usize = 512;
const DIRTY_BYTES: usize = 4 << 20;

/// The newest applied entry and the revision it led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub term: Term,
    /// One more than the entry's index; 0 before the first.
    pub next_index: u64,
    pub revision: Revision,
}

/// A snapshot on its way between the state machine and the network.
pub enum SnapshotData {
    /// This replica's state, shared, not copied.
    Local(Snapshot),
    /// A peer's, already on disk in its own generation.
    Received { generation: Generation, state: State },
}

#[derive(Clone)]
pub struct Machine(Arc<Core>);

pub struct Core {
    disk: Arc<GroupDisk>,
    hub: Arc<WatchHub>,
    position: watch::Sender<Position>,
    fault: watch::Sender<Option<String>>,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
    generation: Generation,
    dirty: Dirty,
}

/// What the disk has not been told.
#[derive(Default)]
struct Dirty {
    /// The newest record of each changed key, `None` for a deleted one.
    records: BTreeMap<Bytes, Option<Arc<KeyValue>>>,
    batches: Vec<Arc<Batch>>,
    compacted: Option<Revision>,
    bytes: usize,
    /// Anything was applied, even if it changed no record.
    any: bool,
}

impl Machine {
    /// Reads the state back from disk.
    pub fn open(disk: Arc<GroupDisk>, boot: &Boot) -> Result<Self, OpenGroupError> {
        let state = disk.load(boot.generation)?;
        let (applied, membership) = match &boot.applied {
            None => (None, StoredMembership::default()),
            Some(bytes) => read_applied(bytes.clone()).map_err(|e| OpenGroupError::Lost(format!("applied: {e}")))?,
        };
        let hub = WatchHub::new(state.snapshot());
        let position = watch::Sender::new(position(applied.as_ref(), state.root().revision()));
        let inner = Inner { state, applied, membership, generation: boot.generation, dirty: Dirty::default() };
        Ok(Self(Arc::new(Core { disk, hub, position, fault: watch::Sender::new(None), inner: Mutex::new(inner) })))
    }

    pub fn hub(&self) -> &Arc<WatchHub> {
        &self.0.hub
    }

    pub fn position(&self) -> watch::Receiver<Position> {
        self.0.position.subscribe()
    }

    /// Why this replica stopped applying.
    pub fn fault(&self) -> watch::Receiver<Option<String>> {
        self.0.fault.subscribe()
    }

    /// Notes why, unless a reason is known already, and ends the watches: their clients find them on another replica.
    pub fn set_fault(&self, reason: String) {
        let first = self.0.fault.send_if_modified(|fault| {
            let first = fault.is_none();
            if first {
                *fault = Some(reason);
            }
            first
        });
        if first {
            self.0.hub.stop();
        }
    }

    pub fn applied(&self) -> Option<LogId> {
        self.0.inner.lock().applied
    }

    pub fn disk(&self) -> &Arc<GroupDisk> {
        &self.0.disk
    }

    /// Queues what the disk has not been told; `done` is called when the engine has it.
    pub fn flush(&self) {
        self.0.inner.lock().flush(&self.0.disk);
    }

    /// Runs the state's own invariants. For tests.
    pub fn check(&self) -> Result<(), String> {
        self.0.inner.lock().state.check()
    }

    fn fail(&self, reason: String) -> io::Error {
        tracing::error!(group = %self.0.disk.id(), %reason, "this replica stops");
        self.set_fault(reason.clone());
        io::Error::other(reason)
    }
}

impl Inner {
    /// Applies one entry's commands. A panic inside must not take the host down; the state is then unusable and the replica stops.
    fn run(&mut self, commands: &[Command], term: Term, batches: &mut Vec<Arc<Batch>>) -> Result<Vec<Outcome>, String> {
        let mut outcomes = Vec::with_capacity(commands.len());
        for command in commands {
            let state = &mut self.state;
            let applied =
                catch_unwind(AssertUnwindSafe(|| state.apply(command, term))).map_err(|panic| format!("apply panicked: {}", panic_text(&*panic)))?;
            match command {
                Command::Compact { revision } if applied.outcome == Outcome::Compacted => self.dirty.compacted = Some(*revision),
                _ => {}
            }
            if let Some(batch) = applied.batch {
                self.dirty.add(&batch);
                batches.push(batch);
            }
            outcomes.push(applied.outcome);
        }
        Ok(outcomes)
    }

    fn flush(&mut self, disk: &GroupDisk) {
        if !self.dirty.any {
            return;
        }
        let dirty = std::mem::take(&mut self.dirty);
        let mut write = StateWrite { batches: dirty.batches, compacted: dirty.compacted, applied: self.applied_bytes(), ..StateWrite::default() };
        for (key, record) in dirty.records {
            match record {
                Some(kv) => write.puts.push(kv),
                None => write.deletes.push(key),
            }
        }
        write.header = Some(self.state.root().header());
        disk.write_state(self.generation, &write, None);
    }

    fn applied_bytes(&self) -> Bytes {
        write_applied(self.applied.as_ref(), &self.membership)
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() }
    }
}

impl Dirty {
    fn add(&mut self, batch: &Arc<Batch>) {
        for event in &batch.events {
            self.bytes += event.kv.key.len() + event.kv.value.len() + event.prev.as_ref().map_or(0, |prev| prev.value.len());
            let record = (event.kv.version > 0).then(|| event.kv.clone());
            self.records.insert(event.kv.key.clone(), record);
        }
        self.batches.push(batch.clone());
    }

    fn is_large(&self) -> bool {
        self.batches.len() >= DIRTY_RECORDS || self.bytes >= DIRTY_BYTES
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let inner = self.0.inner.lock();
        Ok((inner.applied, inner.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: futures::Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        let mut answers = Vec::new();
        let mut batches = Vec::new();
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            let mut inner = self.0.inner.lock();
            let outcomes = match &entry.payload {
                EntryPayload::Blank => Vec::new(),
                EntryPayload::Membership(membership) => {
                    inner.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                    Vec::new()
                }
                EntryPayload::Normal(proposal) => {
                    let opened = proposal.open(self.0.disk.sealer());
                    let done = match opened {
                        Ok(commands) => inner.run(&commands, term_of(&entry.log_id), &mut batches),
                        Err(error) => Err(format!("entry {}: {error}", entry.log_id)),
                    };
                    match done {
                        Ok(outcomes) => outcomes,
                        Err(reason) => {
                            drop(inner);
                            return Err(self.fail(reason));
                        }
                    }
                }
            };
            inner.applied = Some(entry.log_id);
            inner.dirty.any = true;
            if inner.dirty.is_large() {
                inner.flush(&self.0.disk);
            }
            drop(inner);
            answers.extend(responder.map(|responder| (responder, outcomes)));
        }
        let (root, applied) = {
            let inner = self.0.inner.lock();
            (inner.state.snapshot(), inner.applied)
        };
        let revision = root.revision();
        self.0.hub.publish(&batches, root);
        self.0.position.send_replace(position(applied.as_ref(), revision));
        for (responder, outcomes) in answers {
            responder.send(Outcomes(outcomes));
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotData) -> io::Result<()> {
        let SnapshotData::Received { generation, state } = snapshot else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "only a received snapshot can be installed"));
        };
        let (tx, rx) = tokio::sync::oneshot::channel();
        let former = self.0.inner.lock().generation;
        let applied = write_applied(meta.last_log_id.as_ref(), &meta.last_membership);
        let done = Box::new(move |result: Result<(), DiskError>| drop(tx.send(result)));
        self.0.disk.switch_generation(former, generation, &applied, done);
        rx.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        let root = state.snapshot();
        {
            let mut inner = self.0.inner.lock();
            *inner = Inner { state, applied: meta.last_log_id, membership: meta.last_membership.clone(), generation, dirty: Dirty::default() };
        }
        let revision = root.revision();
        self.0.hub.reset(root);
        self.0.position.send_replace(position(meta.last_log_id.as_ref(), revision));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf>> {
        let inner = self.0.inner.lock();
        if inner.applied.is_none() {
            return Ok(None);
        }
        Ok(Some(SnapshotOf { meta: inner.meta(), snapshot: SnapshotData::Local(inner.state.snapshot()) }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = SnapshotData;

    /// The snapshot is the state on disk, so building one means telling the disk the rest. The purge that follows is queued behind it.
    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf> {
        let mut inner = self.0.inner.lock();
        inner.flush(&self.0.disk);
        Ok(SnapshotOf { meta: inner.meta(), snapshot: SnapshotData::Local(inner.state.snapshot()) })
    }
}

fn position(applied: Option<&LogId>, revision: Revision) -> Position {
    Position { term: applied.map_or(0, term_of), next_index: applied.map_or(0, |id| id.index() + 1), revision }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

fn write_applied(applied: Option<&LogId>, membership: &StoredMembership) -> Bytes {
    let mut w = Writer::default();
    encode::write_log_id_option(&mut w, applied);
    encode::write_stored_membership(&mut w, membership);
    w.finish()
}

fn read_applied(bytes: Bytes) -> Result<(Option<LogId>, StoredMembership), wheelhouse_rocks::codec::DecodeError> {
    let mut r = Reader::new(bytes);
    let applied = encode::read_log_id_option(&mut r)?;
    let membership = encode::read_stored_membership(&mut r)?;
    r.finish()?;
    Ok((applied, membership))
}
