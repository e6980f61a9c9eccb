//! Records and changes.

use std::sync::Arc;

use bytes::Bytes;
use wheelhouse_base::Revision;

/// One key's current record, with etcd's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    /// Revision at which the key came into being (this life of it).
    pub create_revision: Revision,
    /// Revision of its last change.
    pub mod_revision: Revision,
    /// Changes in this life, starting at 1.
    pub version: u64,
    /// The lease that holds it, 0 for none.
    pub lease: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Put,
    Delete,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    /// The new record; for a deletion only `key` and `mod_revision` (the deletion's revision) are set.
    pub kv: Arc<KeyValue>,
    /// The record before the change, `None` for a creation.
    pub prev: Option<Arc<KeyValue>>,
}

/// All events of one revision, in the order of their operations. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub revision: Revision,
    pub events: Vec<Event>,
}
