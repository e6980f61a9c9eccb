//! The API client: one way of talking to an API server, whether it stands in the same process or behind TLS.
//!
//! ```text
//! Client (verbs, errors, identity) -> Transport: in-process call | HTTPS over one HTTP/2 connection
//! Executor (plans -> requests)     -> Client
//! ```
//!
//! An in-process transport skips TLS and sockets and nothing else: the request passes authorization, admission and audit under the identity in its
//! extensions ([`Identity`]), fenced to a leadership where it carries a `wheelhouse_mvcc::Fence`.

mod body;
mod client;
mod error;
pub mod events;
pub mod executor;
mod https;
pub mod informer;
pub mod kubeconfig;
pub mod queue;
pub mod resources;
mod watch;

pub use body::{ResponseBody, empty_body, full_body};
pub use client::{Api, Client, ListOptions, PatchKind};
pub use error::{ClientError, TransportError};
pub use https::{HttpsTransport, Target, TlsOptions};
pub use watch::{WatchEvent, Watcher};

use async_trait::async_trait;
use bytes::Bytes;

/// Carries one request to an API server.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<ResponseBody>, TransportError>;
}

/// Who an in-process request is made as: a request extension that only code in this process can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
}

impl Identity {
    /// A controller's service account in `kube-system`.
    pub fn service_account(name: &str) -> Self {
        Self {
            user: format!("system:serviceaccount:kube-system:{name}"),
            groups: ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"].map(String::from).to_vec(),
        }
    }

    /// A component with a name of its own, e.g. `system:kube-scheduler`.
    pub fn component(name: &str) -> Self {
        Self { user: name.to_owned(), groups: vec!["system:authenticated".to_owned()] }
    }

    /// What the server itself acts as when it writes its own bootstrap objects; allowed everything.
    pub fn loopback() -> Self {
        Self { user: "system:apiserver".to_owned(), groups: ["system:authenticated", "system:masters"].map(String::from).to_vec() }
    }
}
