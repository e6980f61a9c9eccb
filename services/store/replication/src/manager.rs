//! All replicas of one host: started, stopped and destroyed here, over one disk and one transport.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use openraft::errors::{InitializeError, RaftError};
use openraft::{Config, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::time::Instant;
use wheelhouse_base::{Clock, ClusterId, HostName, ReplicaId};
use wheelhouse_rocks::{DataKey, DiskError, Expect, GroupId, HostDisk, OpenGroupError};
use wheelhouse_runtime::Tasks;

use crate::agenda::Agenda;
use crate::beats::Judged;
use crate::blocking::blocking;
use crate::group::{Group, HostShares};
use crate::liveness::Verdict;
use crate::log::Log;
use crate::machine::Machine;
use crate::maintain::{self, LogLimits};
use crate::network::Network;
use crate::parking::{PARK_AFTER, Parking};
use crate::peers::Peers;
use crate::raft_types::{Peer, Raft};
use crate::store::ReplicatedStore;
use crate::transport::PeerTransport;

/// Raft's clock. A leader is missed after three to five lost heartbeats; the spread keeps two voters from standing at once.
const HEARTBEAT_MILLIS: u64 = 150;
const ELECTION_MILLIS: (u64, u64) = (450, 700);

/// Raft's inner queues. Far more than the proposals and appends that can wait at once.
const RAFT_QUEUE: u64 = 4096;

/// Leaderships handed over at once when a host drains. Each takes an election, and all of them at once would look like an outage.
const HAND_OVERS: usize = 16;

/// How long the host's own tasks may take to end.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// What a host's replicas share.
pub struct HostParts {
    pub host: HostName,
    pub disk: Arc<HostDisk>,
    pub transport: Arc<dyn PeerTransport>,
    /// For the retention of history only.
    pub clock: Arc<dyn Clock>,
}

/// What may be other than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub log: LogLimits,
    /// How long nothing is written before a group parks; `None` never.
    pub park_after: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { log: LogLimits::default(), park_after: Some(PARK_AFTER) }
    }
}

/// A replica to start.
#[derive(Clone, Debug)]
pub struct ReplicaSpec {
    pub cluster: ClusterId,
    pub replica: ReplicaId,
    pub key: DataKey,
    pub start: Start,
}

/// How a replica comes to its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The one named founder: if the group is new to this disk, it begins with these voters. The others are started with [`Start::Join`].
    Found { voters: Vec<(ReplicaId, HostName)> },
    /// Waits until a leader of its group reaches it; never begins a group by itself. New to this disk, or a restart.
    Join,
    /// It has run here before: if the disk does not hold it, its data is lost.
    Resume,
    /// As [`Resume`](Self::Resume), for the founder: if it was stopped before its group began, which its empty log proves, the group begins now.
    ResumeFounder { voters: Vec<(ReplicaId, HostName)> },
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// The replica cannot prove that it holds what it acknowledged; it must be removed and added anew under another id.
    #[error("the replica's data is lost: {0}")]
    Lost(String),
    #[error(transparent)]
    Open(OpenGroupError),
    #[error("replica {0} runs here already")]
    AlreadyRunning(GroupId),
    #[error("this replica is not among the founding voters, or not on this host")]
    NotAFounder,
    #[error("Raft did not start: {0}")]
    Raft(String),
}

impl From<OpenGroupError> for StartError {
    fn from(error: OpenGroupError) -> Self {
        match error {
            OpenGroupError::Lost(why) => Self::Lost(why),
            other => Self::Open(other),
        }
    }
}

/// One host's replicas.
pub struct GroupManager {
    host: HostName,
    disk: Arc<HostDisk>,
    peers: Arc<Peers>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    agenda: Arc<Agenda>,
    groups: Mutex<BTreeMap<GroupId, Arc<Group>>>,
    tasks: Tasks,
}

impl GroupManager {
    /// Must be called inside a tokio runtime.
    pub fn new(parts: HostParts) -> Arc<Self> {
        Self::with_limits(parts, Limits::default())
    }

