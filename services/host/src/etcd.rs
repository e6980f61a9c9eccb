//! The read-only etcd API of a hosted cluster, under the server name `etcd.<cluster>.<base>`.

use std::sync::Arc;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::service::Routes;
use wheelhouse_access::authn::credential;
use wheelhouse_apiserver::security::SnapshotLookups;
use wheelhouse_etcd::Identity;
use wheelhouse_fleet::names::{CLUSTER_ADMINS_GROUP, OPERATORS_GROUP};
use wheelhouse_pki::CertificateInfo;
use wheelhouse_replication::{GroupId, Member, ReplicatedStore, Role};
use wheelhouse_runtime::tls::{self, CertificateSlot, TlsError};
use wheelhouse_store::Store;

/// A handful of etcdctl calls and watches share a connection.
const MAX_STREAMS: u32 = 250;

/// What the etcd API of one replica is made of. The rest is made for each connection: most clusters never see one, and a thousand idle
/// services would cost memory.
#[derive(Clone)]
pub struct EtcdAccess {
    pub store: ReplicatedStore,
    pub certificate: CertificateSlot,
    /// The cluster's authority, PEM.
    pub authority: Arc<str>,
}

impl EtcdAccess {
    /// Demands a certificate of the cluster's authority.
    pub fn tls(&self) -> Result<Arc<ServerConfig>, TlsError> {
        tls::peer_server_config(self.certificate.clone(), &self.authority, &[b"h2"])
    }

    /// Values of Secrets stay sealed: whoever may read them does so through the Kubernetes API.
    pub fn routes(&self) -> Routes {
        let member = |m: Member| wheelhouse_etcd::Member {
            id: m.replica.0,
            name: format!("r{}@{}", m.replica, m.host),
            learner: m.role == Role::Learner,
            ..wheelhouse_etcd::Member::default()
        };
        let members = self.store.members().into_iter().map(member).collect();
        let identity = Identity { members, ..identity(self.store.id()) };
        wheelhouse_etcd::read_only(Arc::new(self.store.clone()), identity, wheelhouse_etcd::secrets)
    }

    /// Whether a certificate of the cluster's authority is an administrator's and still counts. Nodes and users have certificates too, and no
    /// authorizer stands between this API and everything that is stored. Asked once per connection, so the leader may be asked too.
    pub async fn may_read(&self, certificate: &[u8]) -> bool {
        let Ok(info) = CertificateInfo::parse(certificate) else { return false };
        let groups = &info.subject.organizations;
        if !groups.iter().any(|group| group == CLUSTER_ADMINS_GROUP || group == OPERATORS_GROUP) {
            return false;
        }
        let alive = |snapshot| credential::is_alive(&info.subject.common_name, &SnapshotLookups(snapshot));
        self.store.barrier().await.is_ok_and(alive)
    }
}

/// The cluster's number in etcd's answers: its id's bytes, folded.
pub fn identity(id: &GroupId) -> Identity {
    let cluster_id = id.cluster.as_str().bytes().fold(0_u64, |hash, b| hash.rotate_left(5) ^ u64::from(b));
    let member = wheelhouse_etcd::Member { id: id.replica.0, name: format!("r{}", id.replica), ..wheelhouse_etcd::Member::default() };
    Identity { cluster_id, members: vec![member] }
}

/// Serves gRPC on one connection until it ends.
pub async fn serve_connection(routes: Routes, stream: TlsStream<TcpStream>) {
    let service = TowerToHyperService::new(routes.into_axum_router());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "an etcd client's connection ended early");
    }
}
