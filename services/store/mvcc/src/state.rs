//! The machine itself: commands in, outcomes and events out.

use std::sync::Arc;

use bytes::Bytes;
use wheelhouse_base::{Revision, Term};

use crate::command::{Command, KeyRange, Outcome, Refusal};
use crate::event::{Batch, Event, EventKind, KeyValue};
use crate::lease::Lease;
use crate::memory::{event_bytes, record_bytes};
use crate::snapshot::Snapshot;

/// The revision of a store in which nothing was ever written. etcd's.
pub const FIRST_REVISION: Revision = 1;

/// One cluster's store. Owned by whoever applies the log; readers take [`snapshot`](Self::snapshot)s.
///
/// Not `Clone`: two states that part ways must not share the cache of past roots.
#[derive(Debug)]
pub struct State {
    pub(crate) root: Snapshot,
}

/// What one command did.
#[derive(Clone, Debug)]
pub struct Applied {
    pub outcome: Outcome,
    /// The events of the revision that the command made, if it changed a record.
    pub batch: Option<Arc<Batch>>,
}

impl Applied {
    fn without_events(outcome: Outcome) -> Self {
        Self { outcome, batch: None }
    }
}

impl From<Refusal> for Applied {
    fn from(refusal: Refusal) -> Self {
        Self::without_events(Outcome::Failed(refusal))
    }
}

impl Default for State {
    fn default() -> Self {
        Self { root: Snapshot { revision: FIRST_REVISION, ..Snapshot::default() } }
    }
}

impl State {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The state as it is now. Costs a few reference counts.
    pub fn snapshot(&self) -> Snapshot {
        self.root.clone()
    }

    /// The state as it is now, without taking a snapshot.
    pub fn root(&self) -> &Snapshot {
        &self.root
    }

    /// Applies a command of a log entry that was proposed under `term`. A refused command changes nothing.
    pub fn apply(&mut self, command: &Command, term: Term) -> Applied {
        match command {
            Command::Txn { fence: Some(fence), .. } if fence.term != term => Applied::without_events(Outcome::Fenced { term }),
            Command::Txn { txn, .. } => self.transact(txn),
            Command::Compact { revision } => self.compact(*revision),
            Command::LeaseGrant { id, ttl_secs } => self.grant(*id, *ttl_secs),
            Command::LeaseRevoke { id } => self.revoke(*id),
            Command::LeaseRenew { id } => self.renew(*id),
        }
    }

    fn compact(&mut self, revision: Revision) -> Applied {
        let root = &mut self.root;
        if revision <= root.compacted {
            return Refusal::Compacted { requested: revision, compacted: root.compacted }.into();
        }
        if revision > root.revision {
            return Refusal::FutureRevision { requested: revision, current: root.revision }.into();
        }
        root.compacted = revision;
        self.drop_history_before(revision);
        Applied::without_events(Outcome::Compacted)
    }

    pub(crate) fn drop_history_before(&mut self, revision: Revision) {
        while let Some(batch) = self.root.history.pop_before(revision) {
            self.root.memory.history -= batch.events.iter().map(event_bytes).sum::<u64>();
        }
        self.root.past.drop_before(revision);
    }

    fn grant(&mut self, id: i64, ttl_secs: i64) -> Applied {
        if id == 0 {
            return Refusal::LeaseNotFound(id).into();
        }
        if self.root.leases.contains_key(&id) {
            return Refusal::LeaseExists(id).into();
        }
        self.root.lease_clock += 1;
        self.root.leases.insert(id, Arc::new(Lease { ttl_secs, renewals: self.root.lease_clock, ..Lease::default() }));
        Applied::without_events(Outcome::LeaseGranted)
    }

    fn renew(&mut self, id: i64) -> Applied {
        let Some(lease) = self.root.leases.get_mut(&id) else { return Refusal::LeaseNotFound(id).into() };
        let lease = Arc::make_mut(lease);
        self.root.lease_clock += 1;
        lease.renewals = self.root.lease_clock;
        Applied::without_events(Outcome::LeaseRenewed { ttl_secs: lease.ttl_secs })
    }

