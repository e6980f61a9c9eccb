//! Range requests and compares against one root, by etcd's rules.

use std::cmp::Ordering;
use std::sync::Arc;

use wheelhouse_base::Revision;

use crate::command::{Compare, CompareTarget, Comparison, OpOutcome, Range, Refusal, SortOrder, SortTarget};
use crate::event::KeyValue;
use crate::snapshot::Snapshot;

impl Snapshot {
    /// Answers `range`, at its own past revision if it names one. Always [`OpOutcome::Range`].
    pub fn read(&self, range: &Range) -> Result<OpOutcome, Refusal> {
        if range.revision == 0 || range.revision == self.revision {
            return Ok(self.read_here(range));
        }
        Ok(self.at(range.revision)?.read_here(range))
    }

    /// Answers `range` from this root, whatever revision it names.
    pub(crate) fn read_here(&self, range: &Range) -> OpOutcome {
        if range.count_only {
            return OpOutcome::Range { kvs: Vec::new(), more: false, count: self.records(&range.range).count() };
        }
        // etcd applies the limit before it sorts when only the target is given, and after when the order is.
        let filtered = has_filters(range);
        let cut_early = range.limit > 0 && range.sort_order == SortOrder::None && !filtered;
        let fetch = if cut_early { range.limit.saturating_add(1) } else { usize::MAX };
        let (mut kvs, mut count) = (Vec::new(), 0);
        for kv in self.records(&range.range) {
            count += 1;
            if kvs.len() < fetch && (!filtered || passes(range, kv)) {
                kvs.push(kv.clone());
            }
        }
        sort(&mut kvs, range);
        let more = range.limit > 0 && kvs.len() > range.limit;
        if more {
            kvs.truncate(range.limit);
        }
        if range.keys_only {
            kvs.iter_mut().for_each(|kv| *kv = Arc::new(KeyValue { value: Default::default(), ..KeyValue::clone(kv) }));
        }
        OpOutcome::Range { kvs, more, count }
    }

    /// Refuses a range in a transaction that names a revision this root cannot answer.
    pub(crate) fn check_revision(&self, revision: Revision) -> Result<(), Refusal> {
        if revision > self.revision {
            return Err(Refusal::FutureRevision { requested: revision, current: self.revision });
        }
        if revision != 0 && revision < self.compacted {
            return Err(Refusal::Compacted { requested: revision, compacted: self.compacted });
        }
        Ok(())
    }

    /// Whether every compare holds. One over a range holds if it does for every record; a range without records compares as all zeros.
    pub fn holds(&self, compares: &[Compare]) -> bool {
        compares.iter().all(|compare| {
            let mut records = self.records(&compare.range).peekable();
            if records.peek().is_none() {
                return missing_holds(compare);
            }
            records.all(|kv| record_holds(compare, kv))
        })
    }
}

fn has_filters(range: &Range) -> bool {
    range.min_mod_revision != 0 || range.max_mod_revision != 0 || range.min_create_revision != 0 || range.max_create_revision != 0
}

fn passes(range: &Range, kv: &KeyValue) -> bool {
    let within = |revision, min, max| revision >= min && (max == 0 || revision <= max);
    within(kv.mod_revision, range.min_mod_revision, range.max_mod_revision)
        && within(kv.create_revision, range.min_create_revision, range.max_create_revision)
}

/// Records arrive in key order. A target other than the key without an order means ascending.
fn sort(kvs: &mut [Arc<KeyValue>], range: &Range) {
    let by = |a: &Arc<KeyValue>, b: &Arc<KeyValue>| match range.sort_target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    };
    match (range.sort_order, range.sort_target) {
        (SortOrder::None | SortOrder::Ascend, SortTarget::Key) => {}
        (SortOrder::None | SortOrder::Ascend, _) => kvs.sort_by(by),
        (SortOrder::Descend, _) => kvs.sort_by(|a, b| by(b, a)),
    }
}

fn record_holds(compare: &Compare, kv: &KeyValue) -> bool {
    decide(
        compare.comparison,
        match &compare.target {
            CompareTarget::Version(wanted) => kv.version.cmp(wanted),
            CompareTarget::CreateRevision(wanted) => kv.create_revision.cmp(wanted),
            CompareTarget::ModRevision(wanted) => kv.mod_revision.cmp(wanted),
            CompareTarget::Value(wanted) => kv.value.cmp(wanted),
            CompareTarget::Lease(wanted) => kv.lease.cmp(wanted),
        },
    )
}

/// A missing record has no value, not an empty one: no compare of values holds, `NotEqual` included.
fn missing_holds(compare: &Compare) -> bool {
    let ordering = match &compare.target {
        CompareTarget::Version(wanted) | CompareTarget::CreateRevision(wanted) | CompareTarget::ModRevision(wanted) => 0.cmp(wanted),
        CompareTarget::Lease(wanted) => 0.cmp(wanted),
        CompareTarget::Value(_) => return false,
    };
    decide(compare.comparison, ordering)
}

fn decide(comparison: Comparison, ordering: Ordering) -> bool {
    match comparison {
        Comparison::Equal => ordering.is_eq(),
        Comparison::NotEqual => ordering.is_ne(),
        Comparison::Greater => ordering.is_gt(),
        Comparison::Less => ordering.is_lt(),
    }
}
