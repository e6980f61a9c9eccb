//! Calls between replicas on different hosts, over whatever carries frames.
//!
//! ```text
//! frame = version (1) | 1 request | call id | cluster | to | from | operation | body
//!       = version (1) | 2 answer  | call id | status | body
//!       = version (1) | 3 beat    | (`liveness`)
//! ```
//!
//! One connection per pair of hosts carries the calls of all groups. Calls from one host are begun in the order in which they arrive and
//! answered in any order, which is what pipelined appends need. A call tells its caller apart what certainly did not happen
//! ([`CallError::NotDone`]) from what may have ([`CallError::Unknown`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use wheelhouse_base::{ClusterId, HostName, ReplicaId};
use wheelhouse_rocks::GroupId;
use wheelhouse_rocks::codec::{DecodeError, Reader, Writer};
use wheelhouse_runtime::Tasks;

use crate::beats::{self, Judged};
use crate::liveness::{Beat, Detector};
use crate::transport::{FrameReceiver, NotSent, PeerTransport};

pub(crate) const VERSION: u8 = 1;
const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
pub(crate) const BEAT: u8 = 3;

/// Requests of one host that are being handled at most; more wait.
const RUNNING_REQUESTS: usize = 4096;
/// Requests of one host that wait at most; more are refused, which their callers know as not done.
const WAITING_REQUESTS: usize = 8192;

/// What one replica asks of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Append,
    Vote,
    PreVote,
    TransferLeader,
    SnapshotBegin,
    SnapshotPart,
    SnapshotEnd,
    /// A command for the leader to propose.
    Propose,
    /// The index that a linearizable read must have applied.
    ReadIndex,
    /// Whether the other host's disk has room for writes.
    HasRoom,
    /// An append of a leader that is parked or about to be: without entries it wakes nobody.
    Probe,
    /// A leader asks a member to park with it (`rest`).
    Park,
    /// A member asks its leader to wake and confirm that it leads (`rest`).
    Wake,
}

impl Operation {
    const ALL: [Self; 13] = [
        Self::Append,
        Self::Vote,
        Self::PreVote,
        Self::TransferLeader,
        Self::SnapshotBegin,
        Self::SnapshotPart,
        Self::SnapshotEnd,
        Self::Propose,
        Self::ReadIndex,
        Self::HasRoom,
        Self::Probe,
        Self::Park,
        Self::Wake,
    ];

    fn code(self) -> u8 {
        self as u8 + 1
    }

    fn from_code(code: u8) -> Result<Self, DecodeError> {
        let known = Self::ALL.get(usize::from(code).wrapping_sub(1)).copied();
        known.ok_or(DecodeError::Unknown { what: "operation", value: u64::from(code) })
    }
}

/// Which replica calls which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub cluster: ClusterId,
    pub from: ReplicaId,
    pub to: ReplicaId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The request was not sent, or the other host refused to begin it.
    #[error("the call was not done: {0}")]
    NotDone(&'static str),
    /// The request was sent, and no answer came.
    #[error("the call's outcome is unknown: {0}")]
    Unknown(&'static str),
}

/// Handles the requests for one replica.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    async fn handle(&self, from: ReplicaId, operation: Operation, body: Bytes) -> Result<Bytes, Refused>;
}

/// Why a request was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    NoSuchReplica,
    Stopped,
    Malformed,
    Overloaded,
}

impl Refused {
    fn code(self) -> u8 {
        match self {
            Self::NoSuchReplica => 1,
            Self::Stopped => 2,
            Self::Malformed => 3,
            Self::Overloaded => 4,
        }
    }

    fn text(code: u8) -> &'static str {
        match code {
            1 => "no such replica there",
            2 => "the replica there has stopped",
            3 => "the replica there did not understand it",
            _ => "the host there is overloaded",
        }
    }
}

/// One host's calls to and from all others.
pub struct Peers {
    pub(crate) transport: Arc<dyn PeerTransport>,
    tasks: Tasks,
    next_call: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Waiting>>,
    services: RwLock<HashMap<GroupId, Arc<dyn Service>>>,
    inboxes: Mutex<HashMap<HostName, mpsc::Sender<Request>>>,
    pub(crate) detector: Mutex<Detector>,
    pub(crate) judged: OnceLock<Weak<dyn Judged>>,
    /// Some group's members may be others than when the detector was told last.
    pub members_changed: AtomicBool,
    this: Weak<Self>,
}

