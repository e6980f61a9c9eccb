//! This host's way to the system API: whichever host serves it.
//!
//! Every host answers `h2` on its peers port if it runs a ready replica of the system cluster and refuses the protocol otherwise, so finding one
//! is trying them in turn, the last good one first. A host's certificate is of the operator's authority, which is the system cluster's too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use wheelhouse_base::routes::peers_server_name;
use wheelhouse_client::{HttpsTransport, ResponseBody, Target, TlsOptions, Transport, TransportError};
use wheelhouse_runtime::tls::certificates;

use crate::directory::{Directory, DirectoryError};
use crate::routes::Routes;

/// An answer begins within this, a watch's too. It is longer than an election and a slow disk together.
const ANSWER_TIME: Duration = Duration::from_secs(15);

pub struct SystemTransport {
    directory: Directory,
    routes: Routes,
    base_domain: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By peers address.
    transports: HashMap<String, Arc<HttpsTransport>>,
    /// Where the next request begins: the last host that answered, or the one after the last that did not.
    begin: usize,
    /// The certificate that the transports use; a renewed one makes new transports.
    certificate: String,
}

impl SystemTransport {
    pub fn new(directory: Directory, routes: Routes, base_domain: String) -> Arc<Self> {
        Arc::new(Self { directory, routes, base_domain, state: Mutex::default() })
    }

    /// Addresses in the order in which to try them.
    fn candidates(&self) -> Vec<String> {
        let mut addresses: Vec<String> = self.routes.hosts().into_iter().map(|h| h.peers).collect();
        if !addresses.is_empty() {
            let begin = self.state.lock().begin % addresses.len();
            addresses.rotate_left(begin);
        }
        addresses
    }

    fn transport(&self, address: &str) -> Result<Arc<HttpsTransport>, TransportError> {
        let unusable = |reason: String| TransportError::Connect { address: address.to_owned(), source: std::io::Error::other(reason) };
        let read = |name: &str| self.directory.text(name).map_err(|e: DirectoryError| unusable(e.to_string()));
        let certificate = read("tls.crt")?;
        let mut state = self.state.lock();
        if state.certificate != certificate {
            state.transports.clear();
            state.certificate = certificate;
        }
        if let Some(transport) = state.transports.get(address) {
            return Ok(Arc::clone(transport));
        }
        let key =
            rustls::pki_types::pem::PemObject::from_pem_slice(read("tls.key")?.as_bytes()).map_err(|_| unusable("tls.key is malformed".into()))?;
        let chain = certificates(&state.certificate).ok_or_else(|| unusable("tls.crt is malformed".into()))?;
        let roots = certificates(&read("ca.crt")?).ok_or_else(|| unusable("ca.crt is malformed".into()))?;
        let target = Target { address: address.to_owned(), server_name: peers_server_name(&self.base_domain) };
        let transport = HttpsTransport::new(target, TlsOptions { roots, identity: Some((chain, key)) }).map_err(|e| unusable(e.to_string()))?;
        let transport = Arc::new(transport);
        state.transports.insert(address.to_owned(), Arc::clone(&transport));
        Ok(transport)
    }
}

#[async_trait]
impl Transport for SystemTransport {
    /// A request that was certainly not done, or that only reads, goes to the next host; of any other the outcome is the caller's to judge.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
        let mut last = Err(TransportError::Connect { address: "system API".into(), source: std::io::Error::other("no host is known") });
        for address in self.candidates() {
            let sent = match self.transport(&address) {
                Ok(transport) => match tokio::time::timeout(ANSWER_TIME, transport.send(clone(&request))).await {
                    Ok(sent) => sent,
                    Err(_) => Err(TransportError::Timeout(ANSWER_TIME)),
                },
                Err(error) => Err(error),
            };
            let reads = request.method() == Method::GET;
            let again = match &sent {
                // This replica has no contact with its group, others may.
                Ok(response) => reads && matches!(response.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT),
                Err(error) => reads || matches!(error, TransportError::Connect { .. }),
            };
            let good = sent.as_ref().is_ok_and(|response| !response.status().is_server_error());
            last = sent;
            if good {
                break;
            }
            self.state.lock().begin += 1;
            if !again {
                break;
            }
        }
        last
    }
}

fn clone(request: &Request<Bytes>) -> Request<Bytes> {
    let mut copy = Request::new(request.body().clone());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    copy
}
