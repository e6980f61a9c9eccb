//! What can be refused about a transaction without looking at the state.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::{DeleteRange, Op, Put, Refusal, Txn};

impl Txn {
    /// Refuses what etcd refuses before it proposes: empty keys, contradictory flags, and a key that two operations of one branch would change.
    pub fn validate(&self) -> Result<(), Refusal> {
        self.check_operations()?;
        for branch in [&self.success, &self.failure] {
            // One plain operation cannot collide with itself, and most transactions have no more.
            if branch.len() > 1 || matches!(branch.first(), Some(Op::Txn(_))) {
                changes(branch)?;
            }
        }
        Ok(())
    }

    /// True if no branch changes anything, so that it can be answered from a snapshot. A nested transaction counts as a change, as it does in etcd.
    pub fn is_read_only(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| matches!(op, Op::Range(_)))
    }

    fn check_operations(&self) -> Result<(), Refusal> {
        if self.compare.iter().any(|compare| compare.range.start.is_empty()) {
            return Err(Refusal::EmptyKey);
        }
        self.success.iter().chain(&self.failure).try_for_each(|op| match op {
            Op::Range(range) => non_empty(&range.range.start),
            Op::Delete(delete) => non_empty(&delete.range.start),
            Op::Put(put) => check_put(put),
            Op::Txn(txn) => txn.check_operations(),
        })
    }
}

fn check_put(put: &Put) -> Result<(), Refusal> {
    non_empty(&put.key)?;
    if put.ignore_value && !put.value.is_empty() {
        return Err(Refusal::ValueProvided);
    }
    if put.ignore_lease && put.lease != 0 {
        return Err(Refusal::LeaseProvided);
    }
    Ok(())
}

fn non_empty(key: &[u8]) -> Result<(), Refusal> {
    if key.is_empty() { Err(Refusal::EmptyKey) } else { Ok(()) }
}

/// The keys that a branch puts and the intervals that it deletes; refused if a put meets another put or a delete. The two branches of a
/// nested transaction exclude each other, so they may put the same key. Deletes may overlap.
///
/// Two of etcd's oddities are kept, since clients can see them: a nested transaction is held only against its elder siblings' deletes,
/// and a delete "to the last key" counts as none, because its end sorts before its start.
fn changes(branch: &[Op]) -> Result<(BTreeSet<&[u8]>, Intervals<'_>), Refusal> {
    let mut deletes = Intervals::default();
    for op in branch {
        if let Op::Delete(delete) = op {
            deletes.insert(delete);
        }
    }
    let mut puts = BTreeSet::new();
    for op in branch {
        let Op::Txn(nested) = op else { continue };
        let (then_puts, then_deletes) = changes(&nested.success)?;
        let (else_puts, else_deletes) = changes(&nested.failure)?;
        let mut both = then_puts;
        both.extend(else_puts);
        for key in both {
            add_put(&mut puts, &deletes, key)?;
        }
        deletes.extend(then_deletes);
        deletes.extend(else_deletes);
    }
    for op in branch {
        if let Op::Put(put) = op {
            add_put(&mut puts, &deletes, &put.key)?;
        }
    }
    Ok((puts, deletes))
}

fn add_put<'a>(puts: &mut BTreeSet<&'a [u8]>, deletes: &Intervals<'_>, key: &'a [u8]) -> Result<(), Refusal> {
    if deletes.contains(key) || !puts.insert(key) {
        return Err(Refusal::DuplicateKey);
    }
    Ok(())
}

/// Deleted intervals: disjoint ones by their start, single keys apart.
#[derive(Default)]
struct Intervals<'a> {
    points: BTreeSet<&'a [u8]>,
    spans: BTreeMap<&'a [u8], &'a [u8]>,
}

impl<'a> Intervals<'a> {
    fn insert(&mut self, delete: &'a DeleteRange) {
        let start = &delete.range.start[..];
        match &delete.range.end {
            Some(end) if end[..] > *start => self.insert_span(start, end),
            Some(_) => {}
            None => {
                self.points.insert(start);
            }
        }
    }