struct Waiting {
    host: HostName,
    answer: oneshot::Sender<Result<Bytes, CallError>>,
}

struct Request {
    call: u64,
    route: Route,
    operation: Operation,
    body: Bytes,
}

impl Peers {
    pub fn new(transport: Arc<dyn PeerTransport>, tasks: Tasks) -> Arc<Self> {
        let peers = Arc::new_cyclic(|this| Self {
            transport: transport.clone(),
            tasks,
            next_call: AtomicU64::new(1),
            waiting: Mutex::default(),
            services: RwLock::default(),
            inboxes: Mutex::default(),
            // No other process of this host has drawn the same.
            detector: Mutex::new(Detector::new(rand::random(), Instant::now())),
            judged: OnceLock::new(),
            members_changed: AtomicBool::new(false),
            this: this.clone(),
        });
        let receiver: Arc<dyn FrameReceiver> = peers.clone();
        transport.attach(Arc::downgrade(&receiver));
        peers.tasks.spawn("beats", beats::run(peers.this.clone(), peers.tasks.stop_signal()));
        peers
    }

    pub fn serve(&self, group: GroupId, service: Arc<dyn Service>) {
        self.services.write().insert(group, service);
    }

    pub fn stop_serving(&self, group: &GroupId) {
        self.services.write().remove(group);
        self.lose(group.clone());
    }

    /// Tells those who wait for `host` that no answer will come.
    pub(crate) fn forget_calls(&self, host: &HostName, why: &'static str) {
        let lost: Vec<_> = {
            let mut waiting = self.waiting.lock();
            waiting.extract_if(.., |_, waiting| waiting.host == *host).map(|(_, waiting)| waiting).collect()
        };
        for waiting in lost {
            let _ = waiting.answer.send(Err(CallError::Unknown(why)));
        }
    }

