//! What the replicated log carries, and what applying it answers.
//!
//! The shapes are etcd's v3 KV and Lease requests; [`Fence`] is the only addition.

use std::sync::Arc;

use bytes::Bytes;
use wheelhouse_base::{Revision, Term};

use crate::event::KeyValue;

/// A log entry's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Txn {
        txn: Txn,
        fence: Option<Fence>,
    },
    /// Drops history below `revision`. The only way history is lost, so that every replica retains the same window.
    Compact {
        revision: Revision,
    },
    /// `id` 0 is not allowed here: the proposer picks one.
    LeaseGrant {
        id: i64,
        ttl_secs: i64,
    },
    /// Deletes the lease's keys as one transaction.
    LeaseRevoke {
        id: i64,
    },
    /// Marks the lease as renewed. Time is no part of the state: whoever leads starts the lease's full time anew when the mark moves,
    /// so a renewal may enter on any replica and outlives a change of leader.
    LeaseRenew {
        id: i64,
    },
}

/// Refuses the transaction unless the log entry that carries it was proposed under this term.
/// It makes "one leadership at a time" exact: a controller's write counts only under the leadership that read its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    pub term: Term,
}

/// If every compare holds, `success` runs, else `failure`. All changes of one transaction share one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    pub compare: Vec<Compare>,
    pub success: Vec<Op>,
    pub failure: Vec<Op>,
}

/// `[start, end)` in byte order. `end == None` names the single key `start`; an `end` of one zero byte means "to the last key" (etcd's form).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Bytes,
    pub end: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub range: KeyRange,
    pub comparison: Comparison,
    pub target: CompareTarget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Greater,
    Less,
}

/// The value that the record's field is compared with. A missing key compares as all zeros and never as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    Version(u64),
    CreateRevision(Revision),
    ModRevision(Revision),
    Value(Bytes),
    Lease(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Range(Range),
    Put(Put),
    Delete(DeleteRange),
    Txn(Box<Txn>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    #[default]
    None,
    Ascend,
    Descend,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortTarget {
    #[default]
    Key,
    Version,
    Create,
    Mod,
    Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub range: KeyRange,
    /// 0 means the state as the transaction sees it.
    pub revision: Revision,
    /// 0 means no limit.
    pub limit: usize,
    pub sort_order: SortOrder,
    pub sort_target: SortTarget,
    pub keys_only: bool,
    pub count_only: bool,
    /// Inclusive bounds, 0 for none.
    pub min_mod_revision: Revision,
    pub max_mod_revision: Revision,
    pub min_create_revision: Revision,
    pub max_create_revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: Bytes,
    pub value: Bytes,
    pub lease: i64,
    pub prev_kv: bool,
    /// Keep the key's value (its absence is an error).
    pub ignore_value: bool,
    /// Keep the key's lease (its absence is an error).
    pub ignore_lease: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRange {
    pub range: KeyRange,
    pub prev_kv: bool,
}

/// A transaction's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnOutcome {
    /// Which branch ran.
    pub succeeded: bool,
    /// The store's revision after the transaction: its own if it changed something.
    pub revision: Revision,
    pub responses: Vec<OpOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpOutcome {
    /// `more`: the limit cut the answer; `count`: keys in the range regardless of the limit.
    Range {
        kvs: Vec<Arc<KeyValue>>,
        more: bool,
        count: usize,
    },
    Put {
        prev: Option<Arc<KeyValue>>,
    },
    Delete {
        deleted: usize,
        prevs: Vec<Arc<KeyValue>>,
    },
    Txn(TxnOutcome),
}

/// What applying a command answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Txn(TxnOutcome),
    /// The fence did not hold; nothing changed.
    Fenced {
        term: Term,
    },
    Compacted,
    LeaseGranted,
    LeaseRevoked {
        revision: Revision,
    },
    LeaseRenewed {
        ttl_secs: i64,
    },
    Failed(crate::command::Refusal),
}

/// A command that etcd answers with an error; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("required revision {requested} has been compacted; the oldest is {compacted}")]
    Compacted { requested: Revision, compacted: Revision },
    #[error("required revision {requested} is a future revision; the newest is {current}")]
    FutureRevision { requested: Revision, current: Revision },
    #[error("requested lease {0} not found")]
    LeaseNotFound(i64),
    #[error("lease {0} already exists")]
    LeaseExists(i64),
    #[error("key not found")]
    KeyNotFound,
    #[error("duplicate key given in txn request")]
    DuplicateKey,
    #[error("key is not provided")]
    EmptyKey,
    #[error("a value is provided together with ignore_value")]
    ValueProvided,
    #[error("a lease is provided together with ignore_lease")]
    LeaseProvided,
}

/// The end of a range that has none: etcd's form.
pub const TO_THE_LAST_KEY: &[u8] = b"\0";

impl KeyRange {
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self { start: key.into(), end: None }
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let end = prefix_end(&start);
        Self { start, end: Some(end) }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            None => key == &self.start[..],
            Some(end) => key >= &self.start[..] && (&end[..] == b"\0" || key < &end[..]),
        }
    }
}

/// The first key after all those that begin with `prefix`; one zero byte ("to the last key") if there is none.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return Bytes::from(end);
        }
    }
    Bytes::from_static(b"\0")
}

impl Txn {
    /// Runs `success` if `key` was last changed at `revision`; 0 means "if there is no such key".
    pub fn if_mod_revision(mut self, key: impl Into<Bytes>, revision: Revision) -> Self {
        self.compare.push(Compare { range: KeyRange::key(key), comparison: Comparison::Equal, target: CompareTarget::ModRevision(revision) });
        self
    }

    pub fn put(mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        let (key, value) = (key.into(), value.into());
        self.success.push(Op::Put(Put { key, value, lease: 0, prev_kv: false, ignore_value: false, ignore_lease: false }));
        self
    }

    pub fn delete(mut self, key: impl Into<Bytes>) -> Self {
        self.success.push(Op::Delete(DeleteRange { range: KeyRange::key(key), prev_kv: false }));
        self
    }

    /// Reads `key` in the other branch, so that a lost race answers with the record that won.
    pub fn else_get(mut self, key: impl Into<Bytes>) -> Self {
        self.failure.push(Op::Range(Range::of(KeyRange::key(key))));
        self
    }
}

impl Range {
    /// All of `range` as it is now.
    pub fn of(range: KeyRange) -> Self {
        Self {
            range,
            revision: 0,
            limit: 0,
            sort_order: SortOrder::None,
            sort_target: SortTarget::Key,
            keys_only: false,
            count_only: false,
            min_mod_revision: 0,
            max_mod_revision: 0,
            min_create_revision: 0,
            max_create_revision: 0,
        }
    }
}
