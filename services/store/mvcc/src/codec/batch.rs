//! One batch of the history, as what undoes it.
//!
//! A change's new record is either live or the old record of a later change, so the old records alone are stored, and
//! [`State::restore`](crate::State::restore) finds the new ones by walking backwards. That halves what the history costs on disk.

use bytes::Bytes;
use wheelhouse_base::Revision;

use super::{CodecError, begin, open, record};
use crate::event::{Batch, EventKind, KeyValue};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    pub revision: Revision,
    pub events: Vec<StoredEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    pub kind: EventKind,
    pub key: Bytes,
    /// The record before the change.
    pub prev: Option<KeyValue>,
}

const CREATED: u8 = 0;
const CHANGED: u8 = 1;
const DELETED: u8 = 2;

/// Appends what undoes `batch`.
pub fn encode_batch(batch: &Batch, out: &mut Vec<u8>) {
    let mut w = begin(out);
    w.unsigned(batch.revision);
    w.len(batch.events.len());
    for event in &batch.events {
        match (&event.prev, event.kind) {
            (None, _) => {
                w.byte(CREATED);
                w.bytes(&event.kv.key);
            }
            (Some(prev), kind) => {
                w.byte(if kind == EventKind::Put { CHANGED } else { DELETED });
                record::write(&mut w, prev);
            }
        }
    }
}

pub fn decode_batch(bytes: &[u8]) -> Result<StoredBatch, CodecError> {
    let mut r = open(bytes)?;
    let revision = r.unsigned()?;
    let events = (0..r.len()?).map(|_| {
        let kind = match r.byte()? {
            CREATED => return Ok(StoredEvent { kind: EventKind::Put, key: r.bytes()?, prev: None }),
            CHANGED => EventKind::Put,
            DELETED => EventKind::Delete,
            tag => return Err(CodecError::UnknownTag { what: "kind of event", tag }),
        };
        let prev = record::read(&mut r)?;
        Ok(StoredEvent { kind, key: prev.key.clone(), prev: Some(prev) })
    });
    let events = events.collect::<Result<_, _>>()?;
    r.end()?;
    Ok(StoredBatch { revision, events })
}