    /// Sends a request, at once and in the order of the calls; the future waits for its answer.
    pub fn call(
        &self,
        host: &HostName,
        route: &Route,
        operation: Operation,
        body: &[u8],
        timeout: Duration,
    ) -> impl Future<Output = Result<Bytes, CallError>> + Send + use<> {
        let call = self.next_call.fetch_add(1, Ordering::Relaxed);
        let mut w = Writer::with_capacity(body.len() + 48);
        w.u8(VERSION);
        w.u8(REQUEST);
        w.u64(call);
        w.bytes(route.cluster.as_str().as_bytes());
        w.u64(route.to.0);
        w.u64(route.from.0);
        w.u8(operation.code());
        w.0.extend_from_slice(body);
        let (tx, rx) = oneshot::channel();
        // Waited for before it is sent: the answer may be quick.
        self.waiting.lock().insert(call, Waiting { host: host.clone(), answer: tx });
        let is_request = matches!(operation, Operation::Propose | Operation::ReadIndex);
        // Raft's own messages go on trying; a client's request is answered sooner by another replica.
        let sent = if is_request && self.detector.lock().is_down(host) { Err(NotSent) } else { self.transport.send(host, w.finish()) };
        let forget = Forget { peers: self.this.clone(), call };
        async move {
            let _forget = forget;
            sent.map_err(|_| CallError::NotDone("the host cannot be reached"))?;
            match tokio::time::timeout(timeout, rx).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(CallError::Unknown("this host is stopping")),
                Err(_) => Err(CallError::Unknown("no answer in time")),
            }
        }
    }

    fn answer(&self, host: &HostName, call: u64, answer: Result<Bytes, Refused>) {
        let mut w = Writer::with_capacity(answer.as_ref().map_or(0, Bytes::len) + 16);
        w.u8(VERSION);
        w.u8(ANSWER);
        w.u64(call);
        match answer {
            Ok(body) => {
                w.u8(0);
                w.0.extend_from_slice(&body);
            }
            Err(refused) => w.u8(refused.code()),
        }
        // If the host is gone, so is whoever waits for it.
        let _ = self.transport.send(host, w.finish());
    }

    fn read(&self, from: &HostName, frame: Bytes) -> Result<(), DecodeError> {
        let mut r = Reader::new(frame);
        match r.u8()? {
            VERSION => {}
            other => return Err(DecodeError::Unknown { what: "frame version", value: u64::from(other) }),
        }
        match r.u8()? {
            REQUEST => {
                let call = r.u64()?;
                let cluster = std::str::from_utf8(&r.bytes()?).ok().and_then(|id| id.parse().ok());
                let cluster = cluster.ok_or(DecodeError::Invalid("the frame names no cluster"))?;
                let (to, sender) = (ReplicaId(r.u64()?), ReplicaId(r.u64()?));
                let operation = Operation::from_code(r.u8()?)?;
                let request = Request { call, route: Route { cluster, from: sender, to }, operation, body: r.rest() };
                if self.inbox(from).try_send(request).is_err() {
                    self.answer(from, call, Err(Refused::Overloaded));
                }
            }
            ANSWER => {
                let (call, status) = (r.u64()?, r.u8()?);
                if let Some(waiting) = self.waiting.lock().remove(&call) {
                    let answer = if status == 0 { Ok(r.rest()) } else { Err(CallError::NotDone(Refused::text(status))) };
                    // Whoever waited may have given up.
                    let _ = waiting.answer.send(answer);
                }
            }
            BEAT => {
                let beat = Beat::read(r.rest())?;
                let verdicts = self.detector.lock().heard(Instant::now(), from, beat);
                self.judge(verdicts);
            }
            other => return Err(DecodeError::Unknown { what: "kind of frame", value: u64::from(other) }),
        }
        Ok(())
    }

    /// The queue of one host's requests; its first use starts the task that handles them.
    fn inbox(&self, host: &HostName) -> mpsc::Sender<Request> {
        let mut inboxes = self.inboxes.lock();
        if let Some(inbox) = inboxes.get(host) {
            return inbox.clone();
        }
        let (tx, rx) = mpsc::channel(WAITING_REQUESTS);
        self.tasks.spawn("peer-requests", handle_requests(self.this.clone(), host.clone(), rx, self.tasks.stop_signal()));
        inboxes.insert(host.clone(), tx.clone());
        tx
    }
}

impl FrameReceiver for Peers {
    fn received(&self, from: &HostName, frame: Bytes) {
        if let Err(error) = self.read(from, frame) {
            tracing::warn!(host = %from, %error, "a frame that makes no sense");
        }
    }

    fn disconnected(&self, host: &HostName) {
        self.forget_calls(host, "the connection broke");
        // Connects again: if nobody listens there, this is how it is known at once.
        self.beat(host);
    }

    fn refused(&self, host: &HostName) {
        let verdicts = self.detector.lock().refused(host);
        self.judge(verdicts);
    }
}

/// Forgets a call when its caller stops waiting.
struct Forget {
    peers: Weak<Peers>,
    call: u64,
}

impl Drop for Forget {
    fn drop(&mut self) {
        if let Some(peers) = self.peers.upgrade() {
            peers.waiting.lock().remove(&self.call);
        }
    }
}

/// Begins one host's requests in the order of their arrival. One task is enough: handling is mostly waiting for the group's own tasks.
async fn handle_requests(peers: Weak<Peers>, host: HostName, mut inbox: mpsc::Receiver<Request>, mut stop: wheelhouse_runtime::Stop) {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            Some(()) = running.next(), if !running.is_empty() => {}
            request = inbox.recv(), if running.len() < RUNNING_REQUESTS => {
                let Some(request) = request else { return };
                running.push(handle(peers.clone(), host.clone(), request));
            }
        }
    }
}

async fn handle(peers: Weak<Peers>, host: HostName, request: Request) {
    let Some(peers) = peers.upgrade() else { return };
    let group = GroupId::new(request.route.cluster, request.route.to);
    let service = peers.services.read().get(&group).cloned();
    let answer = match service {
        None => Err(Refused::NoSuchReplica),
        Some(service) => service.handle(request.route.from, request.operation, request.body).await,
    };
    peers.answer(&host, request.call, answer);
}
