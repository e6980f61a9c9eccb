//! How a group comes to rest and how its members wake each other. What parking is and why it is sound is told in [`parking`](crate::parking).
//!
//! ```text
//! leader                                              member
//! marks its heartbeats as waking nobody
//! Park { vote, N }                     -->            same leader, same N as last and applied entry, its host up: stops its tick
//! all live ones agree, and are a quorum
//! nothing happened meanwhile: stops its tick
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use wheelhouse_base::{HostName, ReplicaId};
use wheelhouse_rocks::codec::{DecodeError, Reader, Writer};

use crate::election::{self, Evidence};
use crate::encode;
use crate::group::Group;
use crate::maintain;
use crate::parking::Rest;
use crate::peers::Operation;
use crate::raft_types::{Vote, VoteResponse};
use crate::read_index;

/// One question to a member about to park.
const PARK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a leader has to confirm that it leads. A round trip; with what follows, a request at a group whose leader is stuck is answered within
/// two seconds.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(500);

/// When Raft's own timers may begin elections again after a group woke: not before a living leader's heartbeats have come or the turns of `election`
/// are through, and at different times, a least one and a spread.
const ELECT_AFTER_MILLIS: (u64, u64) = (500, 400);

struct Plan {
    vote: Vote,
    index: u64,
    voters: usize,
    votes_here: bool,
    /// Members on hosts that live.
    live: Vec<(ReplicaId, HostName, bool)>,
}

impl Group {
    /// Ends the rest, if this replica is parked; answers whether it was.
    pub fn wake(&self, why: &'static str) -> bool {
        let woke = self.parking.wake(|| {
            // The lease has run out long ago. Members that wake together would all stand in the same moment and none would win.
            self.raft.runtime_config().elect(false);
            self.raft.runtime_config().tick(true);
            self.agenda.now(&self.id);
        });
        if woke {
            tracing::debug!(group = %self.id, why, "awake");
            let raft = self.raft.clone();
            let spread = election::random(ELECT_AFTER_MILLIS.1);
            self.tasks.spawn("elect-again", async move {
                tokio::time::sleep(Duration::from_millis(ELECT_AFTER_MILLIS.0 + spread)).await;
                raft.runtime_config().elect(true);
            });
        }
        woke
    }

    /// Wakes a leader and makes sure of its quorum; `false` if it has none now. Keeps an awake one from parking.
    pub async fn wake_to_write(&self) -> bool {
        self.parking.note();
        self.wake("a write");
        if self.parking.is_stale() {
            if read_index::index_here(self).await.is_none() {
                return false;
            }
            self.parking.renewed();
        }
        true
    }

    /// A request did not reach the leader: whoever relies on the leader without hearing of it asks it, or stands.
    pub fn leader_unreachable(self: &Arc<Self>) {
        let Some(rest) = self.parking.rest() else { return };
        if self.wake("a request did not reach the leader") {
            self.confirm(rest);
        }
    }

    /// The detector holds a host, or one replica on it, dead.
    pub fn is_gone(self: &Arc<Self>, host: &HostName, replica: Option<ReplicaId>) {
        if let Some(rest) = self.parking.rest() {
            match &rest.at {
                Some((at, _)) if at == host && replica.is_none_or(|replica| replica == rest.leader) => drop(self.wake("the leader is held dead")),
                None if !self.has_live_quorum() => drop(self.wake("too few members live")),
                _ => {}
            }
        }
        let evidence = if replica.is_some() { Evidence::Loss } else { Evidence::Host };
        election::leader_is_gone(self, host, replica, evidence);
    }

    /// Parks the group, if this replica leads it, it is idle and everything is everywhere.
    pub fn park_if_idle(self: &Arc<Self>) {
        if self.leads().is_none() {
            return;
        }
        let Some(activities) = self.parking.begin() else { return };
        let group = self.clone();
        self.tasks.spawn("park", async move {
            if !group.park(activities).await {
                group.parking.give_up();
            }
        });
    }

    async fn park(&self, activities: u64) -> bool {
        let Some(plan) = self.plan_rest() else { return false };
        let mut body = Writer::default();
        encode::write_vote(&mut body, &plan.vote);
        body.u64(plan.index);
        let asked = plan.live.iter().map(|(replica, host, _)| {
            let answer = self.peers.call(host, &self.route(*replica), Operation::Park, &body.0, PARK_TIMEOUT);
            async move { answer.await.is_ok_and(|answer| Reader::new(answer).bool() == Ok(true)) }
        });
        // Who agreed and need not have is woken by the next heartbeat.
        if futures::future::join_all(asked).await.contains(&false) {
            return false;
        }
        let agreed = plan.live.iter().filter(|(_, _, votes)| *votes).count() + usize::from(plan.votes_here);
        if agreed <= plan.voters / 2 {
            return false;
        }
        let rest = Rest { vote: plan.vote, leader: self.id.replica, at: None };
        let parked = self.parking.settle(activities, rest, || {
            let unchanged = self.plan_rest().is_some_and(|now| now.vote == plan.vote && now.index == plan.index);
            if unchanged {
                self.lie_still();
            }
            unchanged
        });
        if parked {
            tracing::debug!(group = %self.id, index = plan.index, "parked");
        }
        parked
    }

