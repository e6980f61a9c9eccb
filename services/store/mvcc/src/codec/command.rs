//! Commands, as log entries carry them.

use super::wire::{Reader, Writer};
use super::{CodecError, MAX_TXN_DEPTH, begin, open};
use crate::command::{Command, Compare, CompareTarget, Comparison, DeleteRange, Fence, KeyRange, Op, Put, Range, SortOrder, SortTarget, Txn};

const TXN: u8 = 1;
const FENCED_TXN: u8 = 2;
const COMPACT: u8 = 3;
const LEASE_GRANT: u8 = 4;
const LEASE_REVOKE: u8 = 5;
const LEASE_RENEW: u8 = 6;

/// Appends `command`.
pub fn encode_command(command: &Command, out: &mut Vec<u8>) {
    let mut w = begin(out);
    match command {
        Command::Txn { txn, fence: None } => {
            w.byte(TXN);
            write_txn(&mut w, txn);
        }
        Command::Txn { txn, fence: Some(fence) } => {
            w.byte(FENCED_TXN);
            w.unsigned(fence.term);
            write_txn(&mut w, txn);
        }
        Command::Compact { revision } => {
            w.byte(COMPACT);
            w.unsigned(*revision);
        }
        Command::LeaseGrant { id, ttl_secs } => {
            w.byte(LEASE_GRANT);
            w.signed(*id);
            w.signed(*ttl_secs);
        }
        Command::LeaseRevoke { id } => {
            w.byte(LEASE_REVOKE);
            w.signed(*id);
        }
        Command::LeaseRenew { id } => {
            w.byte(LEASE_RENEW);
            w.signed(*id);
        }
    }
}

pub fn decode_command(bytes: &[u8]) -> Result<Command, CodecError> {
    let mut r = open(bytes)?;
    let command = match r.byte()? {
        TXN => Command::Txn { fence: None, txn: read_txn(&mut r, 0)? },
        FENCED_TXN => Command::Txn { fence: Some(Fence { term: r.unsigned()? }), txn: read_txn(&mut r, 0)? },
        COMPACT => Command::Compact { revision: r.unsigned()? },
        LEASE_GRANT => Command::LeaseGrant { id: r.signed()?, ttl_secs: r.signed()? },
        LEASE_REVOKE => Command::LeaseRevoke { id: r.signed()? },
        LEASE_RENEW => Command::LeaseRenew { id: r.signed()? },
        tag => return Err(CodecError::UnknownTag { what: "command", tag }),
    };
    r.end()?;
    Ok(command)
}

fn write_txn(w: &mut Writer<'_>, txn: &Txn) {
    w.len(txn.compare.len());
    txn.compare.iter().for_each(|compare| write_compare(w, compare));
    for branch in [&txn.success, &txn.failure] {
        w.len(branch.len());
        branch.iter().for_each(|op| write_op(w, op));
    }
}

fn read_txn(r: &mut Reader<'_>, depth: usize) -> Result<Txn, CodecError> {
    if depth == MAX_TXN_DEPTH {
        return Err(CodecError::TooDeep);
    }
    let compare = (0..r.len()?).map(|_| read_compare(r)).collect::<Result<_, _>>()?;
    let success = (0..r.len()?).map(|_| read_op(r, depth)).collect::<Result<_, _>>()?;
    let failure = (0..r.len()?).map(|_| read_op(r, depth)).collect::<Result<_, _>>()?;
    Ok(Txn { compare, success, failure })
}

fn write_op(w: &mut Writer<'_>, op: &Op) {
    match op {
        Op::Range(range) => {
            w.byte(1);
            write_range(w, range);
        }
        Op::Put(put) => {
            w.byte(2);
            w.bytes(&put.key);
            w.bytes(&put.value);
            w.signed(put.lease);
            w.byte(u8::from(put.prev_kv) | u8::from(put.ignore_value) << 1 | u8::from(put.ignore_lease) << 2);
        }
        Op::Delete(delete) => {
            w.byte(3);
            write_key_range(w, &delete.range);
            w.flag(delete.prev_kv);
        }
        Op::Txn(txn) => {
            w.byte(4);
            write_txn(w, txn);
        }
    }
}

fn read_op(r: &mut Reader<'_>, depth: usize) -> Result<Op, CodecError> {
    Ok(match r.byte()? {
        1 => Op::Range(read_range(r)?),
        2 => {
            let (key, value, lease) = (r.bytes()?, r.bytes()?, r.signed()?);
            let flags = r.byte()?;
            if flags > 0b111 {
                return Err(CodecError::UnknownTag { what: "put's flags", tag: flags });
            }
            Op::Put(Put { key, value, lease, prev_kv: flags & 1 != 0, ignore_value: flags & 2 != 0, ignore_lease: flags & 4 != 0 })
        }
        3 => Op::Delete(DeleteRange { range: read_key_range(r)?, prev_kv: r.flag("delete's flag")? }),
        4 => Op::Txn(Box::new(read_txn(r, depth + 1)?)),
        tag => return Err(CodecError::UnknownTag { what: "operation", tag }),
    })
}

