//! One replica's part of the disk: its Raft log, its state, and the few records that tie them together.
//!
//! ```text
//! family    key after the group's prefix            value
//! log       index (8, big-endian)                   the entry, its body sealed by whoever proposed it
//! state     generation (4) 'k' hidden key (16)      sealed record
//!           generation (4) 'h'                      sealed header: revision, compacted, leases
//! history   generation (4) revision (8)             sealed undo of that revision's batch
//! meta      'b' born, 'v' vote, 'c' committed       'p' purged, 'a' applied: generation (4) and what the state says of itself
//! ```
//!
//! The state follows the log lazily: it is written without a sync, but always together with 'a', which says which entry it holds. The
//! engine loses batches only from the end, so after a crash state and 'a' agree, and the entries after it are still in the log, because a
//! purge is written later than the state that made it safe. A snapshot is received into the next generation beside the live one and becomes
//! the state by one write of 'a'.
//!
//! User keys appear on disk only as keyed hashes: state is read as a whole when a group starts, so nothing needs their order.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytes::Bytes;
use wheelhouse_base::Revision;
use wheelhouse_mvcc::codec::{self, Header, StoredBatch};
use wheelhouse_mvcc::{Batch, KeyValue, RestoreError, State};

use crate::disk::{Expect, HostDisk, OpenGroupError};
use crate::engine::{Durability, Engine, Family, Op};
use crate::group::GroupId;
use crate::seal::{DataKey, Sealer};
use crate::writer::{DiskError, Done};

const FORMAT: u8 = 1;
/// What the born record seals, so that a wrong data key shows at once and not as damage.
const KEY_CHECK: &[u8] = b"wheelhouse";

/// Which copy of the state is meant; a received snapshot starts the next.
pub type Generation = u32;

/// An open group. Writes are queued in the order of the calls; closing or dropping it lets the group be opened again.
pub struct GroupDisk {
    disk: Arc<HostDisk>,
    id: GroupId,
    prefix: Vec<u8>,
    sealer: Arc<Sealer>,
    newest: AtomicU32,
    closed: AtomicBool,
}

/// What the disk knows of a group when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    pub vote: Option<Bytes>,
    pub committed: Option<Bytes>,
    /// The index up to which the log was purged, and what the purger said about it.
    pub purged: Option<(u64, Bytes)>,
    pub generation: Generation,
    /// What the state on disk says of itself; `None` before anything was applied.
    pub applied: Option<Bytes>,
    /// First and last index in the log.
    pub log: Option<(u64, u64)>,
}

/// Changes of the state since the last such write.
#[derive(Debug, Default)]
pub struct StateWrite {
    pub puts: Vec<Arc<KeyValue>>,
    pub deletes: Vec<Bytes>,
    pub batches: Vec<Arc<Batch>>,
    /// Batches that arrive encoded, as a snapshot brings them.
    pub encoded_batches: Vec<(Revision, Bytes)>,
    /// History before this revision goes.
    pub compacted: Option<Revision>,
    /// Everything about the state that its records do not say.
    pub header: Option<Header>,
    /// Which entry the state holds after this, in the caller's encoding.
    pub applied: Bytes,
}

pub(crate) fn open(disk: Arc<HostDisk>, id: GroupId, key: DataKey, expect: Expect) -> Result<GroupDisk, OpenGroupError> {
    let sealer = Arc::new(Sealer::new(key));
    let prefix = id.prefix();
    let group = GroupDisk { disk, id, prefix, sealer, newest: AtomicU32::new(0), closed: AtomicBool::new(false) };
    group.check_born(expect)?;
    let boot = group.boot()?;
    group.newest.store(boot.generation, Ordering::Relaxed);
    group.drop_other_generations(boot.generation)?;
    Ok(group)
}

impl GroupDisk {
    pub fn id(&self) -> &GroupId {
        &self.id
    }

    /// Seals with this group's key.
    pub fn sealer(&self) -> &Arc<Sealer> {
        &self.sealer
    }

    pub fn disk(&self) -> &Arc<HostDisk> {
        &self.disk
    }

