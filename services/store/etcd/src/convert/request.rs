//! Requests: etcd's messages to the store's commands.

use bytes::Bytes;
use wheelhouse_base::Revision;
use wheelhouse_mvcc::{Command, Compare, CompareTarget, Comparison, DeleteRange, KeyRange, Op, Put, Range, Refusal, SortOrder, SortTarget, Txn};

use crate::generated::etcdserverpb::{self as pb, compare, range_request, request_op};
use crate::status::ApiError;

/// Operations in one branch of a transaction, counting those above it when nested. etcd's default.
const MAX_TXN_OPS: usize = 128;

pub(crate) fn range(request: &pb::RangeRequest) -> Result<Range, ApiError> {
    non_empty(&request.key)?;
    let sort_order = match range_request::SortOrder::try_from(request.sort_order) {
        Ok(range_request::SortOrder::None) => SortOrder::None,
        Ok(range_request::SortOrder::Ascend) => SortOrder::Ascend,
        Ok(range_request::SortOrder::Descend) => SortOrder::Descend,
        Err(_) => return Err(ApiError::InvalidSortOption),
    };
    let sort_target = match range_request::SortTarget::try_from(request.sort_target) {
        Ok(range_request::SortTarget::Key) => SortTarget::Key,
        Ok(range_request::SortTarget::Version) => SortTarget::Version,
        Ok(range_request::SortTarget::Create) => SortTarget::Create,
        Ok(range_request::SortTarget::Mod) => SortTarget::Mod,
        Ok(range_request::SortTarget::Value) => SortTarget::Value,
        Err(_) => return Err(ApiError::InvalidSortOption),
    };
    let (min_mod_revision, max_mod_revision) = bounds(request.min_mod_revision, request.max_mod_revision);
    let (min_create_revision, max_create_revision) = bounds(request.min_create_revision, request.max_create_revision);
    Ok(Range {
        range: key_range(&request.key, &request.range_end),
        revision: positive(request.revision),
        limit: usize::try_from(request.limit).unwrap_or(0),
        sort_order,
        sort_target,
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision,
        max_mod_revision,
        min_create_revision,
        max_create_revision,
    })
}

pub(crate) fn put(request: &pb::PutRequest) -> Result<Put, ApiError> {
    non_empty(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(Refusal::ValueProvided.into());
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Refusal::LeaseProvided.into());
    }
    Ok(Put {
        key: own(&request.key),
        value: own(&request.value),
        lease: request.lease,
        prev_kv: request.prev_kv,
        ignore_value: request.ignore_value,
        ignore_lease: request.ignore_lease,
    })
}

pub(crate) fn delete(request: &pb::DeleteRangeRequest) -> Result<DeleteRange, ApiError> {
    non_empty(&request.key)?;
    Ok(DeleteRange { range: key_range(&request.key, &request.range_end), prev_kv: request.prev_kv })
}

pub(crate) fn txn(request: &pb::TxnRequest) -> Result<Txn, ApiError> {
    let txn = bounded_txn(request, MAX_TXN_OPS)?;
    txn.validate()?;
    Ok(txn)
}

pub(crate) fn compact(request: &pb::CompactionRequest) -> Result<Command, ApiError> {
    let revision = request.revision.try_into().map_err(|_| Refusal::Compacted { requested: 0, compacted: 0 })?;
    Ok(Command::Compact { revision })
}

/// What a watch asks for: no key means the smallest one. `None` if the range holds nothing.
pub(crate) fn watch_range(request: &pb::WatchCreateRequest) -> Option<KeyRange> {
    let key = if request.key.is_empty() { Bytes::from_static(b"\0") } else { own(&request.key) };
    let range = key_range(&key, &request.range_end);
    let empty = range.end.as_ref().is_some_and(|end| end[..] != b"\0"[..] && *end <= range.start);
    (!empty).then_some(range)
}

