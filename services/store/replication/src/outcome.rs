//! A proposal's answer between hosts: what a follower that forwarded a command gets back.

use std::sync::Arc;

use bytes::Bytes;
use wheelhouse_mvcc::codec::{CodecError, decode_record, encode_record};
use wheelhouse_mvcc::{KeyValue, OpOutcome, Outcome, Refusal, TxnOutcome};
use wheelhouse_rocks::codec::{DecodeError, Reader, Writer};
use wheelhouse_store::CommitError;

/// Nested answers go as deep as the transactions that they answer.
const MAX_DEPTH: usize = wheelhouse_mvcc::codec::MAX_TXN_DEPTH;

/// Why the leader did not commit a forwarded command.
#[derive(Clone, Debug)]
pub enum ProposeError {
    /// Certainly not done: another replica leads.
    NotLeader,
    Failed(CommitError),
}

pub fn encode_answer(answer: &Result<Outcome, ProposeError>) -> Bytes {
    let mut w = Writer::default();
    match answer {
        Ok(outcome) => {
            w.u8(0);
            write_outcome(&mut w, outcome);
        }
        Err(ProposeError::NotLeader) => w.u8(1),
        Err(ProposeError::Failed(error)) => match error {
            CommitError::Unavailable => w.u8(2),
            CommitError::NotLeader => w.u8(3),
            CommitError::Unknown(_) => w.u8(4),
            CommitError::Overloaded => w.u8(5),
            CommitError::DiskFull => w.u8(6),
            CommitError::TooLarge { size, limit } => {
                w.u8(7);
                w.u64(*size as u64);
                w.u64(*limit as u64);
            }
            CommitError::Stopped => w.u8(8),
        },
    }
    w.finish()
}

pub fn decode_answer(bytes: Bytes) -> Result<Result<Outcome, ProposeError>, DecodeError> {
    let mut r = Reader::new(bytes);
    let failed = |error| Ok(Err(ProposeError::Failed(error)));
    match r.u8()? {
        0 => {
            let outcome = read_outcome(&mut r)?;
            r.finish()?;
            Ok(Ok(outcome))
        }
        1 => Ok(Err(ProposeError::NotLeader)),
        2 => failed(CommitError::Unavailable),
        3 => failed(CommitError::NotLeader),
        4 => failed(CommitError::Unknown("the leader does not know")),
        5 => failed(CommitError::Overloaded),
        6 => failed(CommitError::DiskFull),
        7 => failed(CommitError::TooLarge { size: r.u64()? as usize, limit: r.u64()? as usize }),
        // Certainly not done there, but another leader may come.
        8 => Ok(Err(ProposeError::NotLeader)),
        other => Err(unknown("answer to a proposal", other)),
    }
}

fn unknown(what: &'static str, value: u8) -> DecodeError {
    DecodeError::Unknown { what, value: u64::from(value) }
}

fn write_outcome(w: &mut Writer, outcome: &Outcome) {
    match outcome {
        Outcome::Txn(txn) => {
            w.u8(1);
            write_txn(w, txn);
        }
        Outcome::Fenced { term } => {
            w.u8(2);
            w.u64(*term);
        }
        Outcome::Compacted => w.u8(3),
        Outcome::LeaseGranted => w.u8(4),
        Outcome::LeaseRevoked { revision } => {
            w.u8(5);
            w.u64(*revision);
        }
        Outcome::LeaseRenewed { ttl_secs } => {
            w.u8(6);
            w.i64(*ttl_secs);
        }
        Outcome::Failed(refusal) => {
            w.u8(7);
            write_refusal(w, refusal);
        }
    }
}

fn read_outcome(r: &mut Reader) -> Result<Outcome, DecodeError> {
    Ok(match r.u8()? {
        1 => Outcome::Txn(read_txn(r, 0)?),
        2 => Outcome::Fenced { term: r.u64()? },
        3 => Outcome::Compacted,
        4 => Outcome::LeaseGranted,
        5 => Outcome::LeaseRevoked { revision: r.u64()? },
        6 => Outcome::LeaseRenewed { ttl_secs: r.i64()? },
        7 => Outcome::Failed(read_refusal(r)?),
        other => return Err(unknown("outcome", other)),
    })
}

fn write_txn(w: &mut Writer, txn: &TxnOutcome) {
    w.bool(txn.succeeded);
    w.u64(txn.revision);
    w.u64(txn.responses.len() as u64);
    for response in &txn.responses {
        match response {
            OpOutcome::Range { kvs, more, count } => {
                w.u8(1);
                write_records(w, kvs);
                w.bool(*more);
                w.u64(*count as u64);
            }
            OpOutcome::Put { prev } => {
                w.u8(2);
                w.bool(prev.is_some());
                prev.iter().for_each(|kv| write_record(w, kv));
            }
            OpOutcome::Delete { deleted, prevs } => {
                w.u8(3);
                w.u64(*deleted as u64);
                write_records(w, prevs);
            }
            OpOutcome::Txn(txn) => {
                w.u8(4);
                write_txn(w, txn);
            }
        }
    }
}

