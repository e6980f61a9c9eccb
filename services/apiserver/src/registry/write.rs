//! The write loop: decide from the current record, commit on condition that it is still current, decide again if not.
//!
//! ```text
//!   local snapshot --decide--> Step --commit--> done
//!        ^            |                  `- lost the race: newest snapshot, decide again
//!        |            `- refused, or nothing to do, by a record that may be old: newest snapshot, decide again
//! ```
//!
//! The first attempt reads this replica's own state, since the transaction's compare catches a stale one. Answers that commit nothing have no
//! compare, so they are given only by a linearizable read.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use wheelhouse_base::Revision;
use wheelhouse_meta::Status;
use wheelhouse_mvcc::{Compare, KeyValue, Op, Put, Snapshot, Txn};

use super::Call;
use crate::encode::{Item, read};
use crate::request::Answer;
use crate::resource::Resource;
use crate::stored;

/// Attempts before a write gives up with a conflict. Each lost attempt means that another write won.
const MAX_ATTEMPTS: usize = 32;

/// The object as it is now.
pub struct Current {
    pub object: Value,
    pub record: Arc<KeyValue>,
}

/// What was decided.
pub enum Step {
    /// The object is as it should be.
    Unchanged,
    Put {
        object: Value,
        also: Also,
    },
    /// The object goes; `object` is its last state, which the answer shows.
    Remove {
        object: Value,
        also: Also,
    },
}

/// What else belongs to the same transaction.
#[derive(Default)]
pub struct Also {
    pub compare: Vec<Compare>,
    pub operations: Vec<Op>,
}

impl Also {
    pub fn extend(&mut self, other: Also) {
        self.compare.extend(other.compare);
        self.operations.extend(other.operations);
    }
}

/// What was written.
pub struct Written {
    /// 0 for a dry run of a creation.
    pub revision: Revision,
    /// The revision that the object had before; 0 if it was not there.
    pub replaced: Revision,
    pub value: Bytes,
    pub created: bool,
    pub removed: bool,
}

/// One write on its way: hand out the record, take the decision, say whether it is done.
///
/// ```ignore
/// let written = loop {
///     let current = writer.current()?;
///     let decided = decide(current.as_ref(), writer.snapshot()).await;
///     if let Some(written) = writer.conclude(current, decided).await? { break written }
/// };
/// ```
pub struct Writer<'a> {
    call: &'a Call<'a>,
    resource: Arc<Resource>,
    key: Bytes,
    dry_run: bool,
    snapshot: Snapshot,
    /// The snapshot was read after everything that was acknowledged before this request.
    newest: bool,
    attempts: usize,
}

impl<'a> Writer<'a> {
    pub fn begin(call: &'a Call<'a>, resource: &Arc<Resource>, key: Bytes, dry_run: bool) -> Self {
        let snapshot = call.server.storage.local();
        Self { call, resource: Arc::clone(resource), key, dry_run, snapshot, newest: false, attempts: 0 }
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub fn current(&self) -> Answer<Option<Current>> {
        current(&self.resource, &self.snapshot, &self.key)
    }

    /// Commits what was decided about `current`. `None`: look at the record again and decide again.
    pub async fn conclude(&mut self, current: Option<Current>, decided: Answer<Step>) -> Answer<Option<Written>> {
        let storage = &self.call.server.storage;
        self.attempts += 1;
        if !self.newest && matches!(decided, Err(_) | Ok(Step::Unchanged)) {
            let fresh = storage.linearizable().await?;
            let same = fresh.revision() == self.snapshot.revision();
            (self.snapshot, self.newest) = (fresh, true);
            if !same {
                return Ok(None);
            }
        }
        let revision = current.as_ref().map_or(0, |current| current.record.mod_revision);
        let (object, also, removed) = match decided? {
            Step::Unchanged => {
                let Some(current) = current else { return Err(Status::internal_error("nothing was decided about an absent object").into()) };
                let value = current.record.value.clone();
                return Ok(Some(Written { revision, replaced: revision, value, created: false, removed: false }));
            }
            Step::Put { object, also } => (object, also, false),
            Step::Remove { object, also } => (object, also, true),
        };
        let value = stored::encode(&object);
        let created = revision == 0;
        if self.dry_run {
            return Ok(Some(Written { revision, replaced: revision, value, created, removed }));
        }
        let lease = lease(self.call, &self.resource).await?;
        let txn = transaction(&self.key, revision, (!removed).then(|| value.clone()), also, lease);
        let outcome = storage.commit(txn, self.call.fence, &self.resource.group_resource).await?;
        if outcome.succeeded {
            return Ok(Some(Written { revision: outcome.revision, replaced: revision, value, created, removed }));
        }
        if self.attempts >= MAX_ATTEMPTS {
            return Err(Status::optimistic_lock(&self.resource.group_resource, self.call.name()).into());
        }
        (self.snapshot, self.newest) = (storage.linearizable().await?, true);
        Ok(None)
    }
}

/// The record under a key, decoded.
pub fn current(resource: &Resource, snapshot: &Snapshot, key: &[u8]) -> Answer<Option<Current>> {
    let Some(record) = snapshot.get(key) else { return Ok(None) };
    let object = read(resource, Item { revision: record.mod_revision, value: &record.value })?;
    Ok(Some(Current { object, record: Arc::clone(record) }))
}

fn transaction(key: &Bytes, revision: Revision, value: Option<Bytes>, also: Also, lease: i64) -> Txn {
    let mut txn = Txn::default().if_mod_revision(key.clone(), revision);
    txn = match value {
        Some(value) => {
            txn.success.push(Op::Put(Put { key: key.clone(), value, lease, prev_kv: false, ignore_value: false, ignore_lease: false }));
            txn
        }
        None => txn.delete(key.clone()),
    };
    txn.compare.extend(also.compare);
    txn.success.extend(also.operations);
    txn
}

/// Events live an hour.
async fn lease(call: &Call<'_>, resource: &Resource) -> Answer<i64> {
    if resource.is("", "events") || resource.is("events.k8s.io", "events") {
        call.server.event_leases.current(&call.server.storage).await
    } else {
        Ok(0)
    }
}
