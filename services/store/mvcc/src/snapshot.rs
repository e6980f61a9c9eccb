//! An immutable view of the state at one revision.

use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;
use wheelhouse_base::Revision;

use crate::event::KeyValue;

/// The live records at one revision. Cloning costs a reference count; it shares structure with every other snapshot of the store.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(crate) live: OrdMap<Bytes, Arc<KeyValue>>,
    pub(crate) revision: Revision,
    pub(crate) compacted: Revision,
}

impl Snapshot {
    /// The revision of the newest change it holds.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// History at and below this revision may be gone.
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    pub fn get(&self, key: &[u8]) -> Option<&Arc<KeyValue>> {
        self.live.get(key)
    }

    /// Records with `start <= key < end` in key order; `end == None` reads to the last key. Resume with the last key and a zero byte appended.
    pub fn range<'a>(&'a self, start: &[u8], end: Option<&[u8]>) -> impl DoubleEndedIterator<Item = &'a Arc<KeyValue>> + use<'a> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let end = end.map_or(Unbounded, |end| Excluded(Bytes::copy_from_slice(end)));
        self.live.range::<_, Bytes>((Included(Bytes::copy_from_slice(start)), end)).map(|(_, kv)| kv)
    }
}
