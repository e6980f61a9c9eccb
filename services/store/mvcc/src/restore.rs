//! A state made again from what was stored: header, records, and as much history as there is.

use std::sync::Arc;

use bytes::Bytes;
use wheelhouse_base::Revision;

use crate::codec::{Header, StoredBatch};
use crate::event::{Batch, Event, EventKind, KeyValue};
use crate::lease::Lease;
use crate::memory::{event_bytes, record_bytes};
use crate::snapshot::Snapshot;
use crate::state::{FIRST_REVISION, State};

/// What was stored does not fit together: the replica has lost or damaged bytes and must not serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    #[error("record {key:?} is of revision {found}, after the state's {revision}")]
    RecordFromTheFuture { key: Bytes, found: Revision, revision: Revision },
    #[error("record {0:?} occurs twice")]
    DuplicateRecord(Bytes),
    #[error("record {key:?} is attached to lease {lease}, which does not exist")]
    UnknownLease { key: Bytes, lease: i64 },
    #[error("the history has revision {found} where {wanted} belongs")]
    HistoryGap { found: Revision, wanted: Revision },
    #[error("the history's change of {key:?} at revision {revision} does not lead to the record that follows it")]
    HistoryMismatch { key: Bytes, revision: Revision },
}

impl State {
    /// `history` is newest first and ends wherever it was cut off; it may be empty. What it does not reach counts as compacted.
    pub fn restore(
        header: &Header,
        records: impl IntoIterator<Item = KeyValue>,
        history: impl IntoIterator<Item = StoredBatch>,
    ) -> Result<Self, RestoreError> {
        let mut root = Snapshot { revision: header.revision.max(FIRST_REVISION), lease_clock: header.lease_clock, ..Snapshot::default() };
        for (id, ttl_secs, renewals) in &header.leases {
            root.leases.insert(*id, Arc::new(Lease { ttl_secs: *ttl_secs, renewals: *renewals, ..Lease::default() }));
        }
        for kv in records {
            add_record(&mut root, kv)?;
        }
        let oldest = undo_history(&mut root, history, header.compacted)?;
        root.compacted = header.compacted.max(if oldest > FIRST_REVISION + 1 { oldest - 1 } else { 0 });
        Ok(Self { root })
    }
}

fn add_record(root: &mut Snapshot, kv: KeyValue) -> Result<(), RestoreError> {
    if kv.mod_revision > root.revision {
        return Err(RestoreError::RecordFromTheFuture { key: kv.key, found: kv.mod_revision, revision: root.revision });
    }
    if kv.lease != 0 {
        let Some(lease) = root.leases.get_mut(&kv.lease) else { return Err(RestoreError::UnknownLease { key: kv.key, lease: kv.lease }) };
        Arc::make_mut(lease).keys.insert(kv.key.clone());
    }
    root.memory.live += record_bytes(&kv);
    match root.live.insert(kv.key.clone(), Arc::new(kv)) {
        None => Ok(()),
        Some(double) => Err(RestoreError::DuplicateRecord(double.key.clone())),
    }
}

/// Walks back from the live records, finding each change's new record on the way. Returns the oldest revision of which the change is known.
fn undo_history(root: &mut Snapshot, history: impl IntoIterator<Item = StoredBatch>, compacted: Revision) -> Result<Revision, RestoreError> {
    let mut then = root.live.clone();
    let mut oldest = root.revision + 1;
    for stored in history.into_iter().take_while(|batch| batch.revision >= compacted) {
        if stored.revision != oldest - 1 {
            return Err(RestoreError::HistoryGap { found: stored.revision, wanted: oldest - 1 });
        }
        oldest = stored.revision;
        let mut events = Vec::with_capacity(stored.events.len());
        for event in stored.events.into_iter().rev() {
            let after = then.remove(&event.key);
            let kv = match (event.kind, after) {
                (EventKind::Put, Some(after)) if after.mod_revision == oldest => after,
                (EventKind::Delete, None) => {
                    let key = event.key.clone();
                    Arc::new(KeyValue { key, value: Bytes::new(), create_revision: 0, mod_revision: oldest, version: 0, lease: 0 })
                }
                _ => return Err(RestoreError::HistoryMismatch { key: event.key, revision: oldest }),
            };
            let prev = event.prev.map(Arc::new);
            if let Some(prev) = &prev {
                then.insert(event.key, prev.clone());
            }
            events.push(Event { kind: event.kind, kv, prev });
        }
        events.reverse();
        root.memory.history += events.iter().map(event_bytes).sum::<u64>();
        root.history.push(Arc::new(Batch { revision: oldest, events }));
    }
    Ok(oldest)
}
