//! Connections: HTTP/1.1 and HTTP/2 on any byte stream, and calls from inside the process.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use wheelhouse_client::{ResponseBody, Transport, TransportError};
use wheelhouse_runtime::{Gather, first_bytes};

use crate::security::ConnectionInfo;
use crate::server::ApiServer;

/// Bytes that one HTTP/2 stream buffers for a client that does not read; hyper's default is ten times as much.
const STREAM_SEND_BUFFER: usize = 48 * 1024;
/// Watches of one client share a connection, so there must be room for a few hundred.
const MAX_STREAMS: u32 = 500;
/// Bearer tokens and impersonation make long headers.
const MAX_HEADER_LIST: u32 = 64 * 1024;
/// A dead peer is noticed after the interval and the timeout together.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// A client that opens a connection must say something in this time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a request comes from.
#[derive(Clone)]
pub enum Origin {
    Network(Arc<ConnectionInfo>),
    /// This process; the request's extensions name its user.
    InProcess,
}

impl Origin {
    pub fn is_in_process(&self) -> bool {
        matches!(self, Origin::InProcess)
    }

    /// The endpoint's span, where one is traced.
    pub(crate) fn traceparent(&self) -> Option<&str> {
        match self {
            Origin::Network(connection) => connection.traceparent.as_deref(),
            Origin::InProcess => None,
        }
    }

    /// The client's address; `None` for calls from inside the process.
    pub fn peer(&self) -> Option<std::net::SocketAddr> {
        match self {
            Origin::Network(connection) => Some(connection.peer),
            Origin::InProcess => None,
        }
    }
}

/// Whether this replica could not do what another may: its quorum or the leader was out of reach. The client keeps one connection for everything, so
/// it would go on asking here; a connection that is closed after the answer takes it to a replica that endpoints hold ready.
fn is_unable(status: StatusCode) -> bool {
    matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// Serves one connection until it ends, or until the server drains or was unable to serve it; requests in flight are still answered.
pub async fn serve_connection<I>(server: Arc<ApiServer>, io: I, info: ConnectionInfo)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(io) = first_bytes(io, HEADER_TIMEOUT).await else {
        tracing::debug!("a client connected and said nothing");
        return;
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_send_buf_size(STREAM_SEND_BUFFER)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let info = Arc::new(info);
    let mut draining = server.draining();
    let elsewhere = Arc::new(Notify::new());
    let unable = Arc::clone(&elsewhere);
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (server, origin, unable) = (Arc::clone(&server), Origin::Network(Arc::clone(&info)), Arc::clone(&unable));
        async move {
            let response = server.handle(origin, request).await;
            if is_unable(response.status()) {
                unable.notify_one();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(Gather::new(io)), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = draining.wait_for(|draining| *draining) => None,
        () = elsewhere.notified() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error, "a client's connection ended early");
    }
}

/// Calls a server in the same process: the same path as over the network, without sockets and TLS.
#[derive(Clone)]
pub struct InProcess(pub Arc<ApiServer>);

#[async_trait]
impl Transport for InProcess {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
        let response = self.0.handle(Origin::InProcess, request.map(Full::new)).await;
        Ok(response.map(|body| body.map_err(|never| match never {}).boxed_unsync()))
    }
}
