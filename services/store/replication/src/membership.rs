//! Changing who belongs to a group. Only its leader can; whoever drives a change asks each host in turn until one leads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use wheelhouse_base::{HostName, ReplicaId};

use crate::group::Group;
use crate::raft_types::{Peer, Raft, TypeConfig};
use crate::read_index;
use crate::store::ReplicatedStore;

/// A learner may vote once it is this close to the leader: what is missing arrives within a heartbeat or two.
pub const PROMOTE_WITHIN: u64 = 1_000;

/// A change takes one or two entries through the quorum.
const CHANGE_DEADLINE: Duration = Duration::from_secs(10);

/// A planned hand-over takes one round trip and an election without waiting; after this it has failed.
const TRANSFER_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Voter,
    /// Receives the log and does not vote.
    Learner,
}

/// One member as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub replica: ReplicaId,
    pub host: HostName,
    pub role: Role,
    /// The newest entry it is known to hold. `None` on replicas that do not lead, and before the first answer.
    pub matched: Option<u64>,
    /// Entries of the leader's log that it is not known to hold; `None` where `matched` is.
    pub lag: Option<u64>,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum MembershipError {
    #[error("replica {leader:?} leads, not this one")]
    NotLeader { leader: Option<ReplicaId> },
    #[error("another change is under way")]
    InProgress,
    #[error("replica {0} is no member")]
    NotAMember(ReplicaId),
    #[error("replica {replica} lags by {lag:?} entries, more than {PROMOTE_WITHIN}")]
    Lagging { replica: ReplicaId, lag: Option<u64> },
    #[error("without replica {0} the group would have no quorum that answers")]
    QuorumNotProven(ReplicaId),
    #[error("the leader hands over before it leaves; ask its successor")]
    LeaderLeaves,
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum TransferError {
    #[error("this replica does not lead")]
    NotLeader,
    #[error("no other voter is up to date")]
    NoCandidate,
    #[error("the successor did not take over in time")]
    Timeout,
}

impl ReplicatedStore {
    /// The members as this replica knows them; progress is known to the leader only.
    pub fn members(&self) -> Vec<Member> {
        self.group.members()
    }

    /// Adds a replica that receives the log without voting. It must be started there with [`Start::Join`](crate::Start::Join). Adding a
    /// member again changes nothing.
    pub async fn add_learner(&self, replica: ReplicaId, host: HostName) -> Result<(), MembershipError> {
        if self.members().iter().any(|member| member.replica == replica && member.host == host) {
            return Ok(());
        }
        let nodes = BTreeMap::from([(replica.0, Peer { host })]);
        self.group.change(ChangeMembers::AddNodes(nodes)).await
    }

    /// Lets a learner vote, if it is within [`PROMOTE_WITHIN`] entries of the leader.
    pub async fn promote(&self, replica: ReplicaId) -> Result<(), MembershipError> {
        let member = self.member(replica)?;
        if member.role == Role::Voter {
            return Ok(());
        }
        self.group.require_leader()?;
        // What a member is known to hold, it holds on disk: appends and snapshots are acknowledged after their sync.
        if member.lag.is_none_or(|lag| lag > PROMOTE_WITHIN) {
            return Err(MembershipError::Lagging { replica, lag: member.lag });
        }
        self.group.change(ChangeMembers::AddVoterIds(BTreeSet::from([replica.0]))).await
    }

    /// Removes a member for good. A voter goes only if the remaining voters have just proven that they are a quorum; the leader hands over
    /// first and answers [`MembershipError::LeaderLeaves`].
    pub async fn remove(&self, replica: ReplicaId) -> Result<(), MembershipError> {
        let Ok(member) = self.member(replica) else { return Ok(()) };
        self.group.require_leader()?;
        let doomed = BTreeSet::from([replica.0]);
        if member.role == Role::Voter {
            if replica == self.group.id.replica {
                // Whether it worked or not, the caller asks again, and whoever leads then removes this one.
                let _ = self.transfer_leadership(None).await;
                return Err(MembershipError::LeaderLeaves);
            }
            self.group.prove_quorum_without(replica).await?;
            self.group.change(ChangeMembers::RemoveVoters(doomed.clone())).await?;
        }
        self.group.change(ChangeMembers::RemoveNodes(doomed)).await
    }

    /// Hands the leadership to `to`, or to the voter that holds most of the log, and waits until it leads.
    pub async fn transfer_leadership(&self, to: Option<ReplicaId>) -> Result<ReplicaId, TransferError> {
        let group = &self.group;
        if group.require_leader().is_err() {
            return Err(TransferError::NotLeader);
        }
        let others = group.members().into_iter().filter(|member| member.role == Role::Voter && member.replica != group.id.replica);
        let chosen = match to {
            Some(to) => others.into_iter().find(|member| member.replica == to),
            None => others.max_by_key(|member| member.matched),
        };
        let chosen = chosen.filter(|member| member.matched.is_some()).ok_or(TransferError::NoCandidate)?.replica;
        group.parking.note();
        group.wake("a hand-over");
        let mut leadership = group.leadership.subscribe();
        group.raft.trigger().transfer_leader(chosen.0).await.map_err(|_| TransferError::NotLeader)?;
        let moved = leadership.wait_for(|leadership| leadership.leader.is_some_and(|leader| leader != group.id.replica));
        match tokio::time::timeout(TRANSFER_DEADLINE, moved).await {
            Ok(Ok(leadership)) => leadership.leader.ok_or(TransferError::Timeout),
            Ok(Err(_)) | Err(_) => Err(TransferError::Timeout),
        }
    }

    fn member(&self, replica: ReplicaId) -> Result<Member, MembershipError> {
        self.members().into_iter().find(|member| member.replica == replica).ok_or(MembershipError::NotAMember(replica))
    }
}

impl Group {
    fn members(&self) -> Vec<Member> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let last = metrics.last_log_index.unwrap_or(0);
        let member = |(id, peer): (&u64, &Peer)| {
            let matched = match &metrics.replication {
                Some(_) if *id == metrics.id => Some(last),
                Some(replication) => replication.get(id).and_then(Option::as_ref).map(|log_id| log_id.index()),
                None => None,
            };
            Member {
                replica: ReplicaId(*id),
                host: peer.host.clone(),
                role: if voters.contains(id) { Role::Voter } else { Role::Learner },
                matched,
                lag: matched.map(|matched| last.saturating_sub(matched)),
            }
        };
        membership.nodes().map(member).collect()
    }

    fn require_leader(&self) -> Result<(), MembershipError> {
        if self.leads().is_some() {
            return Ok(());
        }
        let leader = self.leadership.borrow().leader;
        Err(MembershipError::NotLeader { leader })
    }

    async fn change(&self, change: ChangeMembers<u64, Peer>) -> Result<(), MembershipError> {
        self.require_leader()?;
        if !self.wake_to_write().await {
            return Err(MembershipError::Unknown("no quorum answers".to_owned()));
        }
        let raft: &Raft = &self.raft;
        let changed = match tokio::time::timeout(CHANGE_DEADLINE, raft.change_membership(change, true)).await {
            Ok(changed) => changed,
            Err(_) => return Err(MembershipError::Unknown("no answer in time".to_owned())),
        };
        match changed {
            Ok(_) => Ok(()),
            Err(error) => Err(self.change_failed(error)),
        }
    }

    fn change_failed(&self, error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> MembershipError {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
                MembershipError::NotLeader { leader: forward.leader_id.map(ReplicaId) }
            }
            RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_))) => MembershipError::InProgress,
            RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::LearnerNotFound(missing))) => {
                MembershipError::NotAMember(ReplicaId(missing.node_id))
            }
            other => MembershipError::Unknown(other.to_string()),
        }
    }

    /// Asks the quorum once more, then looks whether those who answered are a quorum without `leaving` as well.
    async fn prove_quorum_without(&self, leaving: ReplicaId) -> Result<(), MembershipError> {
        let asked = <openraft::alias::InstantOf<TypeConfig> as openraft::Instant>::now();
        read_index::index_here(self).await.ok_or(MembershipError::QuorumNotProven(leaving))?;
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let remaining: Vec<u64> = metrics.membership_config.membership().voter_ids().filter(|id| *id != leaving.0).collect();
        let heard = |id: &&u64| {
            let at = metrics.heartbeat.as_ref().and_then(|heartbeat| heartbeat.get(*id)).and_then(Option::as_ref);
            **id == metrics.id || at.is_some_and(|at| **at >= asked)
        };
        if remaining.iter().filter(heard).count() > remaining.len() / 2 {
            return Ok(());
        }
        Err(MembershipError::QuorumNotProven(leaving))
    }
}
