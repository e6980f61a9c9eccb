//! [`ReplicatedStore`]: one replica of a cluster's store, as the rest of the process sees it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::Instrument;
use wheelhouse_base::{ReplicaId, Revision};
use wheelhouse_mvcc::codec::encode_command;
use wheelhouse_mvcc::{Command, Fence, KeyRange, Outcome, Snapshot};
use wheelhouse_rocks::GroupId;
use wheelhouse_store::{CommitError, Leadership, ReadError, Store, Watch, WatchError, check_size};

use crate::group::{Group, Leader};
use crate::outcome::{self, ProposeError};
use crate::peers::{CallError, Operation};

/// A write that is not answered within this time has an unknown outcome. Longer than an election and a slow sync together.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

/// How long a write waits for a leader before it is certainly not done.
const LEADER_DEADLINE: Duration = Duration::from_secs(5);

/// Between two tries to reach the leader, unless the leadership changes sooner.
const RETRY: Duration = Duration::from_millis(20);

/// How long a read waits for this replica to catch up with the index that its leader named.
const APPLY_DEADLINE: Duration = Duration::from_secs(5);

/// A replica of a cluster's store. Cheap to clone.
#[derive(Clone)]
pub struct ReplicatedStore {
    pub(crate) group: Arc<Group>,
}

/// How a replica is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    Running,
    /// It has stopped applying and serves nothing but old snapshots. The reason is for the operator.
    Faulted {
        reason: String,
    },
    Stopped,
}

impl ReplicatedStore {
    pub fn id(&self) -> &GroupId {
        &self.group.id
    }

    pub fn state(&self) -> ReplicaState {
        match self.group.machine.fault().borrow().clone() {
            Some(reason) => ReplicaState::Faulted { reason },
            None if self.group.is_stopped() => ReplicaState::Stopped,
            None => ReplicaState::Running,
        }
    }

    /// Changes when the replica becomes faulted; holds the reason.
    pub fn fault(&self) -> watch::Receiver<Option<String>> {
        self.group.machine.fault()
    }

    /// Whether its group rests: nothing was written for a while, and no Raft timer runs.
    pub fn is_parked(&self) -> bool {
        self.group.parking.is_parked()
    }

    /// The first broken invariant of this replica's state. Reads everything: for tests.
    pub fn check(&self) -> Result<(), String> {
        self.group.machine.check()
    }

    async fn commit_anywhere(&self, command: Command) -> Result<Outcome, CommitError> {
        let give_up = Instant::now() + LEADER_DEADLINE;
        let mut leadership = self.group.leadership.subscribe();
        loop {
            leadership.borrow_and_update();
            let answer = match self.group.leader() {
                Leader::Here => self.group.propose_here(command.clone()).await,
                Leader::At { host, replica } => self.forward(&command, &host, replica).await,
                Leader::Nobody => Err(ProposeError::NotLeader),
            };
            match answer {
                Ok(outcome) => return Ok(outcome),
                Err(ProposeError::Failed(error)) => {
                    if matches!(error, CommitError::Unknown(_)) {
                        self.group.leader_unreachable();
                    }
                    return Err(error);
                }
                Err(ProposeError::NotLeader) => self.group.leader_unreachable(),
            }
            if self.group.is_stopped() {
                return Err(CommitError::Stopped);
            }
            if Instant::now() >= give_up {
                return Err(CommitError::Unavailable);
            }
            // Whether the leadership changed or the time passed, the next step is the same.
            let _ = tokio::time::timeout(RETRY, leadership.changed()).await;
        }
    }

    async fn forward(&self, command: &Command, host: &wheelhouse_base::HostName, replica: ReplicaId) -> Result<Outcome, ProposeError> {
        let mut body = Vec::new();
        encode_command(command, &mut body);
        match self.group.peers.call(host, &self.group.route(replica), Operation::Propose, &body, WRITE_DEADLINE).await {
            Ok(answer) => {
                outcome::decode_answer(answer).unwrap_or(Err(ProposeError::Failed(CommitError::Unknown("the leader's answer makes no sense"))))
            }
            Err(CallError::NotDone(_)) => Err(ProposeError::NotLeader),
            Err(CallError::Unknown(why)) => Err(ProposeError::Failed(CommitError::Unknown(why))),
        }
    }

    async fn commit_fenced(&self, command: Command, fence: Fence) -> Result<Outcome, CommitError> {
        if self.group.leads() != Some(fence.term) {
            return Err(CommitError::NotLeader);
        }
        self.group.propose_here(command).await.map_err(|error| match error {
            ProposeError::NotLeader => CommitError::NotLeader,
            ProposeError::Failed(error) => error,
        })
    }
}

#[async_trait]
impl Store for ReplicatedStore {
    fn snapshot(&self) -> Snapshot {
        self.group.machine.hub().snapshot()
    }

    async fn barrier(&self) -> Result<Snapshot, ReadError> {
        let (tx, rx) = oneshot::channel();
        match self.group.reads.try_send(tx) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(ReadError::Unavailable),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(ReadError::Stopped),
        }
        let index = rx.await.unwrap_or(Err(ReadError::Stopped))?;
        let mut position = self.group.machine.position();
        let mut fault = self.group.machine.fault();
        let applied = async {
            tokio::select! {
                biased;
                reached = position.wait_for(|position| position.next_index > index) => reached.is_ok(),
                _ = fault.wait_for(Option::is_some) => false,
            }
        };
        match tokio::time::timeout(APPLY_DEADLINE, applied).await {
            Ok(true) => Ok(self.snapshot()),
            Ok(false) => Err(ReadError::Stopped),
            Err(_) => Err(ReadError::Unavailable),
        }
    }

    async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<Snapshot, ReadError> {
        self.group.machine.hub().wait_for(revision, timeout).await
    }

    async fn commit(&self, command: Command) -> Result<Outcome, CommitError> {
        check_size(&command)?;
        if self.group.is_stopped() {
            return Err(CommitError::Stopped);
        }
        let committed = async {
            match &command {
                Command::Txn { fence: Some(fence), .. } => self.commit_fenced(command.clone(), *fence).await,
                _ => self.commit_anywhere(command.clone()).await,
            }
        };
        let committed = committed.instrument(tracing::debug_span!("propose", group = %self.group.id));
        match tokio::time::timeout(WRITE_DEADLINE, committed).await {
            Ok(result) => result,
            Err(_) => Err(CommitError::Unknown("no answer in time")),
        }
    }

    fn watch(&self, range: KeyRange, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        Ok(Box::new(self.group.machine.hub().subscribe(range, after)?))
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.group.leadership.subscribe()
    }

    fn replica(&self) -> ReplicaId {
        self.group.id.replica
    }
}
