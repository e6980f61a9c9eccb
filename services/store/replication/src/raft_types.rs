//! The Raft library's type parameters, bound once. Nothing outside this crate sees them.

use std::fmt;

use openraft::vote::leader_id_std;
use wheelhouse_base::HostName;
use wheelhouse_mvcc::Outcome;

use crate::proposal::Proposal;

openraft::declare_raft_types!(
    pub TypeConfig:
        D = Proposal,
        R = Outcomes,
        NodeId = u64,
        Node = Peer,
        Term = u64,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = crate::raft_runtime::Runtime,
);

pub type Raft = openraft::Raft<TypeConfig, crate::machine::Machine>;
pub type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub type Vote = openraft::alias::VoteOf<TypeConfig>;
pub type Entry = openraft::alias::EntryOf<TypeConfig>;
pub type Membership = openraft::Membership<u64, Peer>;
pub type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub type SnapshotOf = openraft::alias::SnapshotOf<TypeConfig, crate::machine::SnapshotData>;
pub type AppendRequest = openraft::raft::AppendEntriesRequest<TypeConfig>;
pub type AppendResponse = openraft::raft::AppendEntriesResponse<TypeConfig>;
pub type VoteRequest = openraft::raft::VoteRequest<TypeConfig>;
pub type VoteResponse = openraft::raft::VoteResponse<TypeConfig>;
pub type TransferRequest = openraft::raft::TransferLeaderRequest<TypeConfig>;
pub type TransferResponse = openraft::raft::TransferLeaderResponse<TypeConfig>;

/// Where a member's replica lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub host: HostName,
}

/// What applying one entry answers: one outcome per command in it.
#[derive(Debug, Default)]
pub struct Outcomes(pub Vec<Outcome>);

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} outcomes", self.0.len())
    }
}

pub fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(leader_id_std::CommittedLeaderId::new(term), index)
}

pub fn term_of(id: &LogId) -> u64 {
    id.committed_leader_id().term
}
