//! One routes stream to every known host, and the table on disk.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use wheelhouse_base::HostName;
use wheelhouse_base::routes::{HostRoutes, MAX_LINE, SILENCE, peers_server_name};
use wheelhouse_runtime::Tasks;

use crate::listener::Endpoint;
use crate::table::Table;

/// Connecting and TLS together.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// Between attempts to reach a host: short, since its clients wait for it, and constant, since there is one stream for each host.
const RETRY: Duration = Duration::from_millis(500);

/// The same for an address that no host has: a seed that is yet to join, or a host that was removed.
const RETRY_UNKNOWN: Duration = Duration::from_secs(2);

/// The table is written at most this often; what is lost is only how fresh a restarted endpoint begins.
const SAVE_PAUSE: Duration = Duration::from_secs(1);

/// Addresses of streams that are to be started.
const QUEUE: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("the table {path} cannot be read")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the table {path} is malformed")]
    Malformed {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

const FILE: &str = "routes.json";

/// The table as it was last kept; an empty one if there is none.
pub fn load(data_dir: &Path) -> Result<Table, TableError> {
    let path = data_dir.join(FILE);
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| TableError::Malformed { path, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Table::default()),
        Err(source) => Err(TableError::Read { path, source }),
    }
}

fn save(data_dir: &Path, table: &Table) -> io::Result<()> {
    let (path, fresh) = (data_dir.join(FILE), data_dir.join("routes.json.new"));
    let text = serde_json::to_vec(table).map_err(io::Error::other)?;
    std::fs::write(&fresh, text)?;
    std::fs::rename(fresh, path)
}

/// Holds a stream to each of `seeds` and to every host that becomes known.
pub fn run(tasks: &Tasks, endpoint: Arc<Endpoint>, tls: Arc<ClientConfig>, seeds: Vec<String>, data_dir: PathBuf) -> Result<(), InvalidDomain> {
    let server_name = ServerName::try_from(peers_server_name(&endpoint.base_domain)).map_err(|_| InvalidDomain(endpoint.base_domain.clone()))?;
    let (wanted, mut addresses) = mpsc::channel::<String>(QUEUE);
    let changed = Arc::new(Notify::new());
    let follow = Follow { endpoint: Arc::clone(&endpoint), connector: TlsConnector::from(tls), server_name, wanted, changed: Arc::clone(&changed) };
    let known: Vec<String> = endpoint.table.read().hosts().map(|h| h.peers.clone()).collect();

    let (mut stop, inner) = (tasks.stop_signal(), tasks.clone());
    tasks.spawn("route-streams", async move {
        let mut streams: HashMap<String, ()> = HashMap::new();
        let mut fresh: Vec<String> = seeds.into_iter().chain(known).collect();
        loop {
            for address in fresh.drain(..) {
                if streams.insert(address.clone(), ()).is_none() {
                    inner.spawn("route-stream", follow.clone().run(address, inner.stop_signal()));
                }
            }
            match stop.or(addresses.recv()).await {
                Some(Some(address)) => fresh.push(address),
                Some(None) | None => return,
            }
        }
    });

    let mut stop = tasks.stop_signal();
    tasks.spawn("table-keeper", async move {
        while stop.or(changed.notified()).await.is_some() {
            let table = endpoint.table.read().clone();
            if let Err(error) = save(&data_dir, &table) {
                tracing::warn!(%error, "the routing table could not be kept");
            }
            if stop.or(tokio::time::sleep(SAVE_PAUSE)).await.is_none() {
                return;
            }
        }
    });
    Ok(())
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a domain name")]
pub struct InvalidDomain(String);

/// One stream, connected again whenever it ends.
#[derive(Clone)]
struct Follow {
    endpoint: Arc<Endpoint>,
    connector: TlsConnector,
    server_name: ServerName<'static>,
    wanted: mpsc::Sender<String>,
    changed: Arc<Notify>,
}

impl Follow {
    async fn run(self, address: String, mut stop: wheelhouse_runtime::Stop) {
        let mut last_error = String::new();
        loop {
            let mut host = None;
            let Some(ended) = stop.or(self.stream(&address, &mut host)).await else { return };
            if let Some(host) = host {
                self.endpoint.table.write().lost(&host);
                self.count();
                last_error.clear();
            }
            // A host that is down for a day is worth one line, not 172,800.
            let error = ended.err().map(|e| e.to_string()).unwrap_or_else(|| "ended".to_owned());
            if error != last_error {
                tracing::info!(host = %address, %error, "a routes stream is down");
                last_error = error;
            }
            let pause = if self.is_known(&address) { RETRY } else { RETRY_UNKNOWN };
            if stop.or(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Whether a host of the service has this address, or nobody can say.
    fn is_known(&self, address: &str) -> bool {
        let table = self.endpoint.table.read();
        table.fresh_hosts() == 0 || table.hosts().any(|h| h.peers == address)
    }

    async fn stream(&self, address: &str, host: &mut Option<HostName>) -> io::Result<()> {
        let connecting = async {
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            self.connector.connect(self.server_name.clone(), tcp).await
        };
        let stream = timeout(CONNECT_TIME, connecting).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = (&mut reader).take(MAX_LINE as u64);
            let read = timeout(SILENCE, limited.read_until(b'\n', &mut line)).await.map_err(|_| io::ErrorKind::TimedOut)??;
            if read == 0 || line.last() != Some(&b'\n') {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line.len() > 1 {
                let routes: HostRoutes = serde_json::from_slice(&line).map_err(io::Error::other)?;
                *host = Some(routes.host.name.clone());
                self.take(routes).await;
            }
        }
    }

    async fn take(&self, routes: HostRoutes) {
        self.endpoint.readmit(&routes.host.name);
        let addresses: Vec<String> = {
            let mut table = self.endpoint.table.write();
            if table.report(routes) {
                self.changed.notify_one();
            }
            table.hosts().map(|h| h.peers.clone()).collect()
        };
        self.count();
        for address in addresses {
            // The receiver ends only with the endpoint.
            let _ = self.wanted.send(address).await;
        }
    }

    fn count(&self) {
        self.endpoint.metrics.hosts.set(self.endpoint.table.read().fresh_hosts() as f64);
    }
}
