//! etcd's v3 gRPC API on a store.
//!
//! ```text
//!   etcd's clients --gRPC--> KV, Watch, Lease, Cluster, Maintenance --> convert --> Store
//!                                                    status: the one table of errors
//! ```
//!
//! [`full`] serves everything, for comparing answers with a real etcd and for running an upstream kube-apiserver on this store.
//! [`read_only`] is what a tenant gets of a hosted cluster: reads and watches, with the values of Secrets sealed; a write would bypass
//! authorization, admission and validation, so it is denied with the way to go.
//!
//! Whoever serves the [`Routes`] owns the connection: TLS, authentication and limits are outside.

mod admin;
mod backend;
mod convert;
mod expiry;
mod kv;
mod lease;
mod status;
mod watch;

/// Compiled from `proto/` by `proto/generate`, and checked in.
#[allow(clippy::all, clippy::unwrap_used)]
pub mod generated {
    pub mod mvccpb {
        include!("generated/mvccpb.rs");
    }
    pub mod etcdserverpb {
        include!("generated/etcdserverpb.rs");
    }
}

pub use admin::ETCD_VERSION;
pub use backend::{Identity, Member};
pub use expiry::Expiry;

use std::sync::Arc;

use tonic::service::Routes;
use wheelhouse_base::limits::MAX_VALUE_BYTES;
use wheelhouse_store::Store;

use crate::backend::Backend;
use crate::convert::KvCopy;
use crate::generated::etcdserverpb::cluster_server::ClusterServer;
use crate::generated::etcdserverpb::kv_server::KvServer;
use crate::generated::etcdserverpb::lease_server::LeaseServer;
use crate::generated::etcdserverpb::maintenance_server::MaintenanceServer;
use crate::generated::etcdserverpb::watch_server::WatchServer;

/// The largest request: the largest value and what surrounds it. etcd adds the same 512 KiB.
const MAX_REQUEST_BYTES: usize = MAX_VALUE_BYTES + 512 * 1024;

/// Where the API server keeps Secrets.
const SECRETS: &[u8] = b"/registry/core/secrets/";

/// The whole API, and what ends leases: run it beside the routes.
pub struct Full {
    pub routes: Routes,
    pub expiry: Expiry,
}

/// The whole API on `store`.
pub fn full(store: Arc<dyn Store>, identity: Identity) -> Full {
    let backend = Backend { store: store.clone(), identity: Arc::new(identity), copy: KvCopy { sealed: |_| false }, writable: true };
    let times = expiry::LeaseTimes::default();
    let expiry = Expiry::new(store, times.clone());
    Full { routes: routes(backend, times), expiry }
}

/// Range, Watch, Status, MemberList and the (empty) list of alarms. Values of keys for which `sealed` holds are replaced by a marker; see [`secrets`].
pub fn read_only(store: Arc<dyn Store>, identity: Identity, sealed: fn(&[u8]) -> bool) -> Routes {
    routes(Backend { store, identity: Arc::new(identity), copy: KvCopy { sealed }, writable: false }, expiry::LeaseTimes::default())
}

/// True for the keys of Secrets.
pub fn secrets(key: &[u8]) -> bool {
    key.starts_with(SECRETS)
}

fn routes(backend: Backend, times: expiry::LeaseTimes) -> Routes {
    Routes::new(KvServer::new(kv::KvService(backend.clone())).max_decoding_message_size(MAX_REQUEST_BYTES).max_encoding_message_size(usize::MAX))
        .add_service(WatchServer::new(watch::WatchService(backend.clone())).max_encoding_message_size(usize::MAX))
        .add_service(LeaseServer::new(lease::LeaseService { backend: backend.clone(), times }))
        .add_service(ClusterServer::new(admin::AdminService(backend.clone())))
        .add_service(MaintenanceServer::new(admin::AdminService(backend)))
}
