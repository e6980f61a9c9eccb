//! One running replica: its Raft, its state machine, and what it answers to its peers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::RaftError;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use wheelhouse_base::{HostName, ReplicaId, Term};
use wheelhouse_mvcc::codec::decode_command;
use wheelhouse_mvcc::{Command, Outcome};
use wheelhouse_rocks::GroupId;
use wheelhouse_runtime::Tasks;
use wheelhouse_store::{CommitError, Leadership, check_size};

use crate::agenda::Agenda;
use crate::encode;
use crate::log::Log;
use crate::machine::{Machine, SnapshotData};
use crate::outcome::{self, ProposeError};
use crate::parking::Parking;
use crate::peers::{Operation, Peers, Refused, Route, Service};
use crate::propose::{self, Pending};
use crate::raft_types::{AppendResponse, Raft, SnapshotOf};
use crate::read_index;
use crate::snapshot::{Answer, Incoming, ReceiveError};

/// How long a stopping replica's tasks may take to end.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Where a command has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    Here,
    At { host: HostName, replica: ReplicaId },
    Nobody,
}

pub struct Group {
    this: Weak<Self>,
    pub id: GroupId,
    pub raft: Raft,
    pub machine: Machine,
    pub log: Log,
    pub peers: Arc<Peers>,
    pub leadership: watch::Sender<Leadership>,
    /// This replica leads, but its quorum has not answered for a while.
    pub lapsed: watch::Sender<bool>,
    pub proposals: mpsc::Sender<Pending>,
    pub reads: mpsc::Sender<read_index::Waiting>,
    pub tasks: Tasks,
    pub maintenance: parking_lot::Mutex<crate::maintain::Memory>,
    pub parking: Arc<Parking>,
    pub agenda: Arc<Agenda>,
    incoming: Mutex<Receiving>,
}

#[derive(Default)]
struct Receiving {
    sessions: u64,
    current: Option<Incoming>,
}

/// The receiving ends of a group's queues, for the tasks that serve them.
pub struct Queues {
    pub proposals: mpsc::Receiver<Pending>,
    pub reads: mpsc::Receiver<read_index::Waiting>,
}

/// What a group gets from its host.
pub struct HostShares {
    pub peers: Arc<Peers>,
    pub parking: Arc<Parking>,
    pub agenda: Arc<Agenda>,
}