    fn insert_span(&mut self, mut start: &'a [u8], mut end: &'a [u8]) {
        // Swallows every span that begins before this one ends and reaches it.
        while let Some((&other_start, &other_end)) = self.spans.range::<&[u8], _>(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.spans.remove(other_start);
            (start, end) = (start.min(other_start), end.max(other_end));
        }
        self.spans.insert(start, end);
    }

    fn extend(&mut self, other: Self) {
        self.points.extend(other.points);
        other.spans.into_iter().for_each(|(start, end)| self.insert_span(start, end));
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.points.contains(key) || self.spans.range::<&[u8], _>(..=key).next_back().is_some_and(|(_, end)| key < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::KeyRange;
    use bytes::Bytes;

    fn put(key: &'static str) -> Op {
        Op::Put(Put { key: Bytes::from(key), value: Bytes::new(), lease: 0, prev_kv: false, ignore_value: false, ignore_lease: false })
    }

    fn delete(start: &'static str, end: Option<&'static str>) -> Op {
        Op::Delete(DeleteRange { range: KeyRange { start: Bytes::from(start), end: end.map(Bytes::from) }, prev_kv: false })
    }

    fn nested(success: Vec<Op>, failure: Vec<Op>) -> Op {
        Op::Txn(Box::new(Txn { compare: Vec::new(), success, failure }))
    }

    fn check(success: Vec<Op>) -> Result<(), Refusal> {
        Txn { compare: Vec::new(), success, failure: Vec::new() }.validate()
    }

    #[test]
    fn a_key_is_changed_once_per_branch() {
        let refused = Err(Refusal::DuplicateKey);
        assert_eq!(check(vec![put("a"), put("b")]), Ok(()));
        assert_eq!(check(vec![put("a"), put("a")]), refused);
        assert_eq!(check(vec![put("b"), delete("a", Some("c"))]), refused);
        assert_eq!(check(vec![put("c"), delete("a", Some("c"))]), Ok(()));
        assert_eq!(check(vec![delete("a", Some("d")), delete("b", None)]), Ok(()));
        assert_eq!(check(vec![delete("a", Some("c")), delete("b", Some("f")), put("d")]), refused);
        assert_eq!(check(vec![nested(vec![put("a")], vec![put("a")])]), Ok(()));
        assert_eq!(check(vec![nested(vec![put("a")], vec![]), put("a")]), refused);
        assert_eq!(check(vec![nested(vec![put("a")], vec![]), nested(vec![], vec![put("a")])]), refused);
        assert_eq!(check(vec![nested(vec![delete("a", None)], vec![]), put("a")]), refused);
        assert_eq!(check(vec![nested(vec![put("a"), put("a")], vec![])]), refused);
    }

    #[test]
    fn etcds_gaps_in_the_check_are_kept() {
        assert_eq!(check(vec![nested(vec![put("a")], vec![]), nested(vec![delete("a", None)], vec![])]), Ok(()));
        assert_eq!(check(vec![delete("a", Some("\0")), put("b")]), Ok(()));
        assert_eq!(check(vec![delete("a", Some("\0")), put("a")]), Ok(()));
    }

    #[test]
    fn flags_that_contradict_the_request_are_refused() {
        let with = |change: fn(&mut Put)| {
            let Op::Put(mut op) = put("a") else { unreachable!() };
            change(&mut op);
            check(vec![Op::Put(op)])
        };
        assert_eq!(with(|op| op.key = Bytes::new()), Err(Refusal::EmptyKey));
        assert_eq!(with(|op| (op.ignore_value, op.value) = (true, Bytes::from("v"))), Err(Refusal::ValueProvided));
        assert_eq!(with(|op| (op.ignore_lease, op.lease) = (true, 7)), Err(Refusal::LeaseProvided));
    }
}