    pub fn boot(&self) -> Result<Boot, OpenGroupError> {
        let meta = |name| self.engine().get(Family::Meta, &self.meta_key(name)).map_err(DiskError::from);
        let applied = meta(b'a')?;
        let (generation, applied) = match applied {
            None => (0, None),
            Some(bytes) => {
                let (generation, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| lost("the applied record is cut short"))?;
                (u32::from_be_bytes(*generation), Some(Bytes::copy_from_slice(rest)))
            }
        };
        let purged = match meta(b'p')? {
            None => None,
            Some(bytes) => {
                let (index, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| lost("the purge record is cut short"))?;
                Some((u64::from_be_bytes(*index), Bytes::copy_from_slice(rest)))
            }
        };
        let log = self.log_bounds()?;
        if let (Some((purged, _)), Some((first, _))) = (&purged, log)
            && first > purged + 1
        {
            return Err(lost(&format!("the log begins at {first}, but was purged only up to {purged}")));
        }
        Ok(Boot { vote: meta(b'v')?.map(Bytes::from), committed: meta(b'c')?.map(Bytes::from), purged, generation, applied, log })
    }

    /// Appends entries; `done` is called when they are synced.
    pub fn append(&self, entries: impl IntoIterator<Item = (u64, Vec<u8>)>, done: Done) {
        let ops = entries.into_iter().map(|(index, value)| Op::Put { family: Family::Log, key: self.log_key(index), value }).collect();
        self.submit(ops, Durability::Synced, Some(done));
    }

    /// Removes `from` and everything after it.
    pub fn truncate(&self, from: u64, done: Done) {
        self.submit(vec![self.drop_log(from..=u64::MAX - 1)], Durability::Synced, Some(done));
    }

    /// Removes everything up to `upto`. The caller has already queued a state write that covers it.
    pub fn purge(&self, upto: u64, record: &[u8], done: Done) {
        let mut value = upto.to_be_bytes().to_vec();
        value.extend_from_slice(record);
        let ops = vec![Op::Put { family: Family::Meta, key: self.meta_key(b'p'), value }, self.drop_log(0..=upto)];
        self.submit(ops, Durability::Unsynced, Some(done));
    }

    /// Writes the vote and syncs it.
    pub fn save_vote(&self, vote: Vec<u8>, done: Done) {
        let op = Op::Put { family: Family::Meta, key: self.meta_key(b'v'), value: vote };
        self.submit(vec![op], Durability::Synced, Some(done));
    }

    /// Not synced by itself: it never runs ahead of the entries it names, and losing it only makes a restart learn it again.
    pub fn save_committed(&self, committed: Vec<u8>) {
        let op = Op::Put { family: Family::Meta, key: self.meta_key(b'c'), value: committed };
        self.submit(vec![op], Durability::Unsynced, None);
    }