fn write_key_range(w: &mut Writer<'_>, range: &KeyRange) {
    w.bytes(&range.start);
    w.flag(range.end.is_some());
    if let Some(end) = &range.end {
        w.bytes(end);
    }
}

fn read_key_range(r: &mut Reader<'_>) -> Result<KeyRange, CodecError> {
    Ok(KeyRange { start: r.bytes()?, end: if r.flag("range's end")? { Some(r.bytes()?) } else { None } })
}

fn write_compare(w: &mut Writer<'_>, compare: &Compare) {
    write_key_range(w, &compare.range);
    w.byte(match compare.comparison {
        Comparison::Equal => 0,
        Comparison::NotEqual => 1,
        Comparison::Greater => 2,
        Comparison::Less => 3,
    });
    match &compare.target {
        CompareTarget::Version(version) => {
            w.byte(0);
            w.unsigned(*version);
        }
        CompareTarget::CreateRevision(revision) => {
            w.byte(1);
            w.unsigned(*revision);
        }
        CompareTarget::ModRevision(revision) => {
            w.byte(2);
            w.unsigned(*revision);
        }
        CompareTarget::Value(value) => {
            w.byte(3);
            w.bytes(value);
        }
        CompareTarget::Lease(lease) => {
            w.byte(4);
            w.signed(*lease);
        }
    }
}

fn read_compare(r: &mut Reader<'_>) -> Result<Compare, CodecError> {
    let range = read_key_range(r)?;
    let comparison = match r.byte()? {
        0 => Comparison::Equal,
        1 => Comparison::NotEqual,
        2 => Comparison::Greater,
        3 => Comparison::Less,
        tag => return Err(CodecError::UnknownTag { what: "comparison", tag }),
    };
    let target = match r.byte()? {
        0 => CompareTarget::Version(r.unsigned()?),
        1 => CompareTarget::CreateRevision(r.unsigned()?),
        2 => CompareTarget::ModRevision(r.unsigned()?),
        3 => CompareTarget::Value(r.bytes()?),
        4 => CompareTarget::Lease(r.signed()?),
        tag => return Err(CodecError::UnknownTag { what: "target of a compare", tag }),
    };
    Ok(Compare { range, comparison, target })
}

fn write_range(w: &mut Writer<'_>, range: &Range) {
    write_key_range(w, &range.range);
    w.unsigned(range.revision);
    w.len(range.limit);
    w.byte(match range.sort_order {
        SortOrder::None => 0,
        SortOrder::Ascend => 1,
        SortOrder::Descend => 2,
    });
    w.byte(match range.sort_target {
        SortTarget::Key => 0,
        SortTarget::Version => 1,
        SortTarget::Create => 2,
        SortTarget::Mod => 3,
        SortTarget::Value => 4,
    });
    w.byte(u8::from(range.keys_only) | u8::from(range.count_only) << 1);
    for bound in [range.min_mod_revision, range.max_mod_revision, range.min_create_revision, range.max_create_revision] {
        w.unsigned(bound);
    }
}

fn read_range(r: &mut Reader<'_>) -> Result<Range, CodecError> {
    let (range, revision) = (read_key_range(r)?, r.unsigned()?);
    // A limit beyond the address space is none.
    let limit = usize::try_from(r.unsigned()?).unwrap_or(usize::MAX);
    let sort_order = match r.byte()? {
        0 => SortOrder::None,
        1 => SortOrder::Ascend,
        2 => SortOrder::Descend,
        tag => return Err(CodecError::UnknownTag { what: "sort order", tag }),
    };
    let sort_target = match r.byte()? {
        0 => SortTarget::Key,
        1 => SortTarget::Version,
        2 => SortTarget::Create,
        3 => SortTarget::Mod,
        4 => SortTarget::Value,
        tag => return Err(CodecError::UnknownTag { what: "sort target", tag }),
    };
    let flags = r.byte()?;
    if flags > 0b11 {
        return Err(CodecError::UnknownTag { what: "range's flags", tag: flags });
    }
    Ok(Range {
        range,
        revision,
        limit,
        sort_order,
        sort_target,
        keys_only: flags & 1 != 0,
        count_only: flags & 2 != 0,
        min_mod_revision: r.unsigned()?,
        max_mod_revision: r.unsigned()?,
        min_create_revision: r.unsigned()?,
        max_create_revision: r.unsigned()?,
    })
}
