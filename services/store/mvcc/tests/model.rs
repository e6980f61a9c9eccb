//! Random commands against the state and a naive model that keeps a whole copy of the records per revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use wheelhouse_mvcc::codec::{self, StoredBatch};
use wheelhouse_mvcc::{
    Batch, Command, Compare, CompareTarget, Comparison, DeleteRange, EventKind, Fence, KeyRange, KeyValue, Op, OpOutcome, Outcome, Put, Range,
    Refusal, SortOrder, SortTarget, State, Txn,
};

const TERM: u64 = 3;

type Records = BTreeMap<Bytes, Arc<KeyValue>>;

/// Every revision's records.
#[derive(Default)]
struct Model {
    revisions: BTreeMap<u64, Records>,
    batches: Vec<Arc<Batch>>,
}

impl Model {
    fn at(&self, revision: u64) -> Records {
        self.revisions.range(..=revision).next_back().map(|(_, records)| records.clone()).unwrap_or_default()
    }

    fn take(&mut self, batch: &Arc<Batch>) {
        let mut records = self.at(batch.revision);
        for event in &batch.events {
            assert_eq!(records.get(&event.kv.key), event.prev.as_ref(), "the event's old record");
            match event.kind {
                EventKind::Put => records.insert(event.kv.key.clone(), event.kv.clone()),
                EventKind::Delete => records.remove(&event.kv.key),
            };
        }
        self.revisions.insert(batch.revision, records);
        self.batches.push(batch.clone());
    }
}

fn key() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["a", "a/1", "a/2", "b", "b/1", "c"]).prop_map(Bytes::from)
}

fn key_range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        key().prop_map(KeyRange::key),
        key().prop_map(KeyRange::prefix),
        key().prop_map(|start| KeyRange { start, end: Some(Bytes::from_static(b"\0")) }),
        (key(), key()).prop_map(|(start, end)| KeyRange { start, end: Some(end) }),
    ]
}

fn value() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["", "x", "y", "zz"]).prop_map(Bytes::from)
}

fn small() -> impl Strategy<Value = u64> {
    0..30_u64
}

fn compare() -> impl Strategy<Value = Compare> {
    let comparison = prop::sample::select(vec![Comparison::Equal, Comparison::NotEqual, Comparison::Greater, Comparison::Less]);
    let target = prop_oneof![
        (0..4_u64).prop_map(CompareTarget::Version),
        small().prop_map(CompareTarget::CreateRevision),
        small().prop_map(CompareTarget::ModRevision),
        value().prop_map(CompareTarget::Value),
        (0..4_i64).prop_map(CompareTarget::Lease),
    ];
    (key_range(), comparison, target).prop_map(|(range, comparison, target)| Compare { range, comparison, target })
}

fn range() -> impl Strategy<Value = Range> {
    let order = prop::sample::select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]);
    let target = prop::sample::select(vec![SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value]);
    let revision = prop_oneof![3 => Just(0), 1 => small()];
    let bound = || prop_oneof![4 => Just(0), 1 => small()];
    (key_range(), revision, 0..4_usize, order, target, any::<(bool, bool)>(), (bound(), bound(), bound(), bound())).prop_map(
        |(range, revision, limit, sort_order, sort_target, (keys_only, count_only), bounds)| Range {
            range,
            revision,
            limit,
            sort_order,
            sort_target,
            keys_only,
            count_only,
            min_mod_revision: bounds.0,
            max_mod_revision: bounds.1,
            min_create_revision: bounds.2,
            max_create_revision: bounds.3,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let put = (key(), value(), prop_oneof![3 => Just(0), 1 => 1..4_i64], any::<(bool, bool, bool)>()).prop_map(|(key, value, lease, flags)| {
        let (prev_kv, ignore_value, ignore_lease) = flags;
        let (ignore_value, ignore_lease) = (ignore_value && value.is_empty(), ignore_lease && lease == 0);
        Op::Put(Put { key, value, lease, prev_kv, ignore_value, ignore_lease })
    });
    let leaf = prop_oneof![
        4 => put,
        2 => (key_range(), any::<bool>()).prop_map(|(range, prev_kv)| Op::Delete(DeleteRange { range, prev_kv })),
        2 => range().prop_map(Op::Range),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| txn_of(inner).prop_map(|txn| Op::Txn(Box::new(txn))))
}

fn txn_of(op: impl Strategy<Value = Op> + Clone + 'static) -> impl Strategy<Value = Txn> {
    (prop::collection::vec(compare(), 0..2), prop::collection::vec(op.clone(), 0..3), prop::collection::vec(op, 0..3))
        .prop_map(|(compare, success, failure)| Txn { compare, success, failure })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        12 => txn_of(op().boxed()).prop_map(|txn| Command::Txn { txn, fence: None }),
        1 => (txn_of(op().boxed()), 2..4_u64).prop_map(|(txn, term)| Command::Txn { txn, fence: Some(Fence { term }) }),
        1 => small().prop_map(|revision| Command::Compact { revision }),
        1 => (0..4_i64, 1..100_i64).prop_map(|(id, ttl_secs)| Command::LeaseGrant { id, ttl_secs }),
        1 => (0..4_i64).prop_map(|id| Command::LeaseRevoke { id }),
        1 => (0..4_i64).prop_map(|id| Command::LeaseRenew { id }),
    ]
}

