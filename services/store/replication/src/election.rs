//! Elections that do not wait for Raft's timers: the failure detector knows that the leader is gone.
//!
//! ```text
//! verdict on the leader's host or replica --> give up its lease --> my turn --> pre-vote --> vote
//! ```
//!
//! Left to itself, a follower waits until the leader's lease is over and an election timeout on top, 1.15 to 1.4 s. A verdict of the detector is
//! better evidence than silence, so the lease is given up at once and the voters stand in turns. The turns follow from the term and the members, so
//! that the first candidate is another one each time and nobody stands against it; later ones stand only if it did not win, because it is dead too
//! or lacks entries. Every try asks for pre-votes first: with a mistaken verdict nothing happens but the question, unless a quorum agrees. The lease
//! only spares a healthy leader idle elections, reads and writes never rely on it (`read_index`), so giving it up is safe whatever the verdict is
//! worth.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use rand::RngExt;
use wheelhouse_base::{HostName, ReplicaId};

use crate::group::Group;
use crate::raft_runtime::Runtime;
use crate::raft_types::{TransferRequest, Vote};

/// One voter's turn before the next stands. An election takes two round trips and two syncs: a few milliseconds, tens on a busy machine.
const TURN: Duration = Duration::from_millis(60);

/// Keeps a host that takes part in hundreds of groups from starting all their elections in the same moment.
const SPREAD_MILLIS: u64 = 20;

/// Between two tries of one voter, a least pause and a spread. The voters' verdicts come up to a beat apart, which can undo the order of their turns;
/// with a fixed pause two that stand at once would do so with every try.
const PAUSE_MILLIS: (u64, u64) = (120, 160);

/// Then Raft's own timers go on.
const TRIES: usize = 5;

/// Why a leader is held dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Its host is down.
    Host,
    /// Its replica ended on a host that lives.
    Loss,
    /// Its replica does not confirm that it leads.
    Unconfirmed,
}

/// The leader's host, or the leader's replica there, is held dead: elects another leader if it was this group's.
pub fn leader_is_gone(group: &Arc<Group>, host: &HostName, replica: Option<ReplicaId>, evidence: Evidence) {
    let Some(succession) = Succession::of(group, host, replica, evidence) else { return };
    let group = group.clone();
    let tasks = group.tasks.clone();
    tasks.spawn("election", async move { succession.run(&group).await });
}

struct Succession {
    evidence: Evidence,
    host: HostName,
    /// The one whose leadership is over.
    former: ReplicaId,
    vote: Vote,
    turn: u32,
}

impl Succession {
    fn of(group: &Group, host: &HostName, replica: Option<ReplicaId>, evidence: Evidence) -> Option<Self> {
        let metrics = group.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let former = metrics.current_leader.filter(|leader| *leader != metrics.id && replica.is_none_or(|replica| replica.0 == *leader))?;
        let membership = metrics.membership_config.membership();
        if membership.get_node(&former).is_none_or(|peer| peer.host != *host) {
            return None;
        }
        let others: Vec<u64> = membership.voter_ids().filter(|voter| *voter != former).collect();
        let mine = others.iter().position(|voter| *voter == metrics.id)? as u64;
        let count = others.len() as u64;
        let turn = u32::try_from((mine + metrics.vote.leader_id.term) % count).unwrap_or(0);
        Some(Self { evidence, host: host.clone(), former: ReplicaId(former), vote: metrics.vote, turn })
    }

    async fn run(self, group: &Group) {
        group.parking.lost_leader();
        // A transfer to a replica that does not take it: ends this follower's lease of exactly this leadership, and nothing else.
        let ended = TransferRequest::new(self.vote, self.former.0, None);
        if group.raft.handle_transfer_leader(ended).await.is_err() {
            return;
        }
        let mut wait = TURN * self.turn + Duration::from_millis(random(SPREAD_MILLIS));
        for _ in 0..TRIES {
            tokio::time::sleep(wait).await;
            wait = Duration::from_millis(PAUSE_MILLIS.0 + random(PAUSE_MILLIS.1));
            if self.is_over(group) || group.raft.trigger().elect(true).await.is_err() {
                return;
            }
        }
    }

    /// Another leader is there, or the former one is after all.
    fn is_over(&self, group: &Group) -> bool {
        let metrics = group.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        match metrics.current_leader {
            None => false,
            Some(leader) if leader != self.former.0 || metrics.vote != self.vote => true,
            // A link that is up again was only broken; about the others a host says nothing.
            Some(_) => self.evidence == Evidence::Host && group.peers.alive(&self.host).is_some(),
        }
    }
}

/// Below `bound`, from the runtime, whose randomness a simulation can fix.
pub fn random(bound: u64) -> u64 {
    <Runtime as openraft::AsyncRuntime>::thread_rng().random_range(0..bound)
}
