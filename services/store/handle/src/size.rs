//! The size that a command may have, checked before it is proposed.

use wheelhouse_base::limits::MAX_VALUE_BYTES;
use wheelhouse_mvcc::{Command, Op, Txn};

use crate::CommitError;

/// Refuses a command with a value over [`MAX_VALUE_BYTES`].
pub fn check_size(command: &Command) -> Result<(), CommitError> {
    let Command::Txn { txn, .. } = command else { return Ok(()) };
    match largest_value(txn) {
        size if size > MAX_VALUE_BYTES => Err(CommitError::TooLarge { size, limit: MAX_VALUE_BYTES }),
        _ => Ok(()),
    }
}

fn largest_value(txn: &Txn) -> usize {
    let size = |op: &Op| match op {
        Op::Put(put) => put.key.len() + put.value.len(),
        Op::Txn(txn) => largest_value(txn),
        Op::Range(_) | Op::Delete(_) => 0,
    };
    txn.success.iter().chain(&txn.failure).map(size).max().unwrap_or(0)
}
