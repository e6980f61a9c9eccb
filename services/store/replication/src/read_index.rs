//! Linearizable reads on any replica: one question to the leader's quorum serves all who wait when it is asked.

use std::sync::Arc;
use std::time::Duration;

use openraft::ReadPolicy;
use tokio::sync::{mpsc, oneshot};
use wheelhouse_rocks::codec::{Reader, Writer};
use wheelhouse_store::ReadError;

use crate::group::{Group, Leader};
use crate::peers::Operation;

/// Reads that wait at most.
pub const WAITING_READS: usize = 16 * 1024;

/// How long a read waits for a leader with a quorum: an election (up to 1 s) and the round trips after it, with room for a second try.
const DEADLINE: Duration = Duration::from_secs(3);

/// One question's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Between two tries while nobody leads, unless the leadership changes sooner.
const RETRY: Duration = Duration::from_millis(50);

pub type Waiting = oneshot::Sender<Result<u64, ReadError>>;

/// Answers with the index that must be applied before a read. All who wait when a round begins share it: the round is newer than they are.
pub async fn run(group: Arc<Group>, mut queue: mpsc::Receiver<Waiting>, mut stop: wheelhouse_runtime::Stop) {
    let mut waiting = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            received = queue.recv_many(&mut waiting, WAITING_READS) => {
                if received == 0 {
                    return;
                }
            }
        }
        let index = tokio::select! {
            biased;
            () = stop.stopped() => Err(ReadError::Stopped),
            index = ask(&group) => index,
        };
        for answer in waiting.drain(..) {
            // A reader that gave up needs no answer.
            let _ = answer.send(index.clone());
        }
    }
}

async fn ask(group: &Arc<Group>) -> Result<u64, ReadError> {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let mut leadership = group.leadership.subscribe();
    loop {
        leadership.borrow_and_update();
        match group.leader() {
            Leader::Here => {
                if let Some(index) = index_here(group).await {
                    return Ok(index);
                }
            }
            Leader::At { host, replica } => {
                let call = group.peers.call(&host, &group.route(replica), Operation::ReadIndex, &[], ANSWER_TIMEOUT);
                if let Ok(answer) = call.await
                    && let Some(index) = read_answer(answer)
                {
                    return Ok(index);
                }
            }
            Leader::Nobody => {}
        }
        group.leader_unreachable();
        if tokio::time::Instant::now() >= deadline {
            return Err(ReadError::Unavailable);
        }
        // Whether the leadership changed or the time passed, the next step is the same.
        let _ = tokio::time::timeout(RETRY, leadership.changed()).await;
    }
}

/// The index, if this replica leads and a quorum confirms it.
pub async fn index_here(group: &Group) -> Option<u64> {
    let asked = group.raft.get_read_linearizer(ReadPolicy::ReadIndex);
    match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
        Ok(Ok(linearizer)) => Some(linearizer.read_log_id().index()),
        Ok(Err(_)) | Err(_) => None,
    }
}

pub fn encode_answer(index: Option<u64>) -> bytes::Bytes {
    let mut w = Writer::default();
    w.bool(index.is_some());
    index.into_iter().for_each(|index| w.u64(index));
    w.finish()
}

fn read_answer(bytes: bytes::Bytes) -> Option<u64> {
    let mut r = Reader::new(bytes);
    if r.bool().ok()? { r.u64().ok() } else { None }
}
