//! What clients saw, and whether one history explains all of it.
//!
//! The replicas keep every revision of a run, so the judge has the total order of all writes in hand. Linearizability then means: every
//! acknowledged write is in it, at the revision that was answered and with the state before it that its compare saw; no refused write is;
//! and the order respects real time, reads included: nothing that began after another ended comes before it.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use wheelhouse_base::{Revision, Term};
use wheelhouse_mvcc::{Batch, EventKind, Snapshot};

#[derive(Default)]
pub struct Oracle {
    clock: u64,
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    /// What each host's watches told, over all its lives.
    pub watched: HashMap<usize, Vec<(Revision, Vec<Bytes>)>>,
    samples: HashMap<Revision, (usize, u64)>,
    /// Broken promises noticed on the way.
    pub broken: Vec<String>,
}

pub struct Write {
    pub invoked: u64,
    pub completed: u64,
    pub key: Bytes,
    pub marker: Bytes,
    pub value: Bytes,
    pub delete: bool,
    /// The modification revision that it required.
    pub compare: Option<Revision>,
    pub result: WriteResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    Done(Revision),
    /// The compare did not hold at this revision.
    Lost(Revision),
    /// Certainly not done.
    NotDone,
    Unknown,
}

pub struct Read {
    pub invoked: u64,
    pub completed: u64,
    pub revision: Revision,
    pub key: Bytes,
    pub found: Option<(Bytes, Revision)>,
}

/// A controller's write: who leads which term.
pub struct Claim {
    pub host: usize,
    pub term: Term,
}

impl Claim {
    pub fn encode(&self) -> String {
        format!("{} {}", self.term, self.host)
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (term, host) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        Some(Self { term: term.parse().ok()?, host: host.parse().ok()? })
    }
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
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub fn sample(&mut self, host: usize, revision: Revision, content: u64) {
        let (first, seen) = *self.samples.entry(revision).or_insert((host, content));
        if seen != content {
            self.broken.push(format!("hosts {first} and {host} differ at revision {revision}"));
        }
    }

    pub fn judge(&self, snapshots: &[Snapshot]) -> Result<(), String> {
        if let Some(broken) = self.broken.first() {
            return Err(broken.clone());
        }
        let histories: Vec<Vec<Arc<Batch>>> = snapshots
            .iter()
            .map(|snapshot| snapshot.history_since(1).map(|batches| batches.cloned().collect()).map_err(|e| format!("history is gone: {e}")))
            .collect::<Result<_, _>>()?;
        for (i, snapshot) in snapshots.iter().enumerate() {
            if content(snapshot) != content(&snapshots[0]) || histories[i] != histories[0] {
                return Err(format!("replica {i} ends in another state than replica 0"));
            }
        }
        let history = &histories[0];
        self.judge_writes(history)?;
        self.judge_reads(history)?;
        self.judge_order(history)?;
        self.judge_watches(history)?;
        judge_claims(history)
    }

    fn judge_writes(&self, history: &[Arc<Batch>]) -> Result<(), String> {
        let mut markers: HashMap<&Bytes, Vec<&Batch>> = HashMap::new();
        for batch in history {
            for event in batch.events.iter().filter(|event| event.kv.key.starts_with(b"/registry/core/markers/")) {
                markers.entry(&event.kv.key).or_default().push(batch);
            }
        }
        for write in &self.writes {
            let name = String::from_utf8_lossy(&write.value);
            let found = markers.get(&write.marker).map_or(&[][..], Vec::as_slice);
            match (write.result, found) {
                (WriteResult::Done(revision), [batch]) if batch.revision == revision => {}
                (WriteResult::Done(revision), found) => {
                    return Err(format!("write {name} was acknowledged at {revision}, but is in {} batches", found.len()));
                }
                (WriteResult::Lost(_) | WriteResult::NotDone, []) | (WriteResult::Unknown, [] | [_]) => {}
                (result, _) => return Err(format!("write {name} ended {result:?}, but is in the history")),
            }
            let Some(batch) = found.first() else { continue };
            let event = batch.events.iter().find(|event| event.kv.key == write.key);
            let before = event.and_then(|event| event.prev.as_ref()).map_or(0, |prev| prev.mod_revision);
            let expected = match event {
                Some(event) if write.delete => event.kind == EventKind::Delete,
                Some(event) => event.kind == EventKind::Put && event.kv.value == write.value,
                // Deleting what is not there changes nothing.
                None => write.delete,
            };
            if !expected || write.compare.is_some_and(|compare| compare != before && event.is_some()) {
                return Err(format!("write {name} did something else at {}", batch.revision));
            }
        }
        Ok(())
    }