impl Group {
    pub fn new(id: GroupId, raft: Raft, machine: Machine, log: Log, host: HostShares) -> (Arc<Self>, Queues) {
        let HostShares { peers, parking, agenda } = host;
        let (proposals, proposed) = mpsc::channel(propose::WAITING_COMMANDS);
        let (reads, asked) = mpsc::channel(read_index::WAITING_READS);
        let tasks = Tasks::new(format!("replica {id}"));
        let group = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            id,
            raft,
            machine,
            log,
            peers,
            leadership: watch::Sender::new(Leadership::default()),
            lapsed: watch::Sender::new(false),
            proposals,
            reads,
            tasks,
            maintenance: parking_lot::Mutex::default(),
            parking,
            agenda,
            incoming: Mutex::default(),
        });
        (group, Queues { proposals: proposed, reads: asked })
    }

    /// Starts the tasks and answers peers from now on.
    pub fn run(self: &Arc<Self>, queues: Queues) {
        let stop = || self.tasks.stop_signal();
        let sealer = self.machine.disk().sealer().clone();
        self.tasks.spawn("proposals", propose::run(self.raft.clone(), sealer, queues.proposals, stop()));
        self.tasks.spawn("reads", read_index::run(self.clone(), queues.reads, stop()));
        self.tasks.spawn("leadership", observe(self.clone(), stop()));
        self.peers.serve(self.id.clone(), self.clone());
        self.agenda.now(&self.id);
    }

    /// Stops serving, then Raft, then tells the disk the rest.
    pub async fn stop(&self) {
        self.peers.stop_serving(&self.id);
        self.agenda.at(&self.id, None);
        self.leadership.send_replace(Leadership::default());
        self.machine.hub().stop();
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(group = %self.id, %error, "Raft did not stop cleanly");
        }
        self.tasks.stop(STOP_GRACE).await;
        self.incoming.lock().await.current = None;
        self.machine.flush();
        self.machine.disk().close();
    }

    fn this(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    pub fn is_stopped(&self) -> bool {
        self.machine.hub().is_stopped()
    }

    pub fn route(&self, to: ReplicaId) -> Route {
        Route { cluster: self.id.cluster.clone(), from: self.id.replica, to }
    }

    /// Where its members live.
    pub fn hosts(&self) -> Vec<HostName> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().nodes().map(|(_, peer)| peer.host.clone()).collect()
    }

    /// Another replica of the same cluster.
    pub fn sibling(&self, replica: ReplicaId) -> GroupId {
        GroupId::new(self.id.cluster.clone(), replica)
    }

    pub fn leader(&self) -> Leader {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        match metrics.current_leader {
            None => Leader::Nobody,
            // Whoever could answer has another leader by now, or none.
            Some(id) if id == self.id.replica.0 && *self.lapsed.borrow() => Leader::Nobody,
            Some(id) if id == self.id.replica.0 => Leader::Here,
            Some(id) => match metrics.membership_config.membership().get_node(&id) {
                Some(peer) => Leader::At { host: peer.host.clone(), replica: ReplicaId(id) },
                None => Leader::Nobody,
            },
        }
    }

    pub fn leads(&self) -> Option<Term> {
        let leadership = *self.leadership.borrow();
        leadership.here.then_some(leadership.term)
    }

    /// Proposes a command on this replica, if it leads.
    pub async fn propose_here(&self, command: Command) -> Result<Outcome, ProposeError> {
        check_size(&command).map_err(ProposeError::Failed)?;
        if propose::adds_data(&command) && self.machine.disk().disk().is_low_on_space() {
            return Err(ProposeError::Failed(CommitError::DiskFull));
        }
        if self.machine.fault().borrow().is_some() {
            return Err(ProposeError::NotLeader);
        }
        if self.leads().is_some() && !self.wake_to_write().await {
            return Err(ProposeError::NotLeader);
        }
        let (tx, rx) = oneshot::channel();
        match self.proposals.try_send(Pending { command, answer: tx }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(ProposeError::Failed(CommitError::Overloaded)),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(ProposeError::Failed(CommitError::Stopped)),
        }
        rx.await.unwrap_or(Err(ProposeError::Failed(CommitError::Unknown("this replica has stopped"))))
    }

    async fn begin_snapshot(&self, body: Bytes) -> Result<Answer, ReceiveError> {
        let mut receiving = self.incoming.lock().await;
        receiving.sessions += 1;
        let incoming = Incoming::begin(self.machine.disk().clone(), receiving.sessions, body)?;
        // A sender whose leadership is over learns it before it has sent everything.
        let mine = self.raft.server_metrics().borrow_watched().vote;
        if incoming.vote < mine {
            return Ok(Answer::Vote(mine));
        }
        let session = receiving.sessions;
        receiving.current = Some(incoming);
        Ok(Answer::Go(session))
    }

    async fn snapshot_part(&self, body: Bytes) -> Result<Answer, ReceiveError> {
        let mut receiving = self.incoming.lock().await;
        let session = receiving.sessions;
        receiving.current.as_mut().ok_or(ReceiveError::Superseded)?.part(body).await?;
        Ok(Answer::Go(session))
    }

    async fn end_snapshot(&self, body: Bytes) -> Result<Answer, ReceiveError> {
        let incoming = self.incoming.lock().await.current.take().ok_or(ReceiveError::Superseded)?;
        let (generation, state, vote, meta) = incoming.finish(body).await?;
        let snapshot = SnapshotOf { meta, snapshot: SnapshotData::Received { generation, state } };
        Ok(match self.raft.install_full_snapshot(vote, snapshot).await {
            Ok(response) => Answer::Vote(response.vote),
            Err(fatal) => Answer::Failed(fatal.to_string()),
        })
    }
}