    /// With other limits than usual. Must be called inside a tokio runtime.
    pub fn with_limits(parts: HostParts, limits: Limits) -> Arc<Self> {
        let tasks = Tasks::new(format!("replication on {}", parts.host));
        let peers = Peers::new(parts.transport, tasks.clone());
        let HostParts { host, disk, clock, .. } = parts;
        let manager = Arc::new(Self { host, disk, peers, clock, limits, agenda: Arc::default(), groups: Mutex::default(), tasks });
        let judged: Arc<dyn Judged> = manager.clone();
        manager.peers.tell(Arc::downgrade(&judged));
        let (weak, mut stop) = (Arc::downgrade(&manager), manager.tasks.stop_signal());
        manager.tasks.spawn("maintenance", async move {
            while stop.or(tokio::time::sleep(maintain::INTERVAL)).await.is_some() {
                let Some(manager) = weak.upgrade() else { return };
                manager.want_hosts();
                for group in manager.due() {
                    maintain::look(&group, manager.limits.log, manager.clock.now()).await;
                }
            }
        });
        manager
    }

    /// Starts a replica. It serves reads of its old state at once, and writes as soon as its group has a leader.
    pub async fn start(&self, spec: ReplicaSpec) -> Result<ReplicatedStore, StartError> {
        let id = GroupId::new(spec.cluster, spec.replica);
        if self.groups.lock().contains_key(&id) {
            return Err(StartError::AlreadyRunning(id));
        }
        let founding = self.founding_voters(&id, &spec.start)?;
        let expect = match spec.start {
            Start::Found { .. } | Start::Join => Expect::MayBeNew,
            Start::Resume | Start::ResumeFounder { .. } => Expect::Existing,
        };
        let (machine, log) = blocking(|| self.open(&id, spec.key, expect))?;
        let parking = Arc::new(Parking::new(self.limits.park_after));
        let network = Network { peers: self.peers.clone(), cluster: id.cluster.clone(), replica: id.replica, parking: parking.clone() };
        let raft = Raft::new(id.replica.0, config(&id, self.limits.log), network, log.clone(), machine.clone())
            .await
            .map_err(|e| StartError::Raft(e.to_string()))?;
        let (group, queues) =
            Group::new(id.clone(), raft, machine, log, HostShares { peers: self.peers.clone(), parking, agenda: self.agenda.clone() });
        group.run(queues);
        if let Some(voters) = founding {
            match group.raft.initialize(voters).await {
                // A restart of a founder finds its group as it left it.
                Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
                Err(error) => {
                    group.stop().await;
                    return Err(StartError::Raft(error.to_string()));
                }
            }
        }
        self.groups.lock().insert(id, group.clone());
        self.peers.members_changed.store(true, Ordering::Relaxed);
        Ok(ReplicatedStore { group })
    }

    pub fn get(&self, id: &GroupId) -> Option<ReplicatedStore> {
        self.groups.lock().get(id).map(|group| ReplicatedStore { group: group.clone() })
    }

    /// Every replica that runs here.
    pub fn running(&self) -> Vec<ReplicatedStore> {
        self.groups.lock().values().map(|group| ReplicatedStore { group: group.clone() }).collect()
    }

