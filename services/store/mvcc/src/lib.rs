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

pub mod codec;
pub mod command;
pub mod event;

mod check;
mod history;
mod lease;
mod memory;
mod past;
mod read;
mod restore;
mod snapshot;
mod state;
mod transact;
mod validate;

pub use command::{
    Command, Compare, CompareTarget, Comparison, DeleteRange, Fence, KeyRange, Op, OpOutcome, Outcome, Put, Range, Refusal, SortOrder, SortTarget,
    Txn, TxnOutcome, prefix_end,
};
pub use event::{Batch, Event, EventKind, KeyValue};
pub use lease::Lease;
pub use memory::{EVENT_OVERHEAD, MemoryUse, RECORD_OVERHEAD, record_bytes};
pub use restore::RestoreError;
pub use snapshot::Snapshot;
pub use state::{Applied, FIRST_REVISION, State};
