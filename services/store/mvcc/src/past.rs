//! A few older roots, so that the later pages of a list do not undo the same events again. A cache: no answer depends on it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use imbl::OrdMap;
use wheelhouse_base::Revision;

use crate::event::KeyValue;

/// Roots kept per store. Each pins the tree nodes changed since (the records are in the history anyway); four let a few clients page
/// through large lists at the same time.
const KEPT: usize = 4;

type Root = OrdMap<Bytes, Arc<KeyValue>>;

/// Shared by all snapshots of one store. Most recently used last.
#[derive(Clone, Debug, Default)]
pub(crate) struct PastRoots(Arc<Mutex<VecDeque<(Revision, Root)>>>);

impl PastRoots {
    /// The kept root with the least revision that is not below `revision`.
    pub(crate) fn nearest(&self, revision: Revision) -> Option<(Revision, Root)> {
        self.lock().iter().filter(|(at, _)| *at >= revision).min_by_key(|(at, _)| *at).cloned()
    }

    pub(crate) fn keep(&self, revision: Revision, root: Root) {
        let mut roots = self.lock();
        roots.retain(|(at, _)| *at != revision);
        if roots.len() == KEPT {
            roots.pop_front();
        }
        roots.push_back((revision, root));
    }

    pub(crate) fn drop_before(&self, revision: Revision) {
        self.lock().retain(|(at, _)| *at >= revision);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Revision, Root)>> {
        // A list of immutable roots is whole whatever its last holder did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
