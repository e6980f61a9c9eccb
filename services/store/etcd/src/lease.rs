//! The Lease service.

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tonic::{Request, Response, Status, Streaming};
use wheelhouse_mvcc::{Command, Outcome, Refusal};

use crate::backend::Backend;
use crate::expiry::LeaseTimes;
use crate::generated::etcdserverpb as pb;
use crate::generated::etcdserverpb::lease_server::Lease;
use crate::status::ApiError;

/// The shortest lease in seconds; a shorter one is lengthened. etcd's, at its default election timeout: one and a half of them, rounded up.
const MIN_TTL_SECS: i64 = 2;

/// The longest lease in seconds. etcd's.
const MAX_TTL_SECS: i64 = 9_000_000_000;

#[derive(Clone)]
pub(crate) struct LeaseService {
    pub(crate) backend: Backend,
    pub(crate) times: LeaseTimes,
}

impl LeaseService {
    async fn grant(&self, request: &pb::LeaseGrantRequest) -> Result<pb::LeaseGrantResponse, ApiError> {
        if request.ttl > MAX_TTL_SECS {
            return Err(ApiError::TtlTooLarge(MAX_TTL_SECS));
        }
        let ttl_secs = request.ttl.max(MIN_TTL_SECS);
        // Of 63 random bits zero is as unlikely as meeting another lease's id, which the store refuses.
        let id = if request.id == 0 { (rand::random::<i64>() & i64::MAX).max(1) } else { request.id };
        self.backend.commit(Command::LeaseGrant { id, ttl_secs }).await?;
        self.times.observe(&self.backend.store.snapshot());
        Ok(pb::LeaseGrantResponse { header: Some(self.backend.current_header()), id, ttl: ttl_secs, error: String::new() })
    }

    async fn revoke(&self, id: i64) -> Result<pb::LeaseRevokeResponse, ApiError> {
        match self.backend.commit(Command::LeaseRevoke { id }).await? {
            Outcome::LeaseRevoked { revision } => Ok(pb::LeaseRevokeResponse { header: Some(self.backend.header(revision)) }),
            _ => Err(ApiError::WrongOutcome),
        }
    }

    async fn keep_alive(&self, id: i64) -> Result<pb::LeaseKeepAliveResponse, ApiError> {
        // The header is taken first: a client must not see a revision at which the lease may be gone.
        let header = Some(self.backend.current_header());
        let ttl = match self.backend.commit(Command::LeaseRenew { id }).await {
            Ok(Outcome::LeaseRenewed { ttl_secs }) => ttl_secs,
            Err(ApiError::Refused(Refusal::LeaseNotFound(_))) => 0,
            Ok(_) => return Err(ApiError::WrongOutcome),
            Err(error) => return Err(error),
        };
        self.times.observe(&self.backend.store.snapshot());
        Ok(pb::LeaseKeepAliveResponse { header, id, ttl })
    }

    async fn time_to_live(&self, request: &pb::LeaseTimeToLiveRequest) -> Result<pb::LeaseTimeToLiveResponse, ApiError> {
        let snapshot = self.backend.store.barrier().await?;
        let header = Some(self.backend.header(snapshot.revision()));
        let (Some(lease), Some(left)) = (snapshot.lease(request.id), self.times.remaining(request.id, &snapshot)) else {
            return Ok(pb::LeaseTimeToLiveResponse { header, id: request.id, ttl: -1, ..Default::default() });
        };
        let keys = if request.keys { lease.keys.iter().cloned().collect() } else { Vec::new() };
        let ttl = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        Ok(pb::LeaseTimeToLiveResponse { header, id: request.id, ttl, granted_ttl: lease.ttl_secs, keys })
    }

    async fn leases(&self) -> Result<pb::LeaseLeasesResponse, ApiError> {
        let snapshot = self.backend.store.barrier().await?;
        let leases = snapshot.leases().map(|(id, _)| pb::LeaseStatus { id }).collect();
        Ok(pb::LeaseLeasesResponse { header: Some(self.backend.header(snapshot.revision())), leases })
    }
}

#[tonic::async_trait]
impl Lease for LeaseService {
    type LeaseKeepAliveStream = BoxStream<'static, Result<pb::LeaseKeepAliveResponse, Status>>;

    async fn lease_grant(&self, request: Request<pb::LeaseGrantRequest>) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        self.backend.check_writable()?;
        Ok(Response::new(self.grant(request.get_ref()).await?))
    }

    async fn lease_revoke(&self, request: Request<pb::LeaseRevokeRequest>) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        Ok(Response::new(self.revoke(request.get_ref().id).await?))
    }

    async fn lease_keep_alive(&self, request: Request<Streaming<pb::LeaseKeepAliveRequest>>) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        self.backend.check_writable()?;
        let service = self.clone();
        let answers = request.into_inner().and_then(move |request| {
            let service = service.clone();
            async move { service.keep_alive(request.id).await.map_err(Status::from) }
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn lease_time_to_live(&self, request: Request<pb::LeaseTimeToLiveRequest>) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        self.backend.check_writable()?;
        Ok(Response::new(self.time_to_live(request.get_ref()).await?))
    }

    async fn lease_leases(&self, _: Request<pb::LeaseLeasesRequest>) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        self.backend.check_writable()?;
        Ok(Response::new(self.leases().await?))
    }
}