    /// Entries in `range`, in order, until they add up to `max_bytes`; at least one if there is one.
    pub fn read_log(&self, range: RangeInclusive<u64>, max_bytes: usize) -> Result<Vec<(u64, Bytes)>, DiskError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        let to = self.log_key(range.end().saturating_add(1));
        self.engine().scan(Family::Log, &self.log_key(*range.start()), &to, &mut |key, value| {
            let index = key[key.len() - 8..].try_into().expect("a log key ends in eight bytes of index");
            entries.push((u64::from_be_bytes(index), Bytes::copy_from_slice(value)));
            bytes += value.len();
            if bytes >= max_bytes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(entries)
    }

    /// Queues the changes of the state; `done` is called when the engine has them, synced or not.
    pub fn write_state(&self, generation: Generation, write: &StateWrite, done: Option<Done>) {
        let mut ops = self.state_ops(generation, write);
        ops.push(self.applied_op(generation, &write.applied));
        self.submit(ops, Durability::Unsynced, done);
    }

    /// Starts a copy of the state beside the live one, for a snapshot that arrives.
    pub fn begin_generation(&self) -> Generation {
        self.newest.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a part of an arriving snapshot to its generation.
    pub fn fill_generation(&self, generation: Generation, part: &StateWrite, done: Option<Done>) {
        self.submit(self.state_ops(generation, part), Durability::Unsynced, done);
    }

    /// Makes `generation` the state, in one write, and drops the former one.
    pub fn switch_generation(&self, former: Generation, generation: Generation, applied: &[u8], done: Done) {
        let mut ops = vec![self.applied_op(generation, applied)];
        ops.extend(self.drop_generation(former));
        self.submit(ops, Durability::Synced, Some(done));
    }

    /// Drops a generation whose snapshot did not arrive in full.
    pub fn abandon_generation(&self, generation: Generation) {
        self.submit(self.drop_generation(generation), Durability::Unsynced, None);
    }

    /// Reads the state and its history back. An empty one if nothing was ever applied.
    pub fn load(&self, generation: Generation) -> Result<State, OpenGroupError> {
        let start = self.generation_key(generation);
        let (mut header, mut records, mut history) = (Header::default(), Vec::new(), Vec::<StoredBatch>::new());
        self.visit(Family::State, &start, |key, plain| {
            match key[start.len()] {
                b'k' => records.push(codec::decode_record(&plain).map_err(|e| lost(&format!("state: {e}")))?),
                b'h' => header = codec::decode_header(&plain).map_err(|e| lost(&format!("header: {e}")))?,
                other => return Err(lost(&format!("unknown kind of state {other}"))),
            }
            Ok(())
        })?;
        self.visit(Family::History, &start, |_, plain| {
            history.push(codec::decode_batch(&plain).map_err(|e| lost(&format!("history: {e}")))?);
            Ok(())
        })?;
        State::restore(&header, records, history.into_iter().rev()).map_err(|e: RestoreError| lost(&e.to_string()))
    }

    /// Refuses later writes and lets the group be opened again, whoever still holds this. What is queued is still written.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            self.disk.closed(&self.id);
        }
    }

    fn submit(&self, ops: Vec<Op>, durability: Durability, done: Option<Done>) {
        if !self.closed.load(Ordering::SeqCst) {
            self.disk.submit(ops, durability, done);
        } else if let Some(done) = done {
            done(Err(DiskError::Closed));
        }
    }

    fn engine(&self) -> &dyn Engine {
        self.disk.engine()
    }

    fn check_born(&self, expect: Expect) -> Result<(), OpenGroupError> {
        let key = self.meta_key(b'b');
        match self.engine().get(Family::Meta, &key).map_err(DiskError::from)? {
            Some(born) => match born.split_first() {
                Some((&FORMAT, check)) => self.sealer.open(&key, check).map(drop).map_err(|_| OpenGroupError::WrongKey),
                _ => Err(lost("the group was written in an unknown format")),
            },
            None if expect == Expect::Existing => Err(lost("nothing of it is on this disk")),
            None => {
                let mut value = vec![FORMAT];
                value.extend_from_slice(&self.sealer.seal(&key, KEY_CHECK));
                // Directly, so that whoever opens a group need not wait for a callback; nobody else writes to it yet.
                let op = Op::Put { family: Family::Meta, key, value };
                Ok(self.engine().write(vec![op], Durability::Synced).map_err(DiskError::from)?)
            }
        }
    }

    fn drop_other_generations(&self, live: Generation) -> Result<(), DiskError> {
        let mut ops = Vec::new();
        for family in [Family::State, Family::History] {
            let older = (self.prefix.clone(), self.generation_key(live));
            let newer = (after(&self.generation_key(live)), after(&self.prefix));
            for (from, to) in [older, newer] {
                if self.engine().last(family, &from, &to)?.is_some() {
                    ops.push(Op::DeleteRange { family, from, to });
                }
            }
        }
        if !ops.is_empty() {
            self.engine().write(ops, Durability::Unsynced)?;
        }
        Ok(())
    }

    fn log_bounds(&self) -> Result<Option<(u64, u64)>, OpenGroupError> {
        let first = self.read_log(0..=u64::MAX - 1, 1)?;
        let Some((first, _)) = first.first() else { return Ok(None) };
        let last = self.engine().last(Family::Log, &self.log_key(*first), &after(&self.prefix)).map_err(DiskError::from)?;
        let (key, _) = last.ok_or_else(|| lost("the log changed while it was opened"))?;
        let index = key[key.len() - 8..].try_into().expect("a log key ends in eight bytes of index");
        Ok(Some((*first, u64::from_be_bytes(index))))
    }

