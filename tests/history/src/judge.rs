//! The verdict.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use wheelhouse_base::Revision;

use crate::{Mark, Read, Seen, Step, Write, WriteResult};

/// The history by key: value after each change, `None` where it was deleted.
type Versions<'a> = HashMap<&'a Bytes, BTreeMap<Revision, Option<&'a Bytes>>>;

/// A history with the questions that the judge asks of it.
struct History<'a> {
    versions: Versions<'a>,
}

impl<'a> History<'a> {
    fn new(steps: &'a [Step]) -> Result<Self, String> {
        if let Some(pair) = steps.windows(2).find(|pair| pair[1].revision <= pair[0].revision) {
            return Err(format!("revision {} comes after {}", pair[1].revision, pair[0].revision));
        }
        let mut versions = Versions::new();
        for step in steps {
            for change in &step.changes {
                versions.entry(&change.key).or_default().insert(step.revision, change.value.as_ref());
            }
        }
        Ok(Self { versions })
    }

    /// The newest change of a key up to and at a revision.
    fn newest(&self, key: &Bytes, upto: Revision) -> Option<(Revision, Option<&'a Bytes>)> {
        self.versions.get(key)?.range(..=upto).next_back().map(|(revision, value)| (*revision, *value))
    }

    /// The modification revision of a key right before a revision; 0 if it was not there.
    fn before(&self, key: &Bytes, revision: Revision) -> Revision {
        self.newest(key, revision - 1).filter(|(_, value)| value.is_some()).map_or(0, |(at, _)| at)
    }

    /// When a key changed next after a revision.
    fn changed_after(&self, key: &Bytes, revision: Revision) -> Revision {
        self.versions.get(key).and_then(|versions| versions.range(revision + 1..).next()).map_or(Revision::MAX, |(at, _)| *at)
    }

    /// Where a write is found.
    fn places(&self, write: &Write) -> Vec<Revision> {
        match (&write.mark, &write.value) {
            (Mark::Key(mark), _) => self.versions.get(mark).map(|versions| versions.keys().copied().collect()).unwrap_or_default(),
            (Mark::Itself, Some(value)) => {
                let versions = self.versions.get(&write.key).into_iter().flatten();
                versions.filter(|(_, found)| **found == Some(value)).map(|(revision, _)| *revision).collect()
            }
            // Several may have compared with the same state, so only who was told that it worked is sure to be meant.
            (Mark::Itself, None) if !matches!(write.result, WriteResult::Done(_)) => Vec::new(),
            (Mark::Itself, None) => {
                let deleted = self.versions.get(&write.key).into_iter().flatten().filter(|(_, found)| found.is_none()).map(|(revision, _)| *revision);
                deleted.filter(|revision| write.compare.is_none_or(|compare| compare == self.before(&write.key, *revision))).collect()
            }
        }
    }
}

impl Seen {
    /// Whether `steps`, the whole order of changes, explains everything that was seen; the first thing that it does not, otherwise.
    pub fn judge(&self, steps: &[Step]) -> Result<(), String> {
        if let Some(broken) = self.broken.first() {
            return Err(broken.clone());
        }
        let history = History::new(steps)?;
        let places: Vec<Vec<Revision>> = self.writes.iter().map(|write| history.places(write)).collect();
        self.judge_writes(&history, &places)?;
        self.judge_origins(&history)?;
        self.judge_reads(&history)?;
        self.judge_order(&history, &places)?;
        self.judge_watches(steps)?;
        self.judge_claims()
    }

    fn judge_writes(&self, history: &History<'_>, places: &[Vec<Revision>]) -> Result<(), String> {
        let mut deletes = HashSet::new();
        for (write, found) in self.writes.iter().zip(places) {
            let name = &write.name;
            let at = match (write.result, found.as_slice()) {
                (WriteResult::Done(told), [at]) if told.is_none_or(|told| told == *at) => *at,
                (WriteResult::Done(told), found) => {
                    let told = told.map_or_else(String::new, |told| format!(" at {told}"));
                    return Err(format!("write {name} was acknowledged{told}, but is in the history at {found:?}"));
                }
                (WriteResult::Unknown, [at]) => *at,
                (WriteResult::Lost(_) | WriteResult::NotDone | WriteResult::Unknown, []) => continue,
                (result, found) => return Err(format!("write {name} ended {result:?}, but is in the history at {found:?}")),
            };
            let change = history.versions.get(&write.key).and_then(|versions| versions.get(&at));
            let expected = match change {
                Some(value) => *value == write.value.as_ref(),
                // Deleting what is not there changes nothing.
                None => write.value.is_none(),
            };
            if !expected || (change.is_some() && write.compare.is_some_and(|compare| compare != history.before(&write.key, at))) {
                return Err(format!("write {name} did something else at {at}"));
            }
            if write.mark == Mark::Itself && write.value.is_none() && !deletes.insert(at) {
                return Err(format!("write {name} was acknowledged for what another one did at {at}"));
            }
        }
        Ok(())
    }