    /// What parking would rest on now; `None` if this replica does not lead or something is under way.
    fn plan_rest(&self) -> Option<Plan> {
        self.leads()?;
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let index = metrics.last_log_index?;
        let membership = metrics.membership_config.membership();
        if metrics.last_applied.as_ref()?.index() != index || membership.get_joint_config().len() != 1 {
            return None;
        }
        let replication = metrics.replication.as_ref()?;
        let voters: Vec<u64> = membership.voter_ids().collect();
        let mut live = Vec::new();
        for (id, peer) in membership.nodes().filter(|(id, _)| **id != metrics.id) {
            if self.peers.alive(&peer.host).is_none() {
                continue;
            }
            if replication.get(id).and_then(Option::as_ref).map(|log_id| log_id.index()) != Some(index) {
                return None;
            }
            live.push((ReplicaId(*id), peer.host.clone(), voters.contains(id)));
        }
        Some(Plan { vote: metrics.vote, index, voters: voters.len(), votes_here: voters.contains(&metrics.id), live })
    }

    fn has_live_quorum(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let voters: Vec<u64> = membership.voter_ids().collect();
        let lives = |id: &&u64| **id == metrics.id || membership.get_node(id).is_some_and(|peer| self.peers.alive(&peer.host).is_some());
        voters.iter().filter(lives).count() > voters.len() / 2
    }

    /// Stops everything that goes on by itself.
    fn lie_still(&self) {
        self.raft.runtime_config().tick(false);
        self.machine.flush();
        self.log.forget_cache();
        self.agenda.at(&self.id, maintain::next_deadline(self));
    }

    /// A member's answer to its leader that would park.
    pub fn answer_park(&self, from: ReplicaId, body: Bytes) -> Result<bool, DecodeError> {
        let mut r = Reader::new(body);
        let (vote, index) = (encode::read_vote(&mut r)?, r.u64()?);
        r.finish()?;
        Ok(self.parking.is_enabled() && self.follow_to_rest(from, vote, index))
    }

    fn follow_to_rest(&self, leader: ReplicaId, vote: Vote, index: u64) -> bool {
        let host = {
            let metrics = self.raft.server_metrics();
            let metrics = metrics.borrow_watched();
            if metrics.vote != vote || metrics.current_leader != Some(leader.0) || metrics.state.is_leader() {
                return false;
            }
            match metrics.membership_config.membership().get_node(&leader.0) {
                Some(peer) => peer.host.clone(),
                None => return false,
            }
        };
        let holds_all = self.log.last().is_some_and(|last| last.index() == index) && self.machine.applied().is_some_and(|id| id.index() == index);
        let Some(incarnation) = self.peers.alive(&host).filter(|_| holds_all) else { return false };
        let rest = Rest { vote, leader, at: Some((host, incarnation)) };
        self.parking.lie_down(rest.clone(), || self.lie_still());
        // A verdict that came before this replica was parked woke nobody.
        if self.is_carried(&rest) {
            return true;
        }
        self.wake("the leader was lost meanwhile");
        false
    }

    /// Whether what a parked replica relies on still holds, as far as its host's detector knows.
    fn is_carried(&self, rest: &Rest) -> bool {
        match &rest.at {
            None => true,
            Some((host, incarnation)) => self.peers.alive(host) == Some(*incarnation) && !self.peers.has_lost(host, &self.sibling(rest.leader)),
        }
    }

    /// The answer to a pre-vote that must not reach Raft, whose lease a parked group does not renew; `None` if Raft decides.
    pub fn refuse_pre_vote(self: &Arc<Self>) -> Option<VoteResponse> {
        let refusal = || VoteResponse::new(self.raft.server_metrics().borrow_watched().vote, self.log.last(), false);
        let Some(rest) = self.parking.rest() else {
            // Its own heartbeats are on their way to the one who asks.
            let leads = self.leads().is_some();
            return (if leads { self.parking.woke_just_now() } else { self.parking.hears_leader() }).then(refusal);
        };
        if rest.at.is_none() {
            self.wake("a member is awake");
            return Some(refusal());
        }
        if self.is_carried(&rest) {
            self.confirm(rest);
            return Some(refusal());
        }
        self.wake("the leader is held dead");
        None
    }

    /// Asks the leader to confirm that it leads, which wakes it; gives it up if it does not.
    fn confirm(self: &Arc<Self>, rest: Rest) {
        let Some((host, _)) = rest.at.clone() else { return };
        let group = self.clone();
        self.tasks.spawn("confirm", async move {
            let mut body = Writer::default();
            encode::write_vote(&mut body, &rest.vote);
            let answer = group.peers.call(&host, &group.route(rest.leader), Operation::Wake, &body.0, CONFIRM_TIMEOUT).await;
            if answer.is_ok_and(|answer| Reader::new(answer).bool() == Ok(true)) {
                return;
            }
            group.wake("the leader does not confirm that it leads");
            election::leader_is_gone(&group, &host, Some(rest.leader), Evidence::Unconfirmed);
        });
    }

    /// The leader's answer to a member that would know whether it still leads. It goes through Raft, so that a Raft that hangs answers nothing.
    pub async fn answer_wake(&self, body: Bytes) -> Result<bool, DecodeError> {
        let vote = encode::read_vote(&mut Reader::new(body))?;
        self.wake("a member asks");
        let id = self.id.replica.0;
        let leads = self.raft.with_raft_state(move |state| *state.vote_ref() == vote && vote.committed && vote.leader_id.voted_for == id);
        Ok(leads.await.unwrap_or(false) && self.machine.fault().borrow().is_none())
    }
}