fn bounded_txn(request: &pb::TxnRequest, allowed: usize) -> Result<Txn, ApiError> {
    let most = request.compare.len().max(request.success.len()).max(request.failure.len());
    let left = allowed.checked_sub(most).ok_or(ApiError::TooManyOps(allowed))?;
    request.compare.iter().try_for_each(|compare| non_empty(&compare.key))?;
    let branch = |ops: &[pb::RequestOp]| ops.iter().map(|op| operation(op, left)).collect::<Result<Vec<_>, _>>();
    Ok(Txn { success: branch(&request.success)?, failure: branch(&request.failure)?, compare: request.compare.iter().map(comparison).collect() })
}

fn operation(op: &pb::RequestOp, left: usize) -> Result<Op, ApiError> {
    Ok(match op.request.as_ref().ok_or(ApiError::EmptyOperation)? {
        request_op::Request::RequestRange(request) => Op::Range(range(request)?),
        request_op::Request::RequestPut(request) => Op::Put(put(request)?),
        request_op::Request::RequestDeleteRange(request) => Op::Delete(delete(request)?),
        request_op::Request::RequestTxn(request) => Op::Txn(Box::new(bounded_txn(request, left)?)),
    })
}

/// A target without its value compares with zero or nothing, as protobuf's defaults say.
fn comparison(request: &pb::Compare) -> Compare {
    use compare::TargetUnion;
    let comparison = match compare::CompareResult::try_from(request.result) {
        Ok(compare::CompareResult::NotEqual) => Comparison::NotEqual,
        Ok(compare::CompareResult::Greater) => Comparison::Greater,
        Ok(compare::CompareResult::Less) => Comparison::Less,
        Ok(compare::CompareResult::Equal) | Err(_) => Comparison::Equal,
    };
    let union = request.target_union.as_ref();
    let (comparison, target) = match compare::CompareTarget::try_from(request.target) {
        Ok(compare::CompareTarget::Value) => {
            let value = if let Some(TargetUnion::Value(value)) = union { own(value) } else { Bytes::new() };
            (comparison, CompareTarget::Value(value))
        }
        Ok(compare::CompareTarget::Lease) => (comparison, CompareTarget::Lease(if let Some(TargetUnion::Lease(lease)) = union { *lease } else { 0 })),
        Ok(compare::CompareTarget::Create) => {
            let (comparison, revision) = counter(comparison, if let Some(TargetUnion::CreateRevision(revision)) = union { *revision } else { 0 });
            (comparison, CompareTarget::CreateRevision(revision))
        }
        Ok(compare::CompareTarget::Mod) => {
            let (comparison, revision) = counter(comparison, if let Some(TargetUnion::ModRevision(revision)) = union { *revision } else { 0 });
            (comparison, CompareTarget::ModRevision(revision))
        }
        Ok(compare::CompareTarget::Version) | Err(_) => {
            let (comparison, version) = counter(comparison, if let Some(TargetUnion::Version(version)) = union { *version } else { 0 });
            (comparison, CompareTarget::Version(version))
        }
    };
    Compare { range: key_range(&request.key, &request.range_end), comparison, target }
}

/// Counters are never negative, so a negative number stands below all of them. The store has no such number; the largest one,
/// which no counter reaches, with the comparison turned around decides the same.
fn counter(comparison: Comparison, wanted: i64) -> (Comparison, u64) {
    let turned = match comparison {
        Comparison::Greater => Comparison::Less,
        Comparison::Less => Comparison::Greater,
        same => same,
    };
    u64::try_from(wanted).map_or((turned, u64::MAX), |wanted| (comparison, wanted))
}

/// A negative lower bound excludes nothing and a negative upper one everything, but either makes etcd filter.
fn bounds(min: i64, max: i64) -> (Revision, Revision) {
    match (min, max) {
        (_, ..0) => (u64::MAX, 0),
        (..0, 0) => (0, u64::MAX),
        _ => (positive(min), positive(max)),
    }
}

fn positive(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn key_range(key: &Bytes, range_end: &Bytes) -> KeyRange {
    KeyRange { start: own(key), end: (!range_end.is_empty()).then(|| own(range_end)) }
}

fn non_empty(key: &[u8]) -> Result<(), ApiError> {
    if key.is_empty() { Err(Refusal::EmptyKey.into()) } else { Ok(()) }
}

/// A message's fields share its buffer; what the store keeps must not hold on to the whole of it.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
