//! The judge of histories: what clients saw of a store, and whether one order of changes explains all of it.
//!
//! A store numbers its changes, so the judge has the total order of all of them in hand (from the replicas themselves, or from a watch that
//! missed nothing). Linearizability then means: every acknowledged write is in that order, at the revision that was answered and with the state
//! before it that its compare saw; no refused write is; nothing is in it that nobody wrote; and the order respects real time, reads included:
//! nothing that began after another ended comes before it. Watches must tell the whole order and nothing else, and controllers must have acted
//! under one leadership at a time.
//!
//! Not chosen: a search for any order that would do. It needs no revisions, costs exponential time, and accepts more than what is promised.
//!
//! One suite judges simulated groups with it, another one real processes behind their endpoints.

mod judge;
mod seen;

pub use seen::{Claim, Mark, Read, Seen, Write, WriteResult};

use bytes::Bytes;
use wheelhouse_base::Revision;

/// What happened to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Bytes,
    /// `None`: deleted.
    pub value: Option<Bytes>,
}

/// All changes of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub revision: Revision,
    pub changes: Vec<Change>,
}
