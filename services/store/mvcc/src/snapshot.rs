//! An immutable view of the state at one revision.

use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;
use wheelhouse_base::Revision;

use crate::command::{KeyRange, Refusal};
use crate::event::{Batch, KeyValue};
use crate::history::History;
use crate::lease::Lease;
use crate::memory::MemoryUse;
use crate::past::PastRoots;

/// The live records at one revision, the retained history before it, and the leases. Cloning costs a few reference counts; it shares
/// structure with every other snapshot of the store.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(crate) live: OrdMap<Bytes, Arc<KeyValue>>,
    pub(crate) history: History,
    pub(crate) leases: OrdMap<i64, Arc<Lease>>,
    /// Grants and renewals so far.
    pub(crate) lease_clock: u64,
    pub(crate) revision: Revision,
    pub(crate) compacted: Revision,
    pub(crate) memory: MemoryUse,
    pub(crate) past: PastRoots,
}

impl Snapshot {
    /// The revision of the newest change it holds.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// History at and below this revision may be gone. 0 if nothing was ever compacted.
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    pub fn get(&self, key: &[u8]) -> Option<&Arc<KeyValue>> {
        self.live.get(key)
    }

    /// How many records exist.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Records with `start <= key < end` in key order; `end == None` reads to the last key. Resume with the last key and a zero byte appended.
    pub fn range<'a>(&'a self, start: &[u8], end: Option<&[u8]>) -> impl DoubleEndedIterator<Item = &'a Arc<KeyValue>> + use<'a> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        // The tree's range must not begin after its end.
        let end = end.map_or(Unbounded, |end| Excluded(if end < start { start } else { end }));
        self.live.range::<_, [u8]>((Included(start), end)).map(|(_, kv)| kv)
    }

    /// Records in `range`, in key order.
    pub fn records<'a>(&'a self, range: &KeyRange) -> impl DoubleEndedIterator<Item = &'a Arc<KeyValue>> + use<'a> {
        let single = range.end.is_none().then(|| self.live.get(&range.start)).flatten();
        let many = range.end.as_ref().map(|end| self.range(&range.start, (end != crate::command::TO_THE_LAST_KEY).then_some(end)));
        single.into_iter().chain(many.into_iter().flatten())
    }

    /// How many records `start <= key < end` holds; reads the tree's leaves but no record. `end == None` counts to the last key.
    pub fn count(&self, start: &[u8], end: Option<&[u8]>) -> usize {
        if start.is_empty() && end.is_none() {
            return self.live.len();
        }
        self.range(start, end).count()
    }

    /// The store as it was at `revision`. Leases are not rewound.
    ///
    /// The first call for a revision undoes the events since (or since a past root that was asked for before); the root is then kept, so
    /// that the pages of one list cost nothing more.
    pub fn at(&self, revision: Revision) -> Result<Snapshot, Refusal> {
        if revision > self.revision {
            return Err(Refusal::FutureRevision { requested: revision, current: self.revision });
        }
        if revision < self.compacted {
            return Err(Refusal::Compacted { requested: revision, compacted: self.compacted });
        }
        if revision == self.revision {
            return Ok(self.clone());
        }
        let (from, mut live) =
            self.past.nearest(revision).filter(|(from, _)| *from < self.revision).unwrap_or_else(|| (self.revision, self.live.clone()));
        for event in self.history.between(revision, from).rev().flat_map(|batch| batch.events.iter().rev()) {
            match &event.prev {
                Some(prev) => live.insert(prev.key.clone(), prev.clone()),
                None => live.remove(&event.kv.key),
            };
        }
        self.past.keep(revision, live.clone());
        Ok(Snapshot { live, revision, ..self.clone() })
    }

    /// Announces that [`at`](Self::at) will be asked for this revision later, as the first page of a list knows: the root is kept now,
    /// while nothing has to be undone.
    pub fn keep(&self) {
        self.past.keep(self.revision, self.live.clone());
    }

    /// Batches after `after` up to this snapshot's revision, oldest first. Refused if some of them are gone.
    pub fn history_since(&self, after: Revision) -> Result<impl Iterator<Item = &Arc<Batch>> + use<'_>, Refusal> {
        if after.saturating_add(1) < self.history_start() {
            return Err(Refusal::Compacted { requested: after + 1, compacted: self.compacted });
        }
        Ok(self.history.between(after, self.revision))
    }

    /// The oldest revision that a watch may start at.
    pub fn history_start(&self) -> Revision {
        if self.compacted <= crate::state::FIRST_REVISION { 0 } else { self.history.first().unwrap_or(self.revision + 1) }
    }

    /// How many batches are retained.
    pub fn history_len(&self) -> usize {
        self.history.len()
    }

    pub fn lease(&self, id: i64) -> Option<&Arc<Lease>> {
        self.leases.get(&id)
    }

    /// Every lease, in the order of their ids.
    pub fn leases(&self) -> impl Iterator<Item = (i64, &Arc<Lease>)> + use<'_> {
        self.leases.iter().map(|(id, lease)| (*id, lease))
    }

    /// Bytes held by the newest state of this store when the snapshot was taken.
    pub fn memory(&self) -> MemoryUse {
        self.memory
    }
}