    fn judge_reads(&self, history: &[Arc<Batch>]) -> Result<(), String> {
        let mut versions: HashMap<&Bytes, BTreeMap<Revision, Option<Bytes>>> = HashMap::new();
        for batch in history {
            for event in &batch.events {
                let value = (event.kind == EventKind::Put).then(|| event.kv.value.clone());
                versions.entry(&event.kv.key).or_default().insert(batch.revision, value);
            }
        }
        for read in &self.reads {
            let newest = versions.get(&read.key).and_then(|versions| versions.range(..=read.revision).next_back());
            let expected = newest.and_then(|(revision, value)| value.clone().map(|value| (value, *revision)));
            if expected != read.found {
                return Err(format!("a read of {:?} at {} found {:?} instead of {expected:?}", read.key, read.revision, read.found));
            }
        }
        Ok(())
    }

    /// Nothing that began after another ended may come before it.
    fn judge_order(&self, history: &[Arc<Batch>]) -> Result<(), String> {
        // (time, revision): what was certain at that time.
        let done = self.writes.iter().filter_map(|write| match write.result {
            WriteResult::Done(revision) | WriteResult::Lost(revision) => Some((write.completed, revision)),
            WriteResult::NotDone | WriteResult::Unknown => None,
        });
        let mut certain: Vec<_> = done.chain(self.reads.iter().map(|read| (read.completed, read.revision))).collect();
        certain.sort_unstable();
        let mut newest = 0;
        for (_, revision) in &mut certain {
            newest = newest.max(*revision);
            *revision = newest;
        }
        let before = |time: u64| certain[..certain.partition_point(|(at, _)| *at < time)].last().map_or(0, |(_, revision)| *revision);
        for write in &self.writes {
            let floor = before(write.invoked);
            let name = String::from_utf8_lossy(&write.value);
            match write.result {
                WriteResult::Done(revision) if revision <= floor => {
                    return Err(format!("write {name} at {revision} began after {floor} was certain"));
                }
                WriteResult::Lost(revision) if revision < floor => return Err(format!("write {name} lost at {revision} after {floor} was certain")),
                _ => {}
            }
        }
        for read in &self.reads {
            let floor = before(read.invoked);
            if read.revision < floor {
                return Err(format!("a read answered revision {} after {floor} was certain", read.revision));
            }
        }
        // An unknown write that took effect did so after it began.
        let unknown: HashMap<&Bytes, u64> = self.writes.iter().filter(|w| w.result == WriteResult::Unknown).map(|w| (&w.marker, w.invoked)).collect();
        for batch in history {
            for invoked in batch.events.iter().filter_map(|event| unknown.get(&event.kv.key)) {
                if batch.revision <= before(*invoked) {
                    return Err(format!("an unknown write took effect at {}, before it began", batch.revision));
                }
            }
        }
        Ok(())
    }

    fn judge_watches(&self, history: &[Arc<Batch>]) -> Result<(), String> {
        for (host, seen) in &self.watched {
            let told: Vec<_> = seen.iter().map(|(revision, keys)| (*revision, keys.clone())).collect();
            let expected: Vec<_> =
                history.iter().map(|batch| (batch.revision, batch.events.iter().map(|event| event.kv.key.clone()).collect::<Vec<_>>())).collect();
            if told != expected {
                let at = told.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(told.len().min(expected.len()));
                return Err(format!(
                    "host {host}'s watches told {} of {} revisions; the first difference: {:?} instead of {:?}",
                    told.len(),
                    expected.len(),
                    told.get(at),
                    expected.get(at)
                ));
            }
        }
        Ok(())
    }

    pub fn summary(&self, snapshot: &Snapshot) -> String {
        let count = |wanted: fn(&WriteResult) -> bool| self.writes.iter().filter(|write| wanted(&write.result)).count();
        format!(
            "revision {}, writes: {} done, {} lost, {} refused, {} unknown; {} reads",
            snapshot.revision(),
            count(|r| matches!(r, WriteResult::Done(_))),
            count(|r| matches!(r, WriteResult::Lost(_))),
            count(|r| matches!(r, WriteResult::NotDone)),
            count(|r| matches!(r, WriteResult::Unknown)),
            self.reads.len()
        )
    }
}

/// Controllers acted under one leadership at a time: terms only rise along the history, and one term is one host's.
fn judge_claims(history: &[Arc<Batch>]) -> Result<(), String> {
    let mut newest = Claim { host: usize::MAX, term: 0 };
    for batch in history {
        for event in batch.events.iter().filter(|event| event.kv.key.starts_with(b"/registry/core/claims/")) {
            let claim = Claim::decode(&event.kv.value).ok_or("a claim that no controller made")?;
            if claim.term < newest.term || (claim.term == newest.term && claim.host != newest.host) {
                return Err(format!(
                    "host {} acted under term {} at revision {}, after host {} under term {}",
                    claim.host, claim.term, batch.revision, newest.host, newest.term
                ));
            }
            newest = claim;
        }
    }
    Ok(())
}