    fn visit(&self, family: Family, start: &[u8], mut each: impl FnMut(&[u8], Vec<u8>) -> Result<(), OpenGroupError>) -> Result<(), OpenGroupError> {
        let mut result = Ok(());
        let scanned = self.engine().scan(family, start, &after(start), &mut |key, sealed| {
            let opened = self.sealer.open(key, sealed).map_err(|e| lost(&format!("{family:?}: {e}")));
            result = opened.and_then(|plain| each(key, plain));
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        scanned.map_err(DiskError::from)?;
        result
    }

    fn state_ops(&self, generation: Generation, write: &StateWrite) -> Vec<Op> {
        let mut ops = Vec::with_capacity(write.puts.len() + write.deletes.len() + write.batches.len() + 2);
        let mut plain = Vec::new();
        let sealed = |family, key: Vec<u8>, plain: &mut Vec<u8>| {
            let value = self.sealer.seal(&key, plain);
            plain.clear();
            Op::Put { family, key, value }
        };
        for kv in &write.puts {
            codec::encode_record(kv, &mut plain);
            ops.push(sealed(Family::State, self.record_key(generation, &kv.key), &mut plain));
        }
        for key in &write.deletes {
            ops.push(Op::Delete { family: Family::State, key: self.record_key(generation, key) });
        }
        for batch in &write.batches {
            codec::encode_batch(batch, &mut plain);
            ops.push(sealed(Family::History, self.history_key(generation, batch.revision), &mut plain));
        }
        for (revision, encoded) in &write.encoded_batches {
            plain.extend_from_slice(encoded);
            ops.push(sealed(Family::History, self.history_key(generation, *revision), &mut plain));
        }
        if let Some(header) = &write.header {
            codec::encode_header(header, &mut plain);
            ops.push(sealed(Family::State, self.key(&[&generation.to_be_bytes(), b"h"]), &mut plain));
        }
        if let Some(revision) = write.compacted {
            let (from, to) = (self.generation_key(generation), self.history_key(generation, revision));
            ops.push(Op::DeleteRange { family: Family::History, from, to });
        }
        ops
    }

    fn applied_op(&self, generation: Generation, applied: &[u8]) -> Op {
        let mut value = generation.to_be_bytes().to_vec();
        value.extend_from_slice(applied);
        Op::Put { family: Family::Meta, key: self.meta_key(b'a'), value }
    }

    fn drop_generation(&self, generation: Generation) -> Vec<Op> {
        let from = self.generation_key(generation);
        let to = after(&from);
        [Family::State, Family::History].map(|family| Op::DeleteRange { family, from: from.clone(), to: to.clone() }).to_vec()
    }

    fn drop_log(&self, range: RangeInclusive<u64>) -> Op {
        Op::DeleteRange { family: Family::Log, from: self.log_key(*range.start()), to: self.log_key(range.end() + 1) }
    }

    fn key(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.len() + parts.iter().map(|p| p.len()).sum::<usize>());
        key.extend_from_slice(&self.prefix);
        parts.iter().for_each(|part| key.extend_from_slice(part));
        key
    }

    fn meta_key(&self, name: u8) -> Vec<u8> {
        self.key(&[&[name]])
    }

    fn log_key(&self, index: u64) -> Vec<u8> {
        self.key(&[&index.to_be_bytes()])
    }

    fn generation_key(&self, generation: Generation) -> Vec<u8> {
        self.key(&[&generation.to_be_bytes()])
    }

    fn record_key(&self, generation: Generation, key: &[u8]) -> Vec<u8> {
        self.key(&[&generation.to_be_bytes(), b"k", &self.sealer.hide_name(key)])
    }

    fn history_key(&self, generation: Generation, revision: Revision) -> Vec<u8> {
        self.key(&[&generation.to_be_bytes(), &revision.to_be_bytes()])
    }
}

impl Drop for GroupDisk {
    fn drop(&mut self) {
        self.close();
    }
}

/// The first key after all those that begin with `prefix`. No prefix here is all ones.
pub(crate) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0xff; 64]
}

fn lost(why: &str) -> OpenGroupError {
    OpenGroupError::Lost(why.to_owned())
}