#[async_trait]
impl Service for Group {
    async fn handle(&self, from: ReplicaId, operation: Operation, body: Bytes) -> Result<Bytes, Refused> {
        let malformed = |error: wheelhouse_rocks::codec::DecodeError| {
            tracing::warn!(group = %self.id, ?operation, %error, "a request that makes no sense");
            Refused::Malformed
        };
        let mut w = wheelhouse_rocks::codec::Writer::default();
        match operation {
            Operation::Append | Operation::Probe => {
                let request = encode::read_append_request(body).map_err(malformed)?;
                if operation == Operation::Append || !request.entries.is_empty() {
                    self.wake("the leader is awake");
                }
                let response = self.raft.append_entries(request).await.map_err(stopped)?;
                if !matches!(response, AppendResponse::HigherVote(_)) {
                    self.parking.heard_leader();
                }
                encode::write_append_response(&mut w, &response);
            }
            Operation::Vote => {
                let request = encode::read_vote_request(body).map_err(malformed)?;
                self.wake("an election");
                encode::write_vote_response(&mut w, &self.raft.vote(request).await.map_err(stopped)?);
            }
            Operation::PreVote => {
                let request = encode::read_vote_request(body).map_err(malformed)?;
                let response = match self.this().and_then(|group| group.refuse_pre_vote()) {
                    Some(refusal) => refusal,
                    None => self.raft.pre_vote(request).await.map_err(stopped)?,
                };
                encode::write_vote_response(&mut w, &response);
            }
            Operation::TransferLeader => {
                let request = encode::read_transfer_request(body).map_err(malformed)?;
                self.wake("a hand-over");
                let response = self.raft.handle_transfer_leader(request).await.map_err(|_| Refused::Stopped)?;
                encode::write_transfer_response(&mut w, &response);
            }
            Operation::SnapshotBegin => return Ok(self.answered(self.begin_snapshot(body).await)),
            Operation::SnapshotPart => return Ok(self.answered(self.snapshot_part(body).await)),
            Operation::SnapshotEnd => return Ok(self.answered(self.end_snapshot(body).await)),
            Operation::Propose => {
                let command = decode_command(&body).map_err(|_| Refused::Malformed)?;
                if matches!(&command, Command::Txn { fence: Some(_), .. }) {
                    // Only the leader that it is fenced to proposes it, and that one needs no forwarding.
                    return Err(Refused::Malformed);
                }
                return Ok(outcome::encode_answer(&self.propose_here(command).await));
            }
            Operation::Park => w.bool(self.answer_park(from, body).map_err(malformed)?),
            Operation::Wake => w.bool(self.answer_wake(body).await.map_err(malformed)?),
            Operation::HasRoom => w.bool(!self.machine.disk().disk().is_low_on_space()),
            Operation::ReadIndex => return Ok(read_index::encode_answer(read_index::index_here(self).await)),
        }
        Ok(w.finish())
    }
}

impl Group {
    fn answered(&self, result: Result<Answer, ReceiveError>) -> Bytes {
        let answer = result.unwrap_or_else(|error| {
            tracing::warn!(group = %self.id, %error, "a snapshot could not be received");
            Answer::Failed(error.to_string())
        });
        answer.encode()
    }
}

fn stopped<E>(_: RaftError<crate::raft_types::TypeConfig, E>) -> Refused {
    Refused::Stopped
}

/// Publishes the leadership as this replica knows it, until Raft stops.
async fn observe(group: Arc<Group>, mut stop: wheelhouse_runtime::Stop) {
    let mut metrics = group.raft.server_metrics();
    let mut position = group.machine.position();
    let mut fault = group.machine.fault();
    let mut lapsed = group.lapsed.subscribe();
    let mut members = None;
    loop {
        let waits_for_own_term = {
            let metrics = metrics.borrow_watched();
            if std::mem::replace(&mut members, *metrics.membership_config.log_id()) != members {
                group.peers.members_changed.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            let term = metrics.vote.leader_id.term;
            if group.parking.rest().is_some_and(|rest| rest.vote != metrics.vote) {
                group.wake("another vote");
            }
            let leader = metrics.current_leader.map(ReplicaId);
            let leads = metrics.state.is_leader() && leader == Some(group.id.replica);
            let healthy = fault.borrow_and_update().is_none() && !*lapsed.borrow_and_update();
            let here = leads && position.borrow_and_update().term == term && healthy;
            let new = Leadership { term, leader, here };
            group.leadership.send_if_modified(|old| std::mem::replace(old, new) != new);
            leads && !here
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            changed = metrics.changed() => {
                if changed.is_err() {
                    break;
                }
            }
            _ = fault.changed() => {}
            _ = lapsed.changed() => {}
            _ = position.changed(), if waits_for_own_term => {}
        }
    }
    group.leadership.send_replace(Leadership::default());
    if group.is_stopped() && group.machine.fault().borrow().is_none() {
        return;
    }
    // Raft ended by itself: a storage error or a panic. This replica serves nothing more, and says so.
    let reason = group.machine.fault().borrow().clone().unwrap_or_else(|| "Raft has stopped".to_owned());
    tracing::error!(group = %group.id, %reason, "this replica is faulted");
    group.machine.set_fault(reason);
    group.peers.lose(group.id.clone());
}
