//! The leader's group commit: the commands of many clients in one log entry.
//!
//! While a few entries are on their way through the quorum, the next commands gather; as soon as one entry is through, all that wait go
//! into the next. So one client pays no delay, and many clients share the costs of an entry: one seal, one append, one message per follower.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use openraft::errors::{ClientWriteError, RaftError};
use tokio::sync::{mpsc, oneshot};
use wheelhouse_mvcc::{Command, Op, Outcome, Txn};
use wheelhouse_rocks::Sealer;
use wheelhouse_store::CommitError;

use crate::outcome::ProposeError;
use crate::proposal::Proposal;
use crate::raft_types::Raft;

/// Commands of one cluster that wait for the leader at most. More are refused as `Overloaded`, which the API answers with 429.
pub const WAITING_COMMANDS: usize = 4096;

/// Entries on their way at once. Two keep the disk busy while the network is; more only make the batches smaller.
const ENTRIES_UNDER_WAY: usize = 2;

/// One entry's commands at most, by number and by bytes of their values. An entry of 1 MiB delays nobody by more than a few milliseconds.
const ENTRY_COMMANDS: usize = 512;
const ENTRY_BYTES: usize = 1 << 20;

pub struct Pending {
    pub command: Command,
    pub answer: oneshot::Sender<Result<Outcome, ProposeError>>,
}

/// Proposes what arrives until the senders are gone or the replica stops.
pub async fn run(raft: Raft, sealer: Arc<Sealer>, mut queue: mpsc::Receiver<Pending>, mut stop: wheelhouse_runtime::Stop) {
    let mut under_way = FuturesUnordered::new();
    let mut gathered: Vec<Pending> = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            // What exceeded the last entry's bytes goes first.
            () = std::future::ready(()), if !gathered.is_empty() && under_way.len() < ENTRIES_UNDER_WAY => {
                under_way.push(propose(raft.clone(), sealer.clone(), next_entry(&mut gathered)));
            }
            received = queue.recv_many(&mut gathered, ENTRY_COMMANDS), if gathered.is_empty() && under_way.len() < ENTRIES_UNDER_WAY => {
                if received == 0 {
                    return;
                }
            }
        }
    }
}

fn next_entry(gathered: &mut Vec<Pending>) -> Vec<Pending> {
    let mut bytes = 0;
    let fits = gathered.iter().take_while(|pending| {
        let first = bytes == 0;
        bytes += size(&pending.command);
        first || bytes <= ENTRY_BYTES
    });
    let count = fits.count();
    let rest = gathered.split_off(count);
    std::mem::replace(gathered, rest)
}

async fn propose(raft: Raft, sealer: Arc<Sealer>, pending: Vec<Pending>) {
    let mut commands = Vec::with_capacity(pending.len());
    let mut answers = Vec::with_capacity(pending.len());
    for Pending { command, answer } in pending {
        // Whoever gave up has been told that it does not know; nothing is proposed for it any more.
        if !answer.is_closed() {
            commands.push(command);
            answers.push(answer);
        }
    }
    if commands.is_empty() {
        return;
    }
    let result = raft.client_write(Proposal::seal(&sealer, commands)).await;
    let failure = match result {
        Ok(response) => {
            debug_assert_eq!(response.data.0.len(), answers.len(), "one outcome per command");
            for (answer, outcome) in answers.into_iter().zip(response.data.0) {
                // A client that gave up meanwhile learns nothing.
                let _ = answer.send(Ok(outcome));
            }
            return;
        }
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => ProposeError::NotLeader,
        Err(RaftError::APIError(_)) => ProposeError::Failed(CommitError::Unknown("the leadership changed")),
        Err(RaftError::Fatal(_)) => ProposeError::Failed(CommitError::Unknown("this replica has stopped")),
    };
    for answer in answers {
        let _ = answer.send(Err(failure.clone()));
    }
}

fn size(command: &Command) -> usize {
    fn of(txn: &Txn) -> usize {
        let op = |op: &Op| match op {
            Op::Put(put) => put.key.len() + put.value.len(),
            Op::Txn(txn) => of(txn),
            Op::Range(_) | Op::Delete(_) => 64,
        };
        64 + txn.success.iter().chain(&txn.failure).map(op).sum::<usize>()
    }
    match command {
        Command::Txn { txn, .. } => of(txn),
        _ => 64,
    }
}

/// Whether a command can add bytes to the store; such ones are refused when the disk is nearly full.
pub fn adds_data(command: &Command) -> bool {
    fn adds(txn: &Txn) -> bool {
        txn.success.iter().chain(&txn.failure).any(|op| match op {
            Op::Put(_) => true,
            Op::Txn(txn) => adds(txn),
            Op::Range(_) | Op::Delete(_) => false,
        })
    }
    match command {
        Command::Txn { txn, .. } => adds(txn),
        Command::LeaseGrant { .. } => true,
        Command::Compact { .. } | Command::LeaseRevoke { .. } | Command::LeaseRenew { .. } => false,
    }
}