fn revision_of(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Txn(txn) => Some(txn.revision),
        Outcome::LeaseRevoked { revision } => Some(*revision),
        _ => None,
    }
}

/// The stored form of the whole history, newest first.
fn stored_history(state: &State) -> Vec<StoredBatch> {
    let start = state.root().history_start().saturating_sub(1);
    let batches: Vec<_> = state.root().history_since(start).expect("from its start").cloned().collect();
    let decode = |batch: &Arc<Batch>| {
        let mut bytes = Vec::new();
        codec::encode_batch(batch, &mut bytes);
        codec::decode_batch(&bytes).expect("what was encoded")
    };
    batches.iter().rev().map(decode).collect()
}

fn restored(state: &State, history: Vec<StoredBatch>) -> State {
    let (mut header, root) = (Vec::new(), state.root());
    codec::encode_header(&root.header(), &mut header);
    let records = root.range(b"", None).map(|kv| {
        let mut bytes = Vec::new();
        codec::encode_record(kv, &mut bytes);
        codec::decode_record(&bytes).expect("what was encoded")
    });
    State::restore(&codec::decode_header(&header).expect("what was encoded"), records, history).expect("what was stored fits together")
}

fn everything() -> KeyRange {
    KeyRange { start: Bytes::from_static(b"\0"), end: Some(Bytes::from_static(b"\0")) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn state_follows_the_model(commands in prop::collection::vec(command(), 1..40)) {
        let (mut state, mut model) = (State::new(), Model::default());
        for command in &commands {
            let mut bytes = Vec::new();
            codec::encode_command(command, &mut bytes);
            prop_assert_eq!(&codec::decode_command(&bytes).expect("what was encoded"), command);

            let before = state.snapshot();
            let applied = state.apply(command, TERM);
            state.check().map_err(TestCaseError::fail)?;
            prop_assert_eq!(state.root().revision(), before.revision() + u64::from(applied.batch.is_some()));
            if let Some(revision) = revision_of(&applied.outcome) {
                prop_assert_eq!(revision, state.root().revision());
            }
            if let Some(batch) = &applied.batch {
                prop_assert_eq!(batch.revision, state.root().revision());
                model.take(batch);
            }
            if let Command::Txn { txn, fence } = command {
                if fence.is_some_and(|fence| fence.term != TERM) {
                    prop_assert_eq!(&applied.outcome, &Outcome::Fenced { term: TERM });
                } else if txn.is_read_only() {
                    let answer = before.transact_read_only(txn).map_or_else(Outcome::Failed, Outcome::Txn);
                    prop_assert_eq!(&answer, &applied.outcome);
                }
            }
            // The snapshot taken before still is what it was.
            let old: Records = before.range(b"", None).map(|kv| (kv.key.clone(), kv.clone())).collect();
            prop_assert_eq!(old, model.at(before.revision()));
        }
        let root = state.snapshot();
        for revision in 0..=root.revision() + 1 {
            match root.at(revision) {
                Ok(past) => {
                    prop_assert!(revision >= root.compacted() && revision <= root.revision());
                    let records: Records = past.range(b"", None).map(|kv| (kv.key.clone(), kv.clone())).collect();
                    prop_assert_eq!(&records, &model.at(revision));
                    prop_assert_eq!(past.count(b"a/", Some(b"a0")), records.keys().filter(|key| key.starts_with(b"a/")).count());
                }
                Err(Refusal::Compacted { .. }) => prop_assert!(revision < root.compacted()),
                Err(Refusal::FutureRevision { .. }) => prop_assert!(revision > root.revision()),
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
        for after in 0..=root.revision() {
            let wanted: Vec<_> = model.batches.iter().filter(|batch| batch.revision > after).cloned().collect();
            match root.history_since(after) {
                Ok(history) => prop_assert_eq!(history.cloned().collect::<Vec<_>>(), wanted),
                Err(_) => prop_assert!(after + 1 < root.compacted()),
            }
        }
    }

    #[test]
    fn a_restored_state_is_the_same_state(commands in prop::collection::vec(command(), 1..40), keep in 0..40_usize) {
        let mut state = State::new();
        for command in &commands {
            state.apply(command, TERM);
        }
        let root = state.snapshot();
        let full = restored(&state, stored_history(&state));
        full.check().map_err(TestCaseError::fail)?;
        prop_assert_eq!(full.root().header(), root.header());
        prop_assert_eq!(full.root().memory(), root.memory());
        let all = Range::of(everything());
        prop_assert_eq!(full.root().read(&all), root.read(&all));
        let start = root.history_start().saturating_sub(1);
        prop_assert!(full.root().history_since(start).expect("from its start").eq(root.history_since(start).expect("from its start")));

        let mut partial = stored_history(&state);
        partial.truncate(keep);
        let kept = partial.len();
        let part = restored(&state, partial);
        part.check().map_err(TestCaseError::fail)?;
        prop_assert_eq!(part.root().history_len(), kept);
        for revision in part.root().compacted()..=root.revision() {
            let (a, b) = (part.root().at(revision).expect("retained"), root.at(revision).expect("retained"));
            prop_assert_eq!(a.read(&all), b.read(&all));
        }
    }

    #[test]
    fn sorted_and_limited_reads_agree_with_sorting_by_hand(commands in prop::collection::vec(command(), 1..25), asked in range()) {
        let mut state = State::new();
        for command in &commands {
            state.apply(command, TERM);
        }
        let asked = Range { revision: 0, ..asked };
        let root = state.snapshot();
        let Ok(OpOutcome::Range { kvs, more, count }) = root.read(&asked) else { return Err(TestCaseError::fail("a read was refused")) };
        let all: Vec<_> = root.range(b"", None).filter(|kv| asked.range.contains(&kv.key)).cloned().collect();
        prop_assert_eq!(count, all.len());
        if asked.count_only {
            prop_assert!(kvs.is_empty() && !more);
        } else {
            let passing = all.iter().filter(|kv| {
                kv.mod_revision >= asked.min_mod_revision && (asked.max_mod_revision == 0 || kv.mod_revision <= asked.max_mod_revision)
                    && kv.create_revision >= asked.min_create_revision && (asked.max_create_revision == 0 || kv.create_revision <= asked.max_create_revision)
            }).count();
            prop_assert_eq!(kvs.len(), if asked.limit == 0 { passing } else { passing.min(asked.limit) });
            prop_assert_eq!(more, asked.limit != 0 && passing > asked.limit);
            prop_assert!(kvs.iter().all(|kv| asked.range.contains(&kv.key) && (!asked.keys_only || kv.value.is_empty())));
        }
    }
}

#[test]
fn bytes_that_never_were_a_command_are_refused_and_do_not_panic() {
    proptest!(|(mut bytes in prop::collection::vec(any::<u8>(), 0..60))| {
        if let Some(first) = bytes.first_mut() {
            *first = codec::VERSION;
        }
        let _ = codec::decode_command(&bytes);
        let _ = codec::decode_record(&bytes);
        let _ = codec::decode_batch(&bytes);
        let _ = codec::decode_header(&bytes);
    });
}
