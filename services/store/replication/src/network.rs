//! How one replica's Raft reaches the others: its messages as calls over the hosts' shared connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{SnapshotResponse, StreamAppendResult};
use wheelhouse_base::{ClusterId, HostName, ReplicaId};
use wheelhouse_rocks::codec::{DecodeError, Writer};

use crate::encode;
use crate::machine::SnapshotData;
use crate::parking::Parking;
use crate::peers::{CallError, Operation, Peers, Route};
use crate::raft_types::{
    AppendRequest, AppendResponse, Peer, SnapshotOf, TransferRequest, TransferResponse, TypeConfig, Vote, VoteRequest, VoteResponse,
};
use crate::snapshot;

/// Appends of one group to one follower that wait for their answers at most. A link of 10 ms and a sync of 1 ms stay busy with far fewer.
const PIPELINE: usize = 64;

/// An append that is not answered within this time is sent again. Longer than any sane sync, shorter than an operator's patience.
const APPEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Reaches the other members of one group.
#[derive(Clone)]
pub struct Network {
    pub peers: Arc<Peers>,
    pub cluster: ClusterId,
    pub replica: ReplicaId,
    pub parking: Arc<Parking>,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &Peer) -> Link {
        let route = Route { cluster: self.cluster.clone(), from: self.replica, to: ReplicaId(target) };
        Link { peers: self.peers.clone(), host: node.host.clone(), route, parking: self.parking.clone() }
    }
}

/// One member as another one sees it.
pub struct Link {
    peers: Arc<Peers>,
    host: HostName,
    route: Route,
    parking: Arc<Parking>,
}

type RpcError = RPCError<TypeConfig>;

impl Link {
    fn append(&self, request: &AppendRequest, timeout: Duration) -> impl Future<Output = Result<Bytes, RpcError>> + Send + use<> {
        let operation = if self.parking.is_quiet() { Operation::Probe } else { Operation::Append };
        self.call(operation, &|w| encode::write_append_request(w, request), timeout)
    }

    /// Begins a call now; the future waits for the answer.
    fn call(
        &self,
        operation: Operation,
        write: &dyn Fn(&mut Writer),
        timeout: Duration,
    ) -> impl Future<Output = Result<Bytes, RpcError>> + Send + use<> {
        let mut w = Writer::default();
        write(&mut w);
        let answer = self.peers.call(&self.host, &self.route, operation, &w.0, timeout);
        async move { answer.await.map_err(call_failed) }
    }
}

fn call_failed(error: CallError) -> RpcError {
    match error {
        CallError::NotDone(_) => RPCError::Unreachable(Unreachable::new(&error)),
        CallError::Unknown(_) => RPCError::Network(NetworkError::new(&error)),
    }
}

fn malformed(error: DecodeError) -> RpcError {
    RPCError::Network(NetworkError::new(&error))
}

impl RaftNetworkV2<TypeConfig> for Link {
    type SnapshotData = SnapshotData;

    async fn append_entries(&mut self, rpc: AppendRequest, option: RPCOption) -> Result<AppendResponse, RpcError> {
        let answer = self.append(&rpc, option.hard_ttl()).await?;
        encode::read_append_response(answer).map_err(malformed)
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendRequest> + Send + Unpin + 'static,
    {
        let link = &*self;
        // Sending happens when a request is taken from the input, so requests leave in order; answers are waited for in that order too.
        let answers = input.map(move |request| {
            let prev = request.prev_log_id;
            let last = request.entries.last().map(|entry| entry.log_id).or(prev);
            let answer = link.append(&request, APPEND_TIMEOUT);
            async move {
                let answer = encode::read_append_response(answer.await?).map_err(malformed)?;
                if answer.is_conflict() && prev.is_none() {
                    return Err(malformed(DecodeError::Invalid("a conflict with the beginning of the log")));
                }
                let partial = matches!(&answer, openraft::raft::AppendEntriesResponse::PartialSuccess(upto) if *upto != last);
                Ok((answer.into_stream_result(prev, last), partial))
            }
        });
        // The first answer that is not a plain success ends the stream; what was sent behind it is answered with conflicts that nobody needs.
        let answers = answers.buffered(PIPELINE).scan(false, |ended, answer| {
            if *ended {
                return std::future::ready(None);
            }
            *ended = !matches!(&answer, Ok((Ok(_), false)));
            std::future::ready(Some(answer.map(|(result, _)| result)))
        });
        let answers: BoxStream<'s, _> = Box::pin(answers);
        Box::pin(std::future::ready(Ok(answers)))
    }

    async fn vote(&mut self, rpc: VoteRequest, option: RPCOption) -> Result<VoteResponse, RpcError> {
        let answer = self.call(Operation::Vote, &|w| encode::write_vote_request(w, &rpc), option.hard_ttl()).await?;
        encode::read_vote_response(answer).map_err(malformed)
    }

    async fn pre_vote(&mut self, rpc: VoteRequest, option: RPCOption) -> Result<VoteResponse, RpcError> {
        let answer = self.call(Operation::PreVote, &|w| encode::write_vote_request(w, &rpc), option.hard_ttl()).await?;
        encode::read_vote_response(answer).map_err(malformed)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let SnapshotData::Local(root) = snapshot.snapshot else {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "only this replica's own state can be sent");
            return Err(StreamingError::Network(NetworkError::new(&error)));
        };
        let sent = snapshot::send(&self.peers, &self.host, &self.route, &vote, &snapshot.meta, &root);
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = sent => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(snapshot::SendError::Call(error @ CallError::NotDone(_))) => Err(StreamingError::Unreachable(Unreachable::new(&error))),
                Err(error) => Err(StreamingError::Network(NetworkError::new(&error))),
            },
        }
    }

    async fn transfer_leader(&mut self, request: TransferRequest, option: RPCOption) -> Result<TransferResponse, RpcError> {
        let answer = self.call(Operation::TransferLeader, &|w| encode::write_transfer_request(w, &request), option.hard_ttl()).await?;
        encode::read_transfer_response(answer).map_err(malformed)
    }
}
