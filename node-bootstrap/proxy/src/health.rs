//! What load balancers ask: one port per service with the external policy `Local` ("has this node an endpoint?"), and one for the proxy as a whole.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use wheelhouse_runtime::Tasks;

use crate::facts::ServiceName;

/// A request line and a few headers from a load balancer; who takes longer is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for answers under way when a port closes.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// What one port answers: status and document.
type Answer = (StatusCode, Value);

/// The listeners, one per port.
#[derive(Default)]
pub struct HealthServers {
    open: BTreeMap<u16, (watch::Sender<Answer>, Tasks)>,
}

impl HealthServers {
    /// Opens, updates and closes ports until they are `wanted`. A port that cannot be opened is logged and tried again at the next change.
    pub async fn update(&mut self, wanted: &BTreeMap<u16, (ServiceName, usize)>) {
        let gone: Vec<u16> = self.open.keys().filter(|port| !wanted.contains_key(port)).copied().collect();
        for port in gone {
            if let Some((_, tasks)) = self.open.remove(&port) {
                tasks.stop(STOP_GRACE).await;
            }
        }
        for (port, (service, endpoints)) in wanted {
            let answer = service_answer(service, *endpoints);
            if let Some((sender, _)) = self.open.get(port) {
                sender.send_replace(answer);
                continue;
            }
            match TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], *port))).await {
                Ok(listener) => {
                    let (sender, receiver) = watch::channel(answer);
                    let tasks = Tasks::new("kube-proxy");
                    serve(&tasks, listener, receiver);
                    self.open.insert(*port, (sender, tasks));
                }
                Err(error) => tracing::warn!(port, service = service.name, %error, "cannot open a health check port"),
            }
        }
    }
}

/// The document that upstream's proxy answers with.
fn service_answer(service: &ServiceName, endpoints: usize) -> Answer {
    let document = json!({
        "service": {"namespace": service.namespace, "name": service.name},
        "localEndpoints": endpoints,
        "serviceProxyHealthy": true,
    });
    (if endpoints > 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, document)
}

/// Answers every request on `listener` with the current answer.
pub fn serve(tasks: &Tasks, listener: TcpListener, answer: watch::Receiver<Answer>) {
    let owner = tasks.clone();
    let mut stop = tasks.stop_signal();
    tasks.spawn("health", async move {
        loop {
            let Some(accepted) = stop.or(listener.accept()).await else { return };
            // Out of descriptors, or a peer that hung up at once: the next accept tells.
            let Ok((stream, _)) = accepted else { continue };
            let answer = answer.clone();
            let service = service_fn(move |_: Request<hyper::body::Incoming>| {
                let (status, document) = answer.borrow().clone();
                async move { Ok::<_, Infallible>(response(status, &document)) }
            });
            owner.spawn("health connection", async move {
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).keep_alive(false);
                // A connection's failure is its peer's matter.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
}

fn response(status: StatusCode, document: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(document.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    response
}

/// The proxy's own answer, before its first transaction and after.
pub fn proxy_answer(is_synced: bool) -> Answer {
    (if is_synced { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, json!({"nodeEligible": true, "synced": is_synced}))
}