fn read_txn(r: &mut Reader, depth: usize) -> Result<TxnOutcome, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::Invalid("answers nest too deep"));
    }
    let (succeeded, revision) = (r.bool()?, r.u64()?);
    let mut responses = Vec::new();
    for _ in 0..r.count()? {
        responses.push(match r.u8()? {
            1 => OpOutcome::Range { kvs: read_records(r)?, more: r.bool()?, count: r.u64()? as usize },
            2 => OpOutcome::Put { prev: if r.bool()? { Some(read_record(r)?) } else { None } },
            3 => OpOutcome::Delete { deleted: r.u64()? as usize, prevs: read_records(r)? },
            4 => OpOutcome::Txn(read_txn(r, depth + 1)?),
            other => return Err(unknown("answer to an operation", other)),
        });
    }
    Ok(TxnOutcome { succeeded, revision, responses })
}

fn write_record(w: &mut Writer, kv: &KeyValue) {
    let mut bytes = Vec::new();
    encode_record(kv, &mut bytes);
    w.bytes(&bytes);
}

fn read_record(r: &mut Reader) -> Result<Arc<KeyValue>, DecodeError> {
    decode_record(&r.bytes()?).map(Arc::new).map_err(|_: CodecError| DecodeError::Invalid("a record in an answer"))
}

fn write_records(w: &mut Writer, kvs: &[Arc<KeyValue>]) {
    w.u64(kvs.len() as u64);
    kvs.iter().for_each(|kv| write_record(w, kv));
}

fn read_records(r: &mut Reader) -> Result<Vec<Arc<KeyValue>>, DecodeError> {
    (0..r.count()?).map(|_| read_record(r)).collect()
}

fn write_refusal(w: &mut Writer, refusal: &Refusal) {
    match refusal {
        Refusal::Compacted { requested, compacted } => {
            w.u8(1);
            w.u64(*requested);
            w.u64(*compacted);
        }
        Refusal::FutureRevision { requested, current } => {
            w.u8(2);
            w.u64(*requested);
            w.u64(*current);
        }
        Refusal::LeaseNotFound(id) => {
            w.u8(3);
            w.i64(*id);
        }
        Refusal::LeaseExists(id) => {
            w.u8(4);
            w.i64(*id);
        }
        Refusal::KeyNotFound => w.u8(5),
        Refusal::DuplicateKey => w.u8(6),
        Refusal::EmptyKey => w.u8(7),
        Refusal::ValueProvided => w.u8(8),
        Refusal::LeaseProvided => w.u8(9),
    }
}

fn read_refusal(r: &mut Reader) -> Result<Refusal, DecodeError> {
    Ok(match r.u8()? {
        1 => Refusal::Compacted { requested: r.u64()?, compacted: r.u64()? },
        2 => Refusal::FutureRevision { requested: r.u64()?, current: r.u64()? },
        3 => Refusal::LeaseNotFound(r.i64()?),
        4 => Refusal::LeaseExists(r.i64()?),
        5 => Refusal::KeyNotFound,
        6 => Refusal::DuplicateKey,
        7 => Refusal::EmptyKey,
        8 => Refusal::ValueProvided,
        9 => Refusal::LeaseProvided,
        other => return Err(unknown("refusal", other)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_back() {
        let kv = Arc::new(KeyValue { key: "k".into(), value: "v".into(), create_revision: 2, mod_revision: 3, version: 2, lease: -1 });
        let txn = TxnOutcome {
            succeeded: true,
            revision: 9,
            responses: vec![
                OpOutcome::Range { kvs: vec![kv.clone()], more: true, count: 7 },
                OpOutcome::Put { prev: Some(kv.clone()) },
                OpOutcome::Put { prev: None },
                OpOutcome::Delete { deleted: 1, prevs: vec![kv] },
                OpOutcome::Txn(TxnOutcome { succeeded: false, revision: 9, responses: Vec::new() }),
            ],
        };
        let refusals = [
            Refusal::Compacted { requested: 1, compacted: 2 },
            Refusal::FutureRevision { requested: 3, current: 2 },
            Refusal::LeaseNotFound(5),
            Refusal::LeaseExists(-5),
            Refusal::KeyNotFound,
            Refusal::DuplicateKey,
            Refusal::EmptyKey,
            Refusal::ValueProvided,
            Refusal::LeaseProvided,
        ];
        let others = [
            Outcome::Txn(txn),
            Outcome::Fenced { term: 4 },
            Outcome::Compacted,
            Outcome::LeaseGranted,
            Outcome::LeaseRevoked { revision: 8 },
            Outcome::LeaseRenewed { ttl_secs: 60 },
        ];
        for outcome in others.into_iter().chain(refusals.map(Outcome::Failed)) {
            let decoded = decode_answer(encode_answer(&Ok(outcome.clone()))).unwrap().unwrap();
            assert_eq!(decoded, outcome);
        }
    }
}
