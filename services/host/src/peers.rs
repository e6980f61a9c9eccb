//! The peers port: one TLS listener, the protocol name says what a connection is for.
//!
//! | protocol | who | what |
//! |---|---|---|
//! | `wheelhouse-raft/1` | hosts | frames between replicas |
//! | `wheelhouse-routes/1` | endpoints, hosts | the routes stream |
//! | `wheelhouse-join/1` | anybody with a token | becoming a host |
//! | `h2` | hosts | the system API, where a system replica serves here |
//!
//! A certificate must be the operator's authority's if there is one; what a connection without one may do is join.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use wheelhouse_apiserver::{ConnectionInfo, serve_connection};
use wheelhouse_base::{ClusterId, routes};
use wheelhouse_runtime::Tasks;
use wheelhouse_runtime::tls::{self, CertificateSlot, TlsError};

use crate::clients::Serving;
use crate::identity::Peer;
use crate::join::{self, Registrar};
use crate::routes::Routes;
use crate::transport::{self, MtlsTransport};

/// A handshake on a local network takes milliseconds.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// When accepting fails (file handles, mostly), a pause keeps the loop from spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const H2: &[u8] = b"h2";

/// What the port leads to.
pub struct PeersPort {
    pub transport: Arc<MtlsTransport>,
    pub routes: Routes,
    pub registrar: Registrar,
    pub serving: Serving,
    /// Told of a host that has joined.
    pub joined: Box<dyn Fn(wheelhouse_base::routes::KnownHost) + Send + Sync>,
    /// With and without the system API: a host that does not serve it refuses the protocol, so that a client tries the next.
    with_api: Arc<ServerConfig>,
    without_api: Arc<ServerConfig>,
}

impl PeersPort {
    pub fn new(
        transport: Arc<MtlsTransport>,
        routes: Routes,
        registrar: Registrar,
        serving: Serving,
        certificate: CertificateSlot,
        joined: Box<dyn Fn(wheelhouse_base::routes::KnownHost) + Send + Sync>,
    ) -> Result<Self, TlsError> {
        let authority = registrar.authority.certificate_pem();
        let base = [transport::ALPN, routes::ALPN, join::ALPN];
        let without_api = tls::joining_server_config(certificate.clone(), &authority, &base)?;
        let with_api = tls::joining_server_config(certificate, &authority, &[base.as_slice(), &[H2]].concat())?;
        Ok(Self { transport, routes, registrar, serving, joined, with_api, without_api })
    }

    /// Accepts until stopped.
    pub fn serve(self: Arc<Self>, tasks: &Tasks, listener: TcpListener) {
        let (mut stop, inner) = (tasks.stop_signal(), tasks.clone());
        tasks.spawn("peers-port", async move {
            while let Some(accepted) = stop.or(listener.accept()).await {
                match accepted {
                    Ok((stream, _)) => {
                        let port = Arc::clone(&self);
                        inner.spawn("peer", async move {
                            if let Err(error) = port.connection(stream).await {
                                tracing::debug!(%error, "a peer's connection ended");
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "accepting a peer failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }

    async fn connection(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let client = stream.peer_addr()?;
        let system = self.serving.ready_cluster(&ClusterId::system());
        let config = if system.is_some() { &self.with_api } else { &self.without_api };
        let accept = TlsAcceptor::from(Arc::clone(config)).accept(stream);
        let stream: TlsStream<TcpStream> = tokio::time::timeout(HANDSHAKE, accept).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let (_, session) = stream.get_ref();
        let peer = Peer::of(session.peer_certificates());
        let protocol = session.alpn_protocol().unwrap_or_default().to_vec();
        match (protocol.as_slice(), peer) {
            (transport::ALPN, Peer::Host(host)) => self.transport.read_from(host, stream).await,
            (routes::ALPN, Peer::Host(_) | Peer::Endpoint) => self.routes.stream(stream).await,
            (join::ALPN, _) => self.registrar.serve(stream, self.routes.hosts(), |host| (self.joined)(host)).await,
            (H2, Peer::Host(_)) => {
                let Some(system) = system else { return Ok(()) };
                let certificates = session.peer_certificates().unwrap_or_default().iter().map(|c| c.as_ref().to_vec()).collect();
                serve_connection(system, stream, ConnectionInfo::new(client, certificates)).await;
                Ok(())
            }
            (protocol, peer) => {
                tracing::warn!(protocol = %String::from_utf8_lossy(protocol), ?peer, "a peer asked for what it may not have");
                Ok(())
            }
        }
    }
}
