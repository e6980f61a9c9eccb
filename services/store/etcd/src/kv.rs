//! The KV service.

use tonic::{Request, Response, Status};
use wheelhouse_mvcc::{Command, Op, OpOutcome, Outcome, Put, Refusal, SortTarget, Txn, TxnOutcome};

use crate::backend::Backend;
use crate::convert::{self, range_answer, responses};
use crate::generated::etcdserverpb::kv_server::Kv;
use crate::generated::etcdserverpb::{self as pb, request_op};
use crate::status::ApiError;

pub(crate) struct KvService(pub(crate) Backend);

impl KvService {
    async fn range(&self, request: &pb::RangeRequest) -> Result<pb::RangeResponse, ApiError> {
        let range = convert::range(request)?;
        if !self.0.writable && range.sort_target == SortTarget::Value {
            // The order of sealed values would tell about them.
            return Err(ApiError::ReadOnly);
        }
        let snapshot = if request.serializable { self.0.store.snapshot() } else { self.0.store.barrier().await? };
        let answer = snapshot.read(&range)?;
        range_answer(&answer, self.0.header(snapshot.revision()), self.0.copy).ok_or(ApiError::WrongOutcome)
    }

    async fn put(&self, request: &pb::PutRequest) -> Result<pb::PutResponse, ApiError> {
        self.0.check_writable()?;
        let put = convert::put(request)?;
        let outcome = match self.commit_one(Op::Put(put.clone())).await {
            Err(ApiError::Refused(Refusal::KeyNotFound)) => return Err(self.first_fault_of(&put).into()),
            outcome => outcome?,
        };
        let [OpOutcome::Put { prev }] = &outcome.responses[..] else { return Err(ApiError::WrongOutcome) };
        Ok(pb::PutResponse { header: Some(self.0.header(outcome.revision)), prev_kv: prev.as_deref().map(|prev| self.0.copy.kv(prev)) })
    }

    async fn delete_range(&self, request: &pb::DeleteRangeRequest) -> Result<pb::DeleteRangeResponse, ApiError> {
        self.0.check_writable()?;
        let outcome = self.commit_one(Op::Delete(convert::delete(request)?)).await?;
        let [OpOutcome::Delete { deleted, prevs }] = &outcome.responses[..] else { return Err(ApiError::WrongOutcome) };
        let prev_kvs = prevs.iter().map(|prev| self.0.copy.kv(prev)).collect();
        Ok(pb::DeleteRangeResponse { header: Some(self.0.header(outcome.revision)), deleted: i64::try_from(*deleted).unwrap_or(i64::MAX), prev_kvs })
    }

    async fn txn(&self, request: &pb::TxnRequest) -> Result<pb::TxnResponse, ApiError> {
        self.0.check_writable()?;
        let txn = convert::txn(request)?;
        let outcome = if txn.is_read_only() {
            let snapshot = if is_serializable(request) { self.0.store.snapshot() } else { self.0.store.barrier().await? };
            snapshot.transact_read_only(&txn)?
        } else {
            self.commit(txn).await?
        };
        let header = Some(self.0.header(outcome.revision));
        Ok(pb::TxnResponse { header, succeeded: outcome.succeeded, responses: responses(&outcome, self.0.copy) })
    }

    async fn compact(&self, request: &pb::CompactionRequest) -> Result<pb::CompactionResponse, ApiError> {
        self.0.check_writable()?;
        self.0.commit(convert::compact(request)?).await?;
        Ok(pb::CompactionResponse { header: Some(self.0.current_header()) })
    }

    async fn commit_one(&self, op: Op) -> Result<TxnOutcome, ApiError> {
        self.commit(Txn { success: vec![op], ..Txn::default() }).await
    }

    async fn commit(&self, txn: Txn) -> Result<TxnOutcome, ApiError> {
        match self.0.commit(Command::Txn { txn, fence: None }).await? {
            Outcome::Txn(outcome) => Ok(outcome),
            _ => Err(ApiError::WrongOutcome),
        }
    }

    /// A put by itself looks for its lease before its key; within a transaction etcd does it the other way round.
    fn first_fault_of(&self, put: &Put) -> Refusal {
        let unknown_lease = put.lease != 0 && self.0.store.snapshot().lease(put.lease).is_none();
        if unknown_lease { Refusal::LeaseNotFound(put.lease) } else { Refusal::KeyNotFound }
    }
}

fn is_serializable(request: &pb::TxnRequest) -> bool {
    let serializable = |op: &pb::RequestOp| matches!(&op.request, Some(request_op::Request::RequestRange(range)) if range.serializable);
    request.success.iter().chain(&request.failure).all(serializable)
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        Ok(Response::new(KvService::range(self, request.get_ref()).await?))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        Ok(Response::new(KvService::put(self, request.get_ref()).await?))
    }

    async fn delete_range(&self, request: Request<pb::DeleteRangeRequest>) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        Ok(Response::new(KvService::delete_range(self, request.get_ref()).await?))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        Ok(Response::new(KvService::txn(self, request.get_ref()).await?))
    }

    async fn compact(&self, request: Request<pb::CompactionRequest>) -> Result<Response<pb::CompactionResponse>, Status> {
        Ok(Response::new(KvService::compact(self, request.get_ref()).await?))
    }
}
