//! The state of one cluster's store: etcd's data model as a pure, synchronous machine.
//!
//! ```text
//! Command (from the replicated log) --> State::apply --> Outcome + Batch of events
//!                                          |
//!                                          v
//!                                     Snapshot: an immutable root that shares structure with its successors
//! ```
//!
//! `apply` is deterministic: no clock, no randomness, no iteration over unordered maps, so every replica that applies the same
//! commands holds the same bytes. Values are opaque; nothing here decodes an object.

pub mod command;
pub mod event;

pub use command::{
    Command, Comparison, Compare, CompareTarget, DeleteRange, Fence, KeyRange, Op, OpOutcome, Outcome, Put, Range, Refusal, SortOrder, SortTarget, Txn,
    TxnOutcome,
};
pub use event::{Batch, Event, EventKind, KeyValue};

mod snapshot;
pub use snapshot::Snapshot;