/// The judge must be able to say no.
mod tests {
    use wheelhouse_mvcc::{Command, State, Txn};

    use super::*;

    fn put(state: &mut State, key: &str, value: &str) -> Revision {
        let marker = format!("/registry/core/markers/{value}");
        let txn = Txn::default().put(marker, value.to_owned()).put(key.to_owned(), value.to_owned());
        state.apply(&Command::Txn { txn, fence: None }, 1);
        state.root().revision()
    }

    fn write(oracle: &mut Oracle, key: &str, value: &str, result: WriteResult) {
        let (invoked, completed) = (oracle.tick(), oracle.tick());
        let marker = format!("/registry/core/markers/{value}").into();
        let (key, value) = (key.to_owned().into(), value.to_owned().into());
        oracle.writes.push(Write { invoked, completed, key, marker, value, delete: false, compare: None, result });
    }

    fn read(oracle: &mut Oracle, revision: Revision, key: &str, found: Option<(&str, Revision)>) {
        let (invoked, completed) = (oracle.tick(), oracle.tick());
        let found = found.map(|(value, revision)| (value.to_owned().into(), revision));
        oracle.reads.push(Read { invoked, completed, revision, key: key.to_owned().into(), found });
    }

    fn refused(oracle: &Oracle, state: &State, because: &str) {
        let verdict = oracle.judge(&[state.snapshot(), state.snapshot()]).expect_err(because);
        assert!(verdict.contains(because), "{verdict}");
    }

    #[test]
    fn an_honest_history_passes() {
        let (mut state, mut oracle) = (State::new(), Oracle::default());
        let first = put(&mut state, "/a", "1");
        write(&mut oracle, "/a", "1", WriteResult::Done(first));
        read(&mut oracle, first, "/a", Some(("1", first)));
        put(&mut state, "/a", "2");
        write(&mut oracle, "/a", "2", WriteResult::Unknown);
        write(&mut oracle, "/a", "3", WriteResult::NotDone);
        oracle.judge(&[state.snapshot()]).unwrap();
    }

    #[test]
    fn lost_and_invented_writes_are_found() {
        let (mut state, mut oracle) = (State::new(), Oracle::default());
        write(&mut oracle, "/a", "1", WriteResult::Done(2));
        refused(&oracle, &state, "was acknowledged at 2");
        put(&mut state, "/a", "1");
        oracle.judge(&[state.snapshot()]).unwrap();
        put(&mut state, "/a", "2");
        write(&mut oracle, "/a", "2", WriteResult::NotDone);
        refused(&oracle, &state, "but is in the history");
    }

    #[test]
    fn stale_reads_are_found() {
        let (mut state, mut oracle) = (State::new(), Oracle::default());
        let first = put(&mut state, "/a", "1");
        let second = put(&mut state, "/a", "2");
        write(&mut oracle, "/a", "1", WriteResult::Done(first));
        write(&mut oracle, "/a", "2", WriteResult::Done(second));
        read(&mut oracle, first, "/a", Some(("1", first)));
        refused(&oracle, &state, "after 3 was certain");
        oracle.reads.clear();
        read(&mut oracle, second, "/a", Some(("1", first)));
        refused(&oracle, &state, "instead of");
    }

    #[test]
    fn watches_with_gaps_and_two_leaderships_are_found() {
        let (mut state, mut oracle) = (State::new(), Oracle::default());
        put(&mut state, "/a", "1");
        oracle.watched.insert(0, Vec::new());
        refused(&oracle, &state, "watches told 0 of 1 revisions");
        let (mut state, oracle) = (State::new(), Oracle::default());
        for (n, claim) in [Claim { host: 1, term: 5 }, Claim { host: 2, term: 5 }].iter().enumerate() {
            let txn = Txn::default().put(format!("/registry/core/claims/{n}"), claim.encode());
            state.apply(&Command::Txn { txn, fence: None }, 5);
        }
        refused(&oracle, &state, "acted under term 5");
    }

    #[test]
    fn replicas_that_differ_are_found() {
        let (mut one, mut other) = (State::new(), State::new());
        put(&mut one, "/a", "1");
        put(&mut other, "/a", "2");
        let verdict = Oracle::default().judge(&[one.snapshot(), other.snapshot()]).unwrap_err();
        assert!(verdict.contains("another state"), "{verdict}");
    }
}