    fn revoke(&mut self, id: i64) -> Applied {
        let Some(lease) = self.root.leases.get(&id).cloned() else { return Refusal::LeaseNotFound(id).into() };
        let mut change = Change::begin(&mut self.root);
        lease.keys.iter().for_each(|key| {
            change.delete(&KeyRange::key(key.clone()));
        });
        let batch = change.finish();
        self.root.leases.remove(&id);
        Applied { outcome: Outcome::LeaseRevoked { revision: self.root.revision }, batch }
    }
}

/// The records that one transaction changes, all under the next revision.
pub(crate) struct Change<'s> {
    pub(crate) root: &'s mut Snapshot,
    revision: Revision,
    events: Vec<Event>,
}

impl<'s> Change<'s> {
    pub(crate) fn begin(root: &'s mut Snapshot) -> Self {
        let revision = root.revision + 1;
        Self { root, revision, events: Vec::new() }
    }

    /// Writes a record and returns the one before. `value` and `lease` default to what the old record holds, which the caller has checked to exist.
    pub(crate) fn put(&mut self, key: &Bytes, value: Option<&Bytes>, lease: Option<i64>) -> Option<Arc<KeyValue>> {
        let prev = self.root.live.get(key).cloned();
        let old = prev.as_deref();
        let kv = Arc::new(KeyValue {
            // The first record's key serves all later ones.
            key: old.map_or_else(|| key.clone(), |old| old.key.clone()),
            value: value.or(old.map(|old| &old.value)).cloned().unwrap_or_default(),
            create_revision: old.map_or(self.revision, |old| old.create_revision),
            mod_revision: self.revision,
            version: old.map_or(0, |old| old.version) + 1,
            lease: lease.unwrap_or_else(|| old.map_or(0, |old| old.lease)),
        });
        if old.map_or(0, |old| old.lease) != kv.lease {
            if let Some(old) = old {
                self.detach(old);
            }
            self.attach(&kv);
        }
        self.root.live.insert(kv.key.clone(), kv.clone());
        self.root.memory.live += record_bytes(&kv);
        self.record(EventKind::Put, kv, prev.clone());
        prev
    }

    /// Removes every record in `range` and returns them in key order.
    pub(crate) fn delete(&mut self, range: &KeyRange) -> Vec<Arc<KeyValue>> {
        let doomed: Vec<_> = self.root.records(range).cloned().collect();
        for prev in &doomed {
            self.detach(prev);
            self.root.live.remove(&prev.key);
            let tombstone =
                KeyValue { key: prev.key.clone(), value: Bytes::new(), create_revision: 0, mod_revision: self.revision, version: 0, lease: 0 };
            self.record(EventKind::Delete, Arc::new(tombstone), Some(prev.clone()));
        }
        doomed
    }

    pub(crate) fn changed(&self) -> bool {
        !self.events.is_empty()
    }

    /// Counts the revision if anything changed.
    pub(crate) fn finish(self) -> Option<Arc<Batch>> {
        if self.events.is_empty() {
            return None;
        }
        let batch = Arc::new(Batch { revision: self.revision, events: self.events });
        self.root.revision = self.revision;
        self.root.history.push(batch.clone());
        Some(batch)
    }

    fn record(&mut self, kind: EventKind, kv: Arc<KeyValue>, prev: Option<Arc<KeyValue>>) {
        let event = Event { kind, kv, prev };
        self.root.memory.live -= event.prev.as_deref().map_or(0, record_bytes);
        self.root.memory.history += event_bytes(&event);
        self.events.push(event);
    }

    fn attach(&mut self, kv: &KeyValue) {
        if let Some(lease) = self.root.leases.get_mut(&kv.lease) {
            Arc::make_mut(lease).keys.insert(kv.key.clone());
        }
    }

    fn detach(&mut self, kv: &KeyValue) {
        if let Some(lease) = self.root.leases.get_mut(&kv.lease) {
            Arc::make_mut(lease).keys.remove(&kv.key);
        }
    }
}
