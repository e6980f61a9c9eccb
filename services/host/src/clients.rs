//! The clients port: endpoints' connections, told apart by server name, served by the replica that is here.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::LazyConfigAcceptor;
use wheelhouse_apiserver::{ApiServer, ConnectionInfo, serve_connection};
use wheelhouse_base::{ClusterId, ReplicaId};
use wheelhouse_runtime::{Tasks, proxy};

use crate::etcd::EtcdAccess;

/// The PROXY header comes with the first segment, the handshake within a few round trips of the client.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connections whose handshake is under way; it costs CPU, and more at once would only make all late.
const HANDSHAKES: usize = 512;

/// When accepting fails (file handles, mostly), a pause keeps the loop from spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A replica as connections need it.
#[derive(Clone)]
pub struct Served {
    pub replica: ReplicaId,
    pub server: Arc<ApiServer>,
    pub tls: Arc<ServerConfig>,
    /// The etcd API, under the name `etcd.<cluster>`.
    pub etcd: EtcdAccess,
    /// The cluster's own tasks: its connections end with it.
    pub tasks: Tasks,
    /// Whether endpoints send clients here.
    pub ready: bool,
}

/// Every replica that runs here, by cluster. A host holds at most one of each. Clones share it.
#[derive(Clone, Default)]
pub struct Serving(Arc<RwLock<HashMap<ClusterId, Served>>>);

impl Serving {
    pub fn insert(&self, cluster: ClusterId, served: Served) {
        self.0.write().insert(cluster, served);
    }

    pub fn remove(&self, cluster: &ClusterId) {
        self.0.write().remove(cluster);
    }

    pub fn set_ready(&self, cluster: &ClusterId, ready: bool) {
        if let Some(served) = self.0.write().get_mut(cluster) {
            served.ready = ready;
        }
    }

    fn get(&self, cluster: &ClusterId) -> Option<Served> {
        self.0.read().get(cluster).cloned()
    }

    pub fn ready_cluster(&self, cluster: &ClusterId) -> Option<Arc<ApiServer>> {
        self.0.read().get(cluster).filter(|s| s.ready).map(|s| Arc::clone(&s.server))
    }
}

/// What a server name asks of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Api,
    Etcd,
}

/// `<cluster>.<base>`, `r<replica>.<cluster>.<base>` or `etcd.<cluster>.<base>`.
fn target(server_name: &str, base_domain: &str) -> Option<(ClusterId, Service)> {
    let labels = server_name.strip_suffix(base_domain)?.strip_suffix('.')?;
    match labels.split_once('.') {
        None => Some((labels.parse().ok()?, Service::Api)),
        Some(("etcd", cluster)) => Some((cluster.parse().ok()?, Service::Etcd)),
        Some((_, cluster)) => Some((cluster.parse().ok()?, Service::Api)),
    }
}

/// Accepts until stopped.
pub fn serve(tasks: &Tasks, listener: TcpListener, serving: Serving, base_domain: String) {
    let (mut stop, inner) = (tasks.stop_signal(), tasks.clone());
    let (handshakes, base_domain) = (Arc::new(tokio::sync::Semaphore::new(HANDSHAKES)), Arc::<str>::from(base_domain));
    tasks.spawn("clients-port", async move {
        loop {
            let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { return };
            match stop.or(listener.accept()).await {
                None => return,
                Some(Ok((stream, _))) => {
                    let (serving, base_domain) = (serving.clone(), Arc::clone(&base_domain));
                    inner.spawn("client-handshake", async move {
                        let begun = tokio::time::timeout(HANDSHAKE, begin(stream, &serving, &base_domain)).await;
                        drop(permit);
                        match begun {
                            Ok(Ok(connection)) => connection.run(),
                            Ok(Err(error)) => tracing::debug!(%error, "a client's handshake failed"),
                            Err(_) => tracing::debug!("a client's handshake took too long"),
                        }
                    });
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "accepting a client failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
}

/// A client that has shown what it wants.
struct Connection {
    served: Served,
    service: Service,
    stream: tokio_rustls::server::TlsStream<TcpStream>,
    info: ConnectionInfo,
}

async fn begin(mut stream: TcpStream, serving: &Serving, base_domain: &str) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    let here = stream.peer_addr()?;
    let header = proxy::read_header(&mut stream).await.map_err(io::Error::other)?;
    let client: SocketAddr = header.client.unwrap_or(here);
    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let name = hello.client_hello().server_name().unwrap_or_default().to_ascii_lowercase();
    let wanted = target(&name, base_domain).and_then(|(cluster, service)| Some((serving.get(&cluster)?, service)));
    let (served, service) = wanted.ok_or_else(|| io::Error::other(format!("{name:?} is not served here")))?;
    let tls = match service {
        Service::Api => Arc::clone(&served.tls),
        Service::Etcd => served.etcd.tls().map_err(io::Error::other)?,
    };
    let stream = hello.into_stream(tls).await?;
    let certificates: Vec<Vec<u8>> = stream.get_ref().1.peer_certificates().unwrap_or_default().iter().map(|c| c.as_ref().to_vec()).collect();
    if service == Service::Etcd {
        let may_read = match certificates.first() {
            Some(certificate) => served.etcd.may_read(certificate).await,
            None => false,
        };
        if !may_read {
            return Err(io::Error::other("the certificate is not an administrator's, or was revoked"));
        }
    }
    let info = ConnectionInfo::new(client, certificates).traced(header.traceparent);
    Ok(Connection { served, service, stream, info })
}

impl Connection {
    /// Goes on among the cluster's own tasks.
    fn run(self) {
        let Self { served, service, stream, info } = self;
        match service {
            Service::Api => served.tasks.spawn("client", serve_connection(served.server, stream, info)),
            Service::Etcd => served.tasks.spawn("etcd-client", crate::etcd::serve_connection(served.etcd.routes(), stream)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_cluster_and_service() {
        let base = "w.internal";
        let cluster: ClusterId = "c-aaaaaaaaaa".parse().unwrap();
        assert_eq!(target("c-aaaaaaaaaa.w.internal", base), Some((cluster.clone(), Service::Api)));
        assert_eq!(target("r7.c-aaaaaaaaaa.w.internal", base), Some((cluster.clone(), Service::Api)));
        assert_eq!(target("etcd.c-aaaaaaaaaa.w.internal", base), Some((cluster, Service::Etcd)));
        assert_eq!(target("system.w.internal", base), Some((ClusterId::system(), Service::Api)));
        for bad in ["w.internal", "x.w.internal", "c-aaaaaaaaaa.other", ""] {
            assert_eq!(target(bad, base), None, "{bad}");
        }
    }
}
