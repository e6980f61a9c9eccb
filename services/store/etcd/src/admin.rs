//! The Cluster and Maintenance services.

use tonic::{Request, Response, Status};
use wheelhouse_base::Revision;
use wheelhouse_mvcc::{KeyValue, Snapshot};

use crate::backend::{Backend, Member};
use crate::generated::etcdserverpb as pb;
use crate::generated::etcdserverpb::cluster_server::Cluster;
use crate::generated::etcdserverpb::maintenance_server::Maintenance;
use crate::status::ApiError;

/// The etcd release whose behaviour this is. kube-apiserver reads it to decide which requests the server understands.
pub const ETCD_VERSION: &str = "3.5.17";

const MEMBERSHIP: &str = "etcdserver: members are placed and replaced by the service that hosts this cluster";

pub(crate) struct AdminService(pub(crate) Backend);

impl AdminService {
    fn unsupported<T>(&self) -> Result<T, Status> {
        self.0.check_writable()?;
        Err(ApiError::Unsupported(MEMBERSHIP).into())
    }

    fn hash(&self, revision: i64) -> Result<pb::HashKvResponse, ApiError> {
        self.0.check_writable()?;
        let snapshot = self.0.store.snapshot();
        let at: Revision = u64::try_from(revision).ok().filter(|revision| *revision > 0).unwrap_or(snapshot.revision());
        let compact_revision = i64::try_from(snapshot.compacted()).unwrap_or(i64::MAX);
        Ok(pb::HashKvResponse { header: Some(self.0.header(snapshot.revision())), hash: hash_records(&snapshot.at(at)?), compact_revision })
    }
}

/// FNV-1a over every record in key order. It tells whether two replicas hold the same; it is not etcd's number, which covers etcd's file format.
fn hash_records(snapshot: &Snapshot) -> u32 {
    snapshot.range(b"", None).fold(0x811c_9dc5, |hash, kv| hash_record(hash, kv))
}

fn hash_record(hash: u32, kv: &KeyValue) -> u32 {
    let numbers = [kv.create_revision, kv.mod_revision, kv.version, kv.lease.cast_unsigned(), kv.key.len() as u64, kv.value.len() as u64];
    let numbers = numbers.into_iter().flat_map(u64::to_le_bytes);
    numbers.chain(kv.key.iter().copied()).chain(kv.value.iter().copied()).fold(hash, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn member(member: &Member) -> pb::Member {
    pb::Member {
        id: member.id,
        name: member.name.clone(),
        peer_ur_ls: member.peer_urls.clone(),
        client_ur_ls: member.client_urls.clone(),
        is_learner: member.learner,
    }
}

#[tonic::async_trait]
impl Cluster for AdminService {
    async fn member_list(&self, request: Request<pb::MemberListRequest>) -> Result<Response<pb::MemberListResponse>, Status> {
        if request.get_ref().linearizable {
            self.0.store.barrier().await.map_err(ApiError::from)?;
        }
        let members = self.0.identity.members.iter().map(member).collect();
        Ok(Response::new(pb::MemberListResponse { header: Some(self.0.current_header()), members }))
    }

    async fn member_add(&self, _: Request<pb::MemberAddRequest>) -> Result<Response<pb::MemberListResponse>, Status> {
        self.unsupported()
    }

    async fn member_remove(&self, _: Request<pb::MemberRemoveRequest>) -> Result<Response<pb::MemberListResponse>, Status> {
        self.unsupported()
    }

    async fn member_update(&self, _: Request<pb::MemberUpdateRequest>) -> Result<Response<pb::MemberListResponse>, Status> {
        self.unsupported()
    }

    async fn member_promote(&self, _: Request<pb::MemberPromoteRequest>) -> Result<Response<pb::MemberListResponse>, Status> {
        self.unsupported()
    }
}

#[tonic::async_trait]
impl Maintenance for AdminService {
    /// No alarm is ever raised: a full disk refuses each write by itself. The list is served everywhere, since `endpoint health` asks for it.
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        if request.get_ref().action != i32::from(pb::alarm_request::AlarmAction::Get) {
            self.0.check_writable()?;
        }
        Ok(Response::new(pb::AlarmResponse { header: Some(self.0.current_header()), alarms: Vec::new() }))
    }

    /// The log's index is not visible here; the revision stands in for it, since it also only ever grows.
    async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        let snapshot = self.0.store.snapshot();
        let leadership = *self.0.store.leadership().borrow();
        let memory = snapshot.memory();
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(Response::new(pb::StatusResponse {
            header: Some(self.0.header(snapshot.revision())),
            version: ETCD_VERSION.to_owned(),
            db_size: bytes(memory.live + memory.history),
            db_size_in_use: bytes(memory.live),
            leader: leadership.leader.map_or(0, |leader| leader.0),
            raft_index: snapshot.revision(),
            raft_applied_index: snapshot.revision(),
            raft_term: leadership.term,
            errors: if leadership.leader.is_none() { vec!["etcdserver: no leader".to_owned()] } else { Vec::new() },
            is_learner: self.0.identity.members.iter().any(|member| member.learner && member.id == self.0.store.replica().0),
        }))
    }

    /// Nothing fragments here that a request could mend.
    async fn defragment(&self, _: Request<pb::DefragmentRequest>) -> Result<Response<pb::DefragmentResponse>, Status> {
        self.0.check_writable()?;
        Ok(Response::new(pb::DefragmentResponse { header: Some(self.0.current_header()) }))
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Result<Response<pb::HashKvResponse>, Status> {
        Ok(Response::new(self.hash(request.get_ref().revision)?))
    }
}
