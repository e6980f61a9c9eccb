//! `--store-only`: one store on one disk behind etcd's whole API, for comparing answers with a real etcd and for running an upstream
//! kube-apiserver on it. No TLS, no other host.

use std::sync::Arc;
use std::sync::Weak;

use anyhow::Context;
use bytes::Bytes;
use tokio::net::TcpListener;
use wheelhouse_base::{ClusterId, HostName, ReplicaId, SystemClock};
use wheelhouse_replication::{DataKey, FrameReceiver, GroupId, GroupManager, HostDisk, HostParts, NotSent, PeerTransport, ReplicaSpec, Start};
use wheelhouse_runtime::{Tasks, shutdown};
use wheelhouse_store::Store;

use crate::config::StoreOnly;

/// There is nobody else.
struct NoPeers;

impl PeerTransport for NoPeers {
    fn attach(&self, _: Weak<dyn FrameReceiver>) {}

    fn send(&self, _: &HostName, _: Bytes) -> Result<(), NotSent> {
        Err(NotSent)
    }
}

/// The key lies beside the data: this mode protects nothing.
fn data_key(path: &std::path::Path) -> anyhow::Result<DataKey> {
    let file = path.join("store.key");
    if !file.exists() {
        std::fs::write(&file, DataKey::random().as_bytes()).with_context(|| format!("writing {}", file.display()))?;
    }
    let bytes = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    let bytes: [u8; 32] = bytes.try_into().map_err(|_| anyhow::anyhow!("{} is malformed", file.display()))?;
    Ok(DataKey::from_bytes(bytes))
}

/// Serves until told to stop.
pub async fn run(flags: &StoreOnly) -> anyhow::Result<()> {
    let path = flags.store_dir.clone().context("--store-only needs --store-dir")?;
    std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    let host: HostName = "local".parse().context("a constant name")?;
    let disk = HostDisk::open(&path.join("db")).context("opening the disk")?;
    let groups =
        GroupManager::new(HostParts { host: host.clone(), disk: Arc::clone(&disk), transport: Arc::new(NoPeers), clock: Arc::new(SystemClock) });
    let id = GroupId::new(ClusterId::system(), ReplicaId(1));
    let start = Start::Found { voters: vec![(id.replica, host)] };
    let spec = ReplicaSpec { cluster: id.cluster.clone(), replica: id.replica, key: data_key(&path)?, start };
    let store: Arc<dyn Store> = Arc::new(groups.start(spec).await.context("starting the store")?);
    let full = wheelhouse_etcd::full(store, crate::etcd::identity(&id));

    let listener = TcpListener::bind(flags.store_listen).await.with_context(|| format!("listening on {}", flags.store_listen))?;
    tracing::info!(listen = %flags.store_listen, "the store is up");
    let tasks = Tasks::new("store");
    tasks.spawn("lease-expiry", full.expiry.run());
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    let stopped = async {
        if let Err(error) = shutdown::requested().await {
            tracing::error!(%error, "signals cannot be awaited");
        }
    };
    tonic::transport::Server::builder().add_routes(full.routes).serve_with_incoming_shutdown(incoming, stopped).await.context("serving")?;
    tasks.stop(std::time::Duration::from_secs(1)).await;
    groups.shutdown().await;
    disk.close();
    Ok(())
}
