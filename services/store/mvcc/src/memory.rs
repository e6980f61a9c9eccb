//! What a store's records weigh, counted as they come and go. An estimate of the heap that is the same on every replica.

use crate::event::{Event, KeyValue};

/// The heap that one record takes beside its key and value: the `Arc` with its counters, two shared byte buffers, its place in the tree.
pub const RECORD_OVERHEAD: u64 = 240;

/// The same for one event of the history: its place in the batch and the batch's own in the ring, as most batches hold one event.
pub const EVENT_OVERHEAD: u64 = 120;

/// Bytes held by one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Records that exist now.
    pub live: u64,
    /// Records and events that only the history still holds.
    pub history: u64,
}

/// One record's weight in bytes.
pub fn record_bytes(kv: &KeyValue) -> u64 {
    (kv.key.len() + kv.value.len()) as u64 + RECORD_OVERHEAD
}

/// What an event adds to the history. Its new record is not counted: it is either live or some later event's old one.
pub(crate) fn event_bytes(event: &Event) -> u64 {
    EVENT_OVERHEAD + event.prev.as_deref().map_or(0, record_bytes)
}
