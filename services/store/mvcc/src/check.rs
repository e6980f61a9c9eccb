//! The invariants of a state, for tests to run after every mutation. Reads everything: not for production.

use std::collections::BTreeSet;

use crate::event::{Event, EventKind, KeyValue};
use crate::memory::{MemoryUse, event_bytes, record_bytes};
use crate::snapshot::Snapshot;
use crate::state::{FIRST_REVISION, State};

impl State {
    /// The first broken invariant in words.
    pub fn check(&self) -> Result<(), String> {
        let root = &self.root;
        ensure(root.revision >= FIRST_REVISION && root.compacted <= root.revision, || {
            format!("revision {}, compacted {}", root.revision, root.compacted)
        })?;
        check_records(root)?;
        check_leases(root)?;
        check_history(root)?;
        check_memory(root)
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn check_records(root: &Snapshot) -> Result<(), String> {
    for (key, kv) in &root.live {
        ensure(*key == kv.key, || format!("{key:?} holds the record of {:?}", kv.key))?;
        let ordered = FIRST_REVISION < kv.create_revision && kv.create_revision <= kv.mod_revision && kv.mod_revision <= root.revision;
        ensure(ordered && kv.version >= 1, || format!("counters of {kv:?} at revision {}", root.revision))?;
        ensure((kv.version == 1) == (kv.create_revision == kv.mod_revision), || format!("version of {kv:?}"))?;
    }
    Ok(())
}

fn check_leases(root: &Snapshot) -> Result<(), String> {
    let attached: BTreeSet<_> = root.live.values().filter(|kv| kv.lease != 0).map(|kv| (kv.lease, kv.key.clone())).collect();
    let held: BTreeSet<_> = root.leases.iter().flat_map(|(id, lease)| lease.keys.iter().map(|key| (*id, key.clone()))).collect();
    let marks: BTreeSet<_> = root.leases.values().map(|lease| lease.renewals).collect();
    let told_apart = marks.len() == root.leases.len() && marks.last().is_none_or(|last| *last <= root.lease_clock);
    ensure(told_apart, || format!("marks of leases {marks:?} at clock {}", root.lease_clock))?;
    ensure(attached == held, || format!("records are attached to {attached:?}, leases hold {held:?}"))
}

/// No gap, and undoing it from the live records passes through exactly the records it names.
fn check_history(root: &Snapshot) -> Result<(), String> {
    let mut then = root.live.clone();
    let mut next = root.revision;
    for batch in root.history.between(0, u64::MAX).rev() {
        ensure(batch.revision == next, || format!("batch {} where {next} belongs", batch.revision))?;
        ensure(!batch.events.is_empty(), || format!("batch {next} is empty"))?;
        for event in batch.events.iter().rev() {
            let after = then.remove(&event.kv.key);
            ensure(event_fits(event, after.as_deref(), next), || format!("{event:?} leads to {after:?} at revision {next}"))?;
            if let Some(prev) = &event.prev {
                then.insert(prev.key.clone(), prev.clone());
            }
        }
        next -= 1;
    }
    // The batch of the compacted revision may be there or not.
    let reaches_back = next <= root.compacted.max(FIRST_REVISION) && next + 1 >= root.compacted;
    ensure(reaches_back, || format!("history begins after {next}, compacted is {}", root.compacted))
}

fn event_fits(event: &Event, after: Option<&KeyValue>, revision: u64) -> bool {
    let prev = event.prev.as_deref();
    match event.kind {
        EventKind::Delete => after.is_none() && prev.is_some() && event.kv.mod_revision == revision,
        EventKind::Put => {
            let version = prev.map_or(0, |prev| prev.version) + 1;
            let create_revision = prev.map_or(revision, |prev| prev.create_revision);
            after.is_some_and(|after| {
                *after == *event.kv && (after.mod_revision, after.version, after.create_revision) == (revision, version, create_revision)
            })
        }
    }
}

fn check_memory(root: &Snapshot) -> Result<(), String> {
    let live = root.live.values().map(|kv| record_bytes(kv)).sum();
    let history = root.history.between(0, u64::MAX).flat_map(|batch| &batch.events).map(event_bytes).sum();
    let counted = MemoryUse { live, history };
    ensure(counted == root.memory, || format!("counted {counted:?}, kept {:?}", root.memory))
}
