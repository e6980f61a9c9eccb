//! Two servers with one API: a real etcd and ours.

#![allow(dead_code, reason = "each test program uses its own part")]

pub mod sequence;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use wheelhouse_etcd::generated::etcdserverpb as pb;
use wheelhouse_etcd::generated::etcdserverpb::kv_client::KvClient;
use wheelhouse_etcd::generated::etcdserverpb::lease_client::LeaseClient;
use wheelhouse_etcd::generated::etcdserverpb::maintenance_client::MaintenanceClient;
use wheelhouse_etcd::generated::etcdserverpb::watch_client::WatchClient;
use wheelhouse_etcd::{Identity, Member};
use wheelhouse_store::{MemoryStore, Store};

/// How long a server may take for anything it must do.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The directory of etcd's programs; `None`, with the reason said, if they cannot be installed here.
pub fn etcd_programs() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/etcd");
    let output = Command::new(script).stderr(Stdio::inherit()).output().expect("the script exists");
    if !output.status.success() {
        eprintln!("SKIPPED: tools/etcd cannot install etcd here ({}); nothing was compared with a real etcd", output.status);
        return None;
    }
    Some(PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim()))
}

/// A real etcd with one member and an empty store, ended when dropped.
pub struct RealEtcd {
    process: Child,
    pub client: SocketAddr,
    _data: tempfile::TempDir,
}

impl RealEtcd {
    pub async fn start(programs: &Path) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let (client, peer) = (free_address()?, free_address()?);
        let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
        let process = Command::new(programs.join("etcd"))
            .arg("--data-dir")
            .arg(data.path().join("etcd"))
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}"), "--log-level", "error", "--unsafe-no-fsync"])
            .stdout(Stdio::null())
            .spawn()
            .context("etcd does not start")?;
        let server = Self { process, client, _data: data };
        server.wait_until_it_serves().await?;
        Ok(server)
    }

    /// A status with a leader says that it serves.
    async fn wait_until_it_serves(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut clients = Clients::connect(self.client);
        loop {
            match clients.maintenance.status(pb::StatusRequest {}).await {
                Ok(status) if status.get_ref().leader != 0 => return Ok(()),
                other if Instant::now() > deadline => bail!("etcd does not come up: {other:?}"),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

impl Drop for RealEtcd {
    fn drop(&mut self) {
        let _already_dead = self.process.kill();
        let _status = self.process.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Our whole API on an empty memory store, ended with the runtime.
pub struct Ours {
    pub store: Arc<MemoryStore>,
    pub client: SocketAddr,
}

pub fn identity() -> Identity {
    let member = Member { id: 1, name: "default".to_owned(), client_urls: vec!["http://127.0.0.1:2379".to_owned()], ..Member::default() };
    Identity { cluster_id: 0xc1, members: vec![member] }
}

impl Ours {
    pub async fn start() -> Result<Self> {
        let store = Arc::new(MemoryStore::default());
        let full = wheelhouse_etcd::full(store.clone() as Arc<dyn Store>, identity());
        tokio::spawn(full.expiry.run());
        let client = serve(full.routes).await?;
        Ok(Self { store, client })
    }
}

pub async fn serve(routes: tonic::service::Routes) -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(Server::builder().add_routes(routes).serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))));
    Ok(address)
}

#[derive(Clone)]
pub struct Clients {
    pub kv: KvClient<Channel>,
    pub watch: WatchClient<Channel>,
    pub lease: LeaseClient<Channel>,
    pub maintenance: MaintenanceClient<Channel>,
}

impl Clients {
    pub fn connect(address: SocketAddr) -> Self {
        let channel = Endpoint::from_shared(format!("http://{address}")).expect("an address is a URL").connect_lazy();
        Self {
            kv: KvClient::new(channel.clone()),
            watch: WatchClient::new(channel.clone()),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel),
        }
    }
}
