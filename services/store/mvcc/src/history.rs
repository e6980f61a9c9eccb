//! The retained changes, oldest first.
//!
//! ```text
//!   compacted                                   revision
//!       |                                           |
//!   [ batch ][ batch ][ batch ] ................[ batch ]     one batch per revision, without a gap
//! ```
//!
//! The history shares structure between snapshots as the live records do, so a watch is nothing but a position: it takes the newest
//! snapshot and reads on. A queue per watcher was not chosen: its memory is bounded only by cutting slow watchers off early.
//!
//! The batch of the compacted revision itself stays, since etcd lets a watch start there.

use std::sync::Arc;

use imbl::OrdMap;
use wheelhouse_base::Revision;

use crate::event::Batch;

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    batches: OrdMap<Revision, Arc<Batch>>,
}

impl History {
    pub(crate) fn push(&mut self, batch: Arc<Batch>) {
        self.batches.insert(batch.revision, batch);
    }

    /// The oldest retained batch's revision.
    pub(crate) fn first(&self) -> Option<Revision> {
        self.batches.get_min().map(|(revision, _)| *revision)
    }

    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    /// Batches with `after < revision <= upto`, oldest first.
    pub(crate) fn between(&self, after: Revision, upto: Revision) -> impl DoubleEndedIterator<Item = &Arc<Batch>> + use<'_> {
        use std::ops::Bound::{Excluded, Included};
        // A map's range must not begin after its end.
        let upto = upto.max(after);
        let skip = upto == after;
        self.batches.range::<_, Revision>((Excluded(after), Included(upto))).filter(move |_| !skip).map(|(_, batch)| batch)
    }

    /// Removes and returns the oldest batch if it is older than `revision`.
    pub(crate) fn pop_before(&mut self, revision: Revision) -> Option<Arc<Batch>> {
        let first = self.first().filter(|first| *first < revision)?;
        self.batches.remove(&first)
    }
}