    /// Whatever happened to a key that clients write, one of them did, and was not told that it had not.
    fn judge_origins(&self, history: &History<'_>) -> Result<(), String> {
        let mut by_key: HashMap<&Bytes, Vec<&Write>> = HashMap::new();
        for write in &self.writes {
            by_key.entry(&write.key).or_default().push(write);
        }
        for (key, writes) in by_key {
            let possible = |write: &&Write| matches!(write.result, WriteResult::Done(_) | WriteResult::Unknown);
            let written: HashSet<&Bytes> = writes.iter().copied().filter(possible).filter_map(|write| write.value.as_ref()).collect();
            let deletes: Vec<&Write> = writes.into_iter().filter(possible).filter(|write| write.value.is_none()).collect();
            for (revision, value) in history.versions.get(key).into_iter().flatten() {
                let explained = match value {
                    Some(value) => written.contains(*value),
                    None => deletes.iter().any(|write| write.compare.is_none_or(|compare| compare == history.before(key, *revision))),
                };
                if !explained {
                    return Err(format!("nobody wrote {value:?} to {key:?} at {revision}"));
                }
            }
        }
        Ok(())
    }

    fn judge_reads(&self, history: &History<'_>) -> Result<(), String> {
        for read in &self.reads {
            let expected = match (read.revision, &read.found) {
                (Some(revision), _) => history.newest(&read.key, revision).and_then(|(at, value)| Some((value?.clone(), at))),
                (None, Some((_, at))) => history.newest(&read.key, *at).and_then(|(at, value)| Some((value?.clone(), at))),
                (None, None) => None,
            };
            if expected != read.found {
                return Err(format!("a read of {:?} at {:?} found {:?} instead of {expected:?}", read.key, read.revision, read.found));
            }
        }
        Ok(())
    }

    /// Nothing that began after another ended may come before it.
    fn judge_order(&self, history: &History<'_>, places: &[Vec<Revision>]) -> Result<(), String> {
        // (time, revision): what was certain at that time.
        let done = self.writes.iter().zip(places).filter_map(|(write, found)| match write.result {
            WriteResult::Done(told) => Some((write.completed, told.or(found.first().copied())?)),
            WriteResult::Lost(revision) => Some((write.completed, revision)),
            WriteResult::NotDone | WriteResult::Unknown => None,
        });
        let read = self.reads.iter().filter_map(|read| Some((read.completed, read.revision.or(read.found.as_ref().map(|(_, at)| *at))?)));
        let mut certain: Vec<_> = done.chain(read).collect();
        certain.sort_unstable();
        let mut newest = 0;
        for (_, revision) in &mut certain {
            newest = newest.max(*revision);
            *revision = newest;
        }
        let floor = |time: u64| certain[..certain.partition_point(|(at, _)| *at < time)].last().map_or(0, |(_, revision)| *revision);
        for (write, found) in self.writes.iter().zip(places) {
            let (floor, name) = (floor(write.invoked), &write.name);
            match (write.result, found.first()) {
                (WriteResult::Lost(revision), _) if revision < floor => {
                    return Err(format!("write {name} lost at {revision} after {floor} was certain"));
                }
                (WriteResult::Done(_) | WriteResult::Unknown, Some(at)) if *at <= floor => {
                    return Err(format!("write {name} at {at} began after {floor} was certain"));
                }
                _ => {}
            }
        }
        self.reads.iter().try_for_each(|read| read_is_fresh(history, read, floor(read.invoked)))
    }

    fn judge_watches(&self, expected: &[Step]) -> Result<(), String> {
        for (name, told) in &self.watched {
            if told.as_slice() != expected {
                let at = told.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(told.len().min(expected.len()));
                return Err(format!(
                    "{name}'s watch told {} of {} revisions; the first difference: {:?} instead of {:?}",
                    told.len(),
                    expected.len(),
                    told.get(at),
                    expected.get(at)
                ));
            }
        }
        Ok(())
    }

