//! What clients of simulated hosts saw, and the replicas' own word on what happened. The verdict is [`wheelhouse_history`]'s.
//!
//! The replicas keep every revision of a run, so the order of all changes is in hand; that all replicas have the same one is judged here.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use wheelhouse_base::Revision;
use wheelhouse_history::{Change, Claim, Seen, Step};
use wheelhouse_mvcc::{Batch, Event, EventKind, Snapshot};

/// Where controllers write their claims.
pub const CLAIMS: &str = "/registry/core/claims/";

#[derive(Default)]
pub struct Oracle {
    pub seen: Seen,
    samples: HashMap<Revision, (usize, u64)>,
}

/// A claim as a controller writes it.
pub fn encode(claim: &Claim) -> String {
    format!("{} {}", claim.term, claim.holder)
}

fn decode(value: &[u8]) -> Option<Claim> {
    let (term, holder) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some(Claim { term: term.parse().ok()?, holder: holder.to_owned() })
}

/// One revision as the judge sees it.
pub fn step(revision: Revision, events: &[Event]) -> Step {
    let change = |event: &Event| Change { key: event.kv.key.clone(), value: (event.kind == EventKind::Put).then(|| event.kv.value.clone()) };
    Step { revision, changes: events.iter().map(change).collect() }
}

/// A fingerprint of everything a snapshot holds.
pub fn content(snapshot: &Snapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    for kv in snapshot.range(b"", None) {
        (&kv.key, &kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease).hash(&mut hasher);
    }
    hasher.finish()
}

impl Oracle {
    pub fn sample(&mut self, host: usize, revision: Revision, content: u64) {
        let (first, seen) = *self.samples.entry(revision).or_insert((host, content));
        if seen != content {
            self.seen.broken.push(format!("hosts {first} and {host} differ at revision {revision}"));
        }
    }

    pub fn judge(&mut self, snapshots: &[Snapshot]) -> Result<(), String> {
        let histories: Vec<Vec<Arc<Batch>>> = snapshots
            .iter()
            .map(|snapshot| snapshot.history_since(1).map(|batches| batches.cloned().collect()).map_err(|e| format!("history is gone: {e}")))
            .collect::<Result<_, _>>()?;
        for (i, snapshot) in snapshots.iter().enumerate() {
            if content(snapshot) != content(&snapshots[0]) || histories[i] != histories[0] {
                return Err(format!("replica {i} ends in another state than replica 0"));
            }
        }
        let steps: Vec<Step> = histories[0].iter().map(|batch| step(batch.revision, &batch.events)).collect();
        self.seen.claims = claims(&steps)?;
        self.seen.judge(&steps)
    }
}

fn claims(steps: &[Step]) -> Result<Vec<(Revision, Claim)>, String> {
    let written = steps.iter().flat_map(|step| step.changes.iter().map(|change| (step.revision, change)));
    let claims = written.filter(|(_, change)| change.key.starts_with(CLAIMS.as_bytes()));
    let read = |(revision, change): (Revision, &Change)| {
        let claim = change.value.as_ref().and_then(|value| decode(value));
        claim.map(|claim| (revision, claim)).ok_or_else(|| "a claim that no controller made".to_owned())
    };
    claims.map(read).collect()
}

/// What only this oracle judges; the rest is tested with the judge.
mod tests {
    use wheelhouse_mvcc::{Command, State, Txn};

    use super::*;

    fn put(state: &mut State, key: &str, value: &str) {
        let txn = Txn::default().put(key.to_owned(), value.to_owned());
        state.apply(&Command::Txn { txn, fence: None }, 1);
    }

    #[test]
    fn replicas_that_differ_are_found() {
        let (mut one, mut other) = (State::new(), State::new());
        put(&mut one, "/a", "1");
        put(&mut other, "/a", "2");
        let verdict = Oracle::default().judge(&[one.snapshot(), other.snapshot()]).unwrap_err();
        assert!(verdict.contains("another state"), "{verdict}");
        Oracle::default().judge(&[one.snapshot(), one.snapshot()]).unwrap();
        let mut oracle = Oracle::default();
        oracle.sample(0, 2, content(&one.snapshot()));
        oracle.sample(1, 2, content(&other.snapshot()));
        assert!(oracle.judge(&[one.snapshot()]).unwrap_err().contains("hosts 0 and 1 differ at revision 2"));
    }

    #[test]
    fn two_leaderships_are_found() {
        let mut state = State::new();
        for (n, holder) in ["1", "2"].into_iter().enumerate() {
            put(&mut state, &format!("{CLAIMS}{n}"), &encode(&Claim { holder: holder.to_owned(), term: 5 }));
        }
        let verdict = Oracle::default().judge(&[state.snapshot()]).unwrap_err();
        assert!(verdict.contains("acted under term 5"), "{verdict}");
    }
}
