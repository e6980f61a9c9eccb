//! HTTPS: the listener, its certificate, and the end of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use wheelhouse_runtime::first_bytes;

/// A client that does not finish its TLS handshake or request head by then is cut off.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// HTTP/2 pings tell a dead client from one that waits.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long requests under way may take after the stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves `router` until `stop` resolves, then lets requests finish.
pub async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, router: Router, stop: impl Future<Output = ()>) {
    let acceptor = TlsAcceptor::from(tls);
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let (tcp, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                // Out of file handles, or a connection that died in the queue: the next one may do.
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::task::yield_now().await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        let (acceptor, router, watcher) = (acceptor.clone(), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(tcp)).await else { return };
            let Ok(stream) = first_bytes(stream, HANDSHAKE_TIMEOUT).await else { return };
            let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer));
                router.clone().oneshot(request.map(axum::body::Body::new))
            });
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
            builder.http2().timer(TokioTimer::new()).max_send_buf_size(64 * 1024).keep_alive_interval(KEEP_ALIVE);
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%peer, error = &*error, "a connection ended early");
            }
        });
    }
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}
