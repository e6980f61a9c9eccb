//! HTTPS to one server: a single HTTP/2 connection, opened when needed and replaced when it breaks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{ResponseBody, Transport, TransportError};

/// How long connecting, TLS included, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// HTTP/2 pings tell a dead peer from a quiet watch.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Where to connect and whom to expect there.
#[derive(Clone, Debug)]
pub struct Target {
    /// `host:port` to dial.
    pub address: String,
    /// The name in the server's certificate; also sent as SNI.
    pub server_name: String,
}

/// Trust and identity.
pub struct TlsOptions {
    /// Certificates of the authorities to trust; nothing else is trusted.
    pub roots: Vec<CertificateDer<'static>>,
    /// Client certificate chain and key.
    pub identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

impl TlsOptions {
    /// The rustls configuration that offers `alpn`.
    pub fn config(self, alpn: &[&[u8]]) -> Result<rustls::ClientConfig, rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        for root in self.roots {
            roots.add(root)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?.with_root_certificates(roots);
        let mut config = match self.identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }
}

/// A [`Transport`] over TLS. Shared by all clients of one server.
pub struct HttpsTransport {
    target: Target,
    name: ServerName<'static>,
    connector: TlsConnector,
    connection: Mutex<Option<http2::SendRequest<Full<Bytes>>>>,
}

enum Sender {
    H2(http2::SendRequest<Full<Bytes>>),
    H1(http1::SendRequest<Full<Bytes>>),
}

impl HttpsTransport {
    /// Fails on a certificate, key or server name that cannot be used.
    pub fn new(target: Target, tls: TlsOptions) -> Result<Self, rustls::Error> {
        let config = tls.config(&[b"h2", b"http/1.1"])?;
        let name = ServerName::try_from(target.server_name.clone()).map_err(|e| rustls::Error::General(e.to_string()))?;
        Ok(Self { target, name, connector: TlsConnector::from(Arc::new(config)), connection: Mutex::new(None) })
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>, TransportError> {
        let failed = |source| TransportError::Connect { address: self.target.address.clone(), source };
        let connecting = async {
            let tcp = TcpStream::connect(&self.target.address).await?;
            tcp.set_nodelay(true)?;
            self.connector.connect(self.name.clone(), tcp).await
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(failed),
            Err(_) => Err(failed(std::io::Error::from(std::io::ErrorKind::TimedOut))),
        }
    }

    fn broken(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TransportError {
        TransportError::Broken { address: self.target.address.clone(), source: source.into() }
    }

    /// The live HTTP/2 connection, or a fresh one of whatever the server speaks. Connections to HTTP/1.1 servers are not kept.
    async fn sender(&self) -> Result<Sender, TransportError> {
        let mut held = self.connection.lock().await;
        if let Some(sender) = held.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(Sender::H2(sender.clone()));
        }
        let stream = self.connect().await?;
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        if is_h2 {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
                .keep_alive_while_idle(true)
                .handshake(io)
                .await
                .map_err(|e| self.broken(e))?;
            tokio::spawn(async move {
                // Its error reaches whoever waits for an answer on it.
                let _ = connection.await;
            });
            *held = Some(sender.clone());
            Ok(Sender::H2(sender))
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(|e| self.broken(e))?;
            tokio::spawn(async move {
                let _ = connection.with_upgrades().await;
            });
            Ok(Sender::H1(sender))
        }
    }
}

#[async_trait]
impl Transport for HttpsTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
        let (mut parts, body) = request.into_parts();
        let response = match self.sender().await? {
            Sender::H2(mut sender) => {
                let path = parts.uri.path_and_query().cloned();
                let mut uri = Uri::builder().scheme("https").authority(self.target.server_name.as_str());
                if let Some(path) = path {
                    uri = uri.path_and_query(path);
                }
                parts.uri = uri.build().map_err(|e| self.broken(e))?;
                sender.ready().await.map_err(|e| self.broken(e))?;
                sender.send_request(Request::from_parts(parts, Full::new(body))).await
            }
            Sender::H1(mut sender) => {
                let host = http::HeaderValue::from_str(&self.target.server_name).map_err(|e| self.broken(e))?;
                parts.headers.insert(http::header::HOST, host);
                sender.send_request(Request::from_parts(parts, Full::new(body))).await
            }
        };
        Ok(response.map_err(|e| self.broken(e))?.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}
