//! Answers: what the store says, as etcd's messages.

use bytes::Bytes;
use wheelhouse_base::Revision;
use wheelhouse_mvcc::{Event, EventKind, KeyValue, OpOutcome, TxnOutcome};

use crate::generated::etcdserverpb::{self as pb, response_op};
use crate::generated::mvccpb;

/// What stands in place of a sealed value.
const SEALED: &[u8] = b"sealed: use the Kubernetes API";

/// How records are copied into answers: which values may leave.
#[derive(Clone, Copy)]
pub(crate) struct KvCopy {
    /// True for keys whose values stay here.
    pub(crate) sealed: fn(&[u8]) -> bool,
}

impl KvCopy {
    pub(crate) fn kv(self, kv: &KeyValue) -> mvccpb::KeyValue {
        let value = if kv.value.is_empty() || !(self.sealed)(&kv.key) { kv.value.clone() } else { Bytes::from_static(SEALED) };
        mvccpb::KeyValue {
            key: kv.key.clone(),
            create_revision: signed(kv.create_revision),
            mod_revision: signed(kv.mod_revision),
            version: signed(kv.version),
            value,
            lease: kv.lease,
        }
    }

    /// `prev` is the record to show as the one before.
    pub(crate) fn event(self, event: &Event, prev: Option<&KeyValue>) -> mvccpb::Event {
        let kind = match event.kind {
            EventKind::Put => mvccpb::event::EventType::Put,
            EventKind::Delete => mvccpb::event::EventType::Delete,
        };
        mvccpb::Event { r#type: kind.into(), kv: Some(self.kv(&event.kv)), prev_kv: prev.map(|prev| self.kv(prev)) }
    }
}

pub(crate) fn range_answer(outcome: &OpOutcome, header: pb::ResponseHeader, copy: KvCopy) -> Option<pb::RangeResponse> {
    let OpOutcome::Range { kvs, more, count } = outcome else { return None };
    Some(pb::RangeResponse { header: Some(header), kvs: kvs.iter().map(|kv| copy.kv(kv)).collect(), more: *more, count: count_of(*count) })
}

/// A transaction's answers. Inside it, etcd reports the revision as it stands after each operation; a nested transaction's header stays empty.
pub(crate) fn responses(outcome: &TxnOutcome, copy: KvCopy) -> Vec<pb::ResponseOp> {
    let begin = outcome.revision - u64::from(outcome.responses.iter().any(changes));
    let mut changed = false;
    convert(&outcome.responses, begin, &mut changed, copy)
}

fn convert(outcomes: &[OpOutcome], begin: Revision, changed: &mut bool, copy: KvCopy) -> Vec<pb::ResponseOp> {
    outcomes.iter().map(|outcome| pb::ResponseOp { response: Some(convert_one(outcome, begin, changed, copy)) }).collect()
}

fn convert_one(outcome: &OpOutcome, begin: Revision, changed: &mut bool, copy: KvCopy) -> response_op::Response {
    if !matches!(outcome, OpOutcome::Txn(_)) {
        *changed |= changes(outcome);
    }
    let header = Some(pb::ResponseHeader { revision: signed(begin + u64::from(*changed)), ..Default::default() });
    match outcome {
        OpOutcome::Range { kvs, more, count } => response_op::Response::ResponseRange(pb::RangeResponse {
            header,
            kvs: kvs.iter().map(|kv| copy.kv(kv)).collect(),
            more: *more,
            count: count_of(*count),
        }),
        OpOutcome::Put { prev } => response_op::Response::ResponsePut(pb::PutResponse { header, prev_kv: prev.as_deref().map(|prev| copy.kv(prev)) }),
        OpOutcome::Delete { deleted, prevs } => response_op::Response::ResponseDeleteRange(pb::DeleteRangeResponse {
            header,
            deleted: count_of(*deleted),
            prev_kvs: prevs.iter().map(|prev| copy.kv(prev)).collect(),
        }),
        OpOutcome::Txn(nested) => response_op::Response::ResponseTxn(pb::TxnResponse {
            header: Some(pb::ResponseHeader::default()),
            succeeded: nested.succeeded,
            responses: convert(&nested.responses, begin, changed, copy),
        }),
    }
}

fn changes(outcome: &OpOutcome) -> bool {
    match outcome {
        OpOutcome::Range { .. } => false,
        OpOutcome::Put { .. } => true,
        OpOutcome::Delete { deleted, .. } => *deleted > 0,
        OpOutcome::Txn(nested) => nested.responses.iter().any(changes),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn count_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
