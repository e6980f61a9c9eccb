//! Seeded sequences of requests over a few keys, so that they meet often.

use bytes::Bytes;
use wheelhouse_etcd::generated::etcdserverpb as pb;
use wheelhouse_etcd::generated::etcdserverpb::{compare, request_op};

/// SplitMix64: small, seeded, the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// One request.
#[derive(Clone, Debug)]
pub enum Call {
    Range(pb::RangeRequest),
    Put(pb::PutRequest),
    Delete(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact(pb::CompactionRequest),
    Grant(pb::LeaseGrantRequest),
    /// A grant that would end by itself soon, revoked at once.
    BriefGrant(pb::LeaseGrantRequest),
    Revoke(pb::LeaseRevokeRequest),
    KeepAlive(pb::LeaseKeepAliveRequest),
    TimeToLive(pb::LeaseTimeToLiveRequest),
    Leases,
    /// Everything that a watch tells up to now.
    Watch(pb::WatchCreateRequest),
}

const KEYS: [&[u8]; 9] = [b"a", b"a/1", b"a/2", b"a/3", b"b", b"b/1", b"c", b"\0", b"\xff\xff"];
const VALUES: [&[u8]; 4] = [b"", b"x", b"y", b"zz"];
const LEASES: [i64; 5] = [1, 2, 3, -4, 99];

/// `revision` is the newest and `compacted` the oldest readable revision.
pub fn call(r: &mut Random, revision: i64, compacted: i64) -> Call {
    match r.below(100) {
        0..22 => Call::Range(range(r, revision, true)),
        22..44 => Call::Put(put(r)),
        44..52 => Call::Delete(delete(r)),
        52..78 => {
            let mut txn = txn(r, revision, 2);
            if any_op(&mut txn, &mut deletes_to_the_last_key) {
                any_op(&mut txn, &mut clear_ignore_flags);
            }
            Call::Txn(txn)
        }
        78..80 => Call::Compact(pb::CompactionRequest { revision: revision - 25 + r.below(28) as i64, physical: true }),
        80..84 => Call::Grant(pb::LeaseGrantRequest { id: r.pick(&LEASES), ttl: r.pick(&[1_000, 5_000, 9_000_000_001]) }),
        84..85 => Call::BriefGrant(pb::LeaseGrantRequest { id: r.pick(&LEASES), ttl: r.pick(&[-5, 0, 1, 2]) }),
        85..88 => Call::Revoke(pb::LeaseRevokeRequest { id: r.pick(&LEASES) }),
        88..90 => Call::KeepAlive(pb::LeaseKeepAliveRequest { id: r.pick(&LEASES) }),
        90..93 => Call::TimeToLive(pb::LeaseTimeToLiveRequest { id: r.pick(&LEASES), keys: r.one_in(2) }),
        93..94 => Call::Leases,
        _ => Call::Watch(watch(r, revision, compacted)),
    }
}

fn key(r: &mut Random) -> Bytes {
    if r.one_in(60) { Bytes::new() } else { Bytes::from_static(r.pick(&KEYS)) }
}

fn range_end(r: &mut Random, key: &Bytes) -> Bytes {
    match r.below(10) {
        0..4 => Bytes::new(),
        4..7 => wheelhouse_mvcc::prefix_end(key),
        7..8 => Bytes::from_static(b"\0"),
        _ => Bytes::from_static(r.pick(&KEYS)),
    }
}

fn bound(r: &mut Random, revision: i64) -> i64 {
    if r.one_in(8) { r.pick(&[-1, revision - 10, revision - 3, revision, revision + 1]) } else { 0 }
}

fn range(r: &mut Random, revision: i64, free: bool) -> pb::RangeRequest {
    let key = key(r);
    pb::RangeRequest {
        range_end: range_end(r, &key),
        key,
        limit: if r.one_in(3) { r.below(4) as i64 - 1 } else { 0 },
        revision: match r.below(8) {
            0 => revision - r.below(25) as i64,
            1 => revision + r.below(3) as i64,
            _ => 0,
        }
        .max(0),
        sort_order: r.below(3) as i32,
        // Within a transaction records often share a counter, and etcd's order of equals is nobody's promise.
        sort_target: if free { r.below(5) as i32 } else { 0 },
        serializable: r.one_in(3),
        keys_only: r.one_in(5),
        count_only: r.one_in(8),
        min_mod_revision: bound(r, revision),
        max_mod_revision: bound(r, revision),
        min_create_revision: bound(r, revision),
        max_create_revision: bound(r, revision),
    }
}

fn put(r: &mut Random) -> pb::PutRequest {
    pb::PutRequest {
        key: key(r),
        value: Bytes::from_static(r.pick(&VALUES)),
        lease: if r.one_in(4) { r.pick(&LEASES) } else { 0 },
        prev_kv: r.one_in(2),
        ignore_value: r.one_in(8),
        ignore_lease: r.one_in(8),
    }
}

fn delete(r: &mut Random) -> pb::DeleteRangeRequest {
    let key = key(r);
    pb::DeleteRangeRequest { range_end: range_end(r, &key), key, prev_kv: r.one_in(2) }
}

fn compare(r: &mut Random, revision: i64) -> pb::Compare {
    use compare::TargetUnion;
    let near = |r: &mut Random| r.pick(&[-1, 0, 1, revision - 5, revision - 1, revision]);
    let key = key(r);
    let (target, union) = match r.below(5) {
        0 => (0, TargetUnion::Version(r.below(4) as i64 - 1)),
        1 => (1, TargetUnion::CreateRevision(near(r))),
        2 => (2, TargetUnion::ModRevision(near(r))),
        3 => (3, TargetUnion::Value(Bytes::from_static(r.pick(&VALUES)))),
        _ => (4, TargetUnion::Lease(r.pick(&LEASES))),
    };
    pb::Compare {
        result: r.below(4) as i32,
        target: if r.one_in(20) { r.below(5) as i32 } else { target },
        range_end: if r.one_in(3) { range_end(r, &key) } else { Bytes::new() },
        key,
        target_union: (!r.one_in(20)).then_some(union),
    }
}

fn txn(r: &mut Random, revision: i64, depth: u32) -> pb::TxnRequest {
    let compare = (0..r.below(3)).map(|_| compare(r, revision)).collect();
    let success = (0..r.below(4)).map(|_| op(r, revision, depth)).collect();
    let failure = (0..r.below(4)).map(|_| op(r, revision, depth)).collect();
    pb::TxnRequest { compare, success, failure }
}

fn op(r: &mut Random, revision: i64, depth: u32) -> pb::RequestOp {
    let request = match r.below(20) {
        0..5 => request_op::Request::RequestRange(range(r, revision, false)),
        5..12 => request_op::Request::RequestPut(put(r)),
        12..16 => request_op::Request::RequestDeleteRange(delete(r)),
        16..19 if depth > 0 => request_op::Request::RequestTxn(txn(r, revision, depth - 1)),
        16..19 => request_op::Request::RequestPut(put(r)),
        _ if r.one_in(8) => return pb::RequestOp { request: None },
        _ => request_op::Request::RequestRange(range(r, revision, false)),
    };
    pb::RequestOp { request: Some(request) }
}

/// A put that keeps a value which an earlier delete of the same transaction removed crashes this etcd. Its check for keys changed twice
/// overlooks only deletes of this form.
fn deletes_to_the_last_key(op: &mut request_op::Request) -> bool {
    matches!(op, request_op::Request::RequestDeleteRange(delete) if delete.range_end[..] == b"\0"[..])
}

fn clear_ignore_flags(op: &mut request_op::Request) -> bool {
    if let request_op::Request::RequestPut(put) = op {
        (put.ignore_value, put.ignore_lease) = (false, false);
    }
    false
}

/// Whether `found` holds for an operation of `txn` or of those nested in it; visits them up to the first.
fn any_op(txn: &mut pb::TxnRequest, found: &mut impl FnMut(&mut request_op::Request) -> bool) -> bool {
    let ops = txn.success.iter_mut().chain(&mut txn.failure);
    ops.filter_map(|op| op.request.as_mut()).any(|op| match op {
        request_op::Request::RequestTxn(txn) => any_op(txn, found),
        op => found(op),
    })
}

fn watch(r: &mut Random, revision: i64, compacted: i64) -> pb::WatchCreateRequest {
    let key = key(r);
    // Exactly at the compacted revision this etcd forgets deletions and old records, which later ones do not.
    let start = (revision - r.below(25) as i64).max(1);
    pb::WatchCreateRequest {
        range_end: range_end(r, &key),
        key,
        start_revision: if start == compacted { compacted + 1 } else { start },
        filters: if r.one_in(4) { vec![r.below(2) as i32] } else { Vec::new() },
        prev_kv: r.one_in(2) && start > compacted + 1,
        watch_id: if r.one_in(3) { r.below(9) as i64 } else { 0 },
        fragment: r.one_in(4),
        progress_notify: r.one_in(4),
    }
}