    /// Terms only rise along the history, and one term is one holder's.
    fn judge_claims(&self) -> Result<(), String> {
        for pair in self.claims.windows(2) {
            let ((_, before), (revision, claim)) = (&pair[0], &pair[1]);
            if claim.term < before.term || (claim.term == before.term && claim.holder != before.holder) {
                return Err(format!(
                    "{} acted under term {} at revision {revision}, after {} under term {}",
                    claim.holder, claim.term, before.holder, before.term
                ));
            }
        }
        Ok(())
    }
}

/// Whether a read may have taken place at or after a revision that was certain when it began.
fn read_is_fresh(history: &History<'_>, read: &Read, floor: Revision) -> Result<(), String> {
    let newest_possible = match (read.revision, &read.found) {
        (Some(revision), _) => revision,
        (None, Some((_, at))) => history.changed_after(&read.key, *at) - 1,
        (None, None) => match history.newest(&read.key, floor) {
            // It was there when the read began, so it must have gone after that; whether by then already, the read's end cannot tell.
            Some((_, Some(_))) => match history.versions[&read.key].range(floor..).any(|(_, value)| value.is_none()) {
                true => Revision::MAX,
                false => 0,
            },
            _ => Revision::MAX,
        },
    };
    if newest_possible < floor {
        return Err(format!("a read of {:?} answered {:?} as of {newest_possible} after {floor} was certain", read.key, read.found));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Claim};

    /// `3 a=x` puts x to a at revision 3, `4 a` deletes a.
    fn steps(text: &str) -> Vec<Step> {
        let step = |line: &str| {
            let (revision, change) = line.trim().split_once(' ').unwrap();
            let (key, value) = change.split_once('=').map_or((change, None), |(key, value)| (key, Some(value)));
            let change = Change { key: key.to_owned().into(), value: value.map(|value| value.to_owned().into()) };
            Step { revision: revision.parse().unwrap(), changes: vec![change] }
        };
        text.split(',').map(step).collect()
    }

    fn write(seen: &mut Seen, text: &str, compare: Option<Revision>, result: WriteResult) {
        let (key, value) = text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value.to_owned().into())));
        let (invoked, completed) = (seen.tick(), seen.tick());
        seen.writes.push(Write { invoked, completed, name: text.to_owned(), key: key.to_owned().into(), value, compare, mark: Mark::Itself, result });
    }

    fn read(seen: &mut Seen, key: &str, revision: Option<Revision>, found: Option<(&str, Revision)>) {
        let (invoked, completed) = (seen.tick(), seen.tick());
        let found = found.map(|(value, at)| (value.to_owned().into(), at));
        seen.reads.push(Read { invoked, completed, revision, key: key.to_owned().into(), found });
    }

    fn refused(seen: &Seen, history: &str, because: &str) {
        let verdict = seen.judge(&steps(history)).expect_err(because);
        assert!(verdict.contains(because), "{verdict}");
    }

    const DONE: WriteResult = WriteResult::Done(None);

    #[test]
    fn an_honest_history_passes() {
        let mut seen = Seen::default();
        write(&mut seen, "a=1", Some(0), WriteResult::Done(Some(2)));
        read(&mut seen, "a", Some(2), Some(("1", 2)));
        write(&mut seen, "a=2", None, WriteResult::Unknown);
        write(&mut seen, "a=3", None, WriteResult::NotDone);
        read(&mut seen, "a", None, Some(("2", 4)));
        write(&mut seen, "a", Some(4), DONE);
        read(&mut seen, "a", None, None);
        let history = "2 a=1,4 a=2,5 a";
        seen.watched.insert("w".into(), steps(history));
        seen.claims = [(1, 5, "x"), (2, 5, "x"), (3, 7, "y")].map(|(at, term, holder)| (at, Claim { holder: holder.into(), term })).to_vec();
        seen.judge(&steps(history)).unwrap();
    }

    #[test]
    fn lost_writes_are_found() {
        let mut seen = Seen::default();
        write(&mut seen, "a=1", None, WriteResult::Done(Some(2)));
        refused(&seen, "2 b=1", "was acknowledged at 2, but is in the history at []");
        refused(&seen, "3 a=1", "was acknowledged at 2, but is in the history at [3]");
        let mut seen = Seen::default();
        write(&mut seen, "a=1", None, DONE);
        write(&mut seen, "a", Some(2), DONE);
        refused(&seen, "2 a=1", "write a was acknowledged, but");
    }

    #[test]
    fn writes_that_were_refused_done_twice_or_nobodys_are_found() {
        let mut seen = Seen::default();
        write(&mut seen, "a=1", None, WriteResult::NotDone);
        refused(&seen, "2 a=1", "ended NotDone, but is in the history");
        let mut seen = Seen::default();
        write(&mut seen, "a=1", None, WriteResult::Unknown);
        refused(&seen, "2 a=1,3 a=1", "at [2, 3]");
        refused(&seen, "2 a=9", "nobody wrote Some(b\"9\")");
        refused(&seen, "2 a=1,3 a", "nobody wrote None");
    }

    #[test]
    fn compares_that_saw_another_state_are_found() {
        let mut seen = Seen::default();
        write(&mut seen, "a=1", Some(0), WriteResult::Done(Some(2)));
        write(&mut seen, "a=2", Some(2), WriteResult::Done(Some(4)));
        write(&mut seen, "a=3", None, WriteResult::Unknown);
        seen.judge(&steps("2 a=1,4 a=2,5 a=3")).unwrap();
        refused(&seen, "2 a=1,3 a=3,4 a=2", "write a=2 did something else at 4");
        write(&mut seen, "a", Some(5), DONE);
        write(&mut seen, "a", Some(5), DONE);
        refused(&seen, "2 a=1,4 a=2,5 a=3,6 a", "for what another one did at 6");
    }

    #[test]
    fn stale_reads_are_found() {
        let mut seen = Seen::default();
        write(&mut seen, "a=1", None, WriteResult::Done(Some(2)));
        write(&mut seen, "a=2", None, WriteResult::Done(Some(3)));
        let history = "2 a=1,3 a=2";
        for (revision, found, because) in [
            (Some(2), Some(("1", 2)), "as of 2 after 3 was certain"),
            (Some(3), Some(("1", 2)), "instead of"),
            (None, Some(("1", 2)), "as of 2 after 3 was certain"),
            (None, Some(("1", 3)), "instead of"),
            (None, None, "as of 0 after 3 was certain"),
        ] {
            seen.reads.clear();
            read(&mut seen, "a", revision, found);
            refused(&seen, history, because);
        }
    }

    #[test]
    fn orders_against_time_are_found() {
        let mut seen = Seen::default();
        write(&mut seen, "a=1", None, DONE);
        write(&mut seen, "b=2", None, DONE);
        seen.judge(&steps("2 a=1,3 b=2")).unwrap();
        refused(&seen, "2 b=2,3 a=1", "write b=2 at 2 began after 3 was certain");
        let mut seen = Seen::default();
        write(&mut seen, "a=1", None, DONE);
        write(&mut seen, "b=2", None, WriteResult::Unknown);
        refused(&seen, "2 b=2,3 a=1", "write b=2 at 2 began after 3 was certain");
    }

    #[test]
    fn watches_with_gaps_repeats_and_wrong_orders_are_found() {
        let told = |watch: &str| {
            let mut seen = Seen::default();
            seen.watched.insert("w".into(), steps(watch));
            seen
        };
        refused(&told("2 a=1"), "2 a=1,3 b=1", "told 1 of 2 revisions");
        refused(&told("2 a=1,2 a=1,3 b=1"), "2 a=1,3 b=1", "told 3 of 2 revisions");
        refused(&told("3 b=1,2 a=1"), "2 a=1,3 b=1", "the first difference");
        refused(&told("2 a=2,3 b=1"), "2 a=1,3 b=1", "the first difference");
        refused(&Seen::default(), "3 b=1,2 a=1", "revision 2 comes after 3");
    }

    #[test]
    fn two_leaderships_are_found() {
        let claims = |list: &[(u64, &str)]| {
            let mut seen = Seen::default();
            seen.claims = list.iter().enumerate().map(|(at, (term, holder))| (at as u64, Claim { holder: (*holder).into(), term: *term })).collect();
            seen
        };
        refused(&claims(&[(5, "x"), (5, "y")]), "2 a=1", "y acted under term 5 at revision 1, after x under term 5");
        refused(&claims(&[(5, "x"), (6, "y"), (5, "x")]), "2 a=1", "x acted under term 5");
    }

    #[test]
    fn what_was_broken_on_the_way_stands() {
        let mut seen = Seen::default();
        seen.broken.push("a watch cannot resume".into());
        refused(&seen, "2 a=1", "cannot resume");
    }
}