    /// Stops a replica; what it holds stays on disk. A replica that does not run is stopped.
    pub async fn stop(&self, id: &GroupId) {
        let group = self.groups.lock().remove(id);
        if let Some(group) = group {
            group.stop().await;
            self.peers.members_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Stops a replica and removes everything it has on this host's disk. The caller destroys the wrapped copies of its data key.
    pub async fn destroy(&self, id: &GroupId) -> Result<(), DiskError> {
        self.stop(id).await;
        let (tx, rx) = tokio::sync::oneshot::channel();
        self.disk.destroy(id, Box::new(move |result| drop(tx.send(result))));
        rx.await.unwrap_or(Err(DiskError::Closed))
    }

    /// Hands every leadership over to another host, as far as others can take them; answers how many remain here.
    pub async fn hand_over(&self) -> usize {
        let moved = futures::stream::iter(self.running()).map(|store| async move {
            let stays = store.group.leads().is_some() && store.transfer_leadership(None).await.is_err();
            usize::from(stays)
        });
        moved.buffer_unordered(HAND_OVERS).fold(0, |sum, stays| std::future::ready(sum + stays)).await
    }

    /// Stops every replica and the host's own tasks.
    pub async fn shutdown(&self) {
        let groups: Vec<_> = std::mem::take(&mut *self.groups.lock()).into_values().collect();
        futures::future::join_all(groups.iter().map(|group| group.stop())).await;
        self.tasks.stop(STOP_GRACE).await;
    }

    fn all(&self) -> Vec<Arc<Group>> {
        self.groups.lock().values().cloned().collect()
    }

    /// Who is looked at in this turn: those who are awake or whose deadline has come, and everybody when something is wrong with the disk.
    fn due(&self) -> Vec<Arc<Group>> {
        if self.disk.has_failed() || self.disk.is_low_on_space() {
            return self.all();
        }
        let due = self.agenda.due(Instant::now());
        let groups = self.groups.lock();
        due.iter().filter_map(|id| groups.get(id).cloned()).collect()
    }

    /// Tells the failure detector which hosts share a group with this one, if that may have changed.
    fn want_hosts(&self) {
        if !self.peers.members_changed.swap(false, Ordering::Relaxed) {
            return;
        }
        let hosts = self.all().into_iter().flat_map(|group| group.hosts()).filter(|host| *host != self.host).collect();
        self.peers.want(hosts);
    }

    pub fn host(&self) -> &HostName {
        &self.host
    }

    pub fn disk(&self) -> &Arc<HostDisk> {
        &self.disk
    }

    fn open(&self, id: &GroupId, key: DataKey, expect: Expect) -> Result<(Machine, Log), OpenGroupError> {
        let disk = Arc::new(self.disk.group(id, key, expect)?);
        let boot = disk.boot()?;
        let machine = Machine::open(disk.clone(), &boot)?;
        let applied = machine.applied();
        Ok((machine, Log::open(disk, &boot, applied.as_ref())?))
    }

    fn founding_voters(&self, id: &GroupId, start: &Start) -> Result<Option<BTreeMap<u64, Peer>>, StartError> {
        let (Start::Found { voters } | Start::ResumeFounder { voters }) = start else { return Ok(None) };
        if !voters.contains(&(id.replica, self.host.clone())) {
            return Err(StartError::NotAFounder);
        }
        Ok(Some(voters.iter().map(|(replica, host)| (replica.0, Peer { host: host.clone() })).collect()))
    }
}

impl Judged for GroupManager {
    fn judged(&self, verdict: Verdict) {
        match verdict {
            Verdict::Up { .. } => {}
            Verdict::Down { host, .. } => self.all().iter().for_each(|group| group.is_gone(&host, None)),
            Verdict::Lost { host, group: lost } => {
                let groups = self.all().into_iter().filter(|group| group.id.cluster == lost.cluster);
                groups.for_each(|group| group.is_gone(&host, Some(lost.replica)));
            }
        }
    }
}

fn config(id: &GroupId, log: LogLimits) -> Arc<Config> {
    let config = Config {
        cluster_name: id.to_string(),
        heartbeat_interval: HEARTBEAT_MILLIS,
        election_timeout_min: ELECTION_MILLIS.0,
        election_timeout_max: ELECTION_MILLIS.1,
        enable_pre_vote: Some(true),
        enable_leader_restore: Some(false),
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: log.kept,
        // A follower gets a snapshot only if the log no longer reaches back to it.
        replication_lag_threshold: u64::MAX / 2,
        install_snapshot_timeout: 60_000,
        api_channel_size: Some(RAFT_QUEUE),
        notification_channel_size: Some(RAFT_QUEUE),
        state_machine_channel_size: Some(RAFT_QUEUE),
        backoff: "50ms 100ms 200ms ..1000ms".to_owned(),
        ..Config::default()
    };
    Arc::new(config.validate().expect("the constants satisfy Raft's inequalities"))
}
