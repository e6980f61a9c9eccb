//! What a connection says about who is at its other end.

use std::net::SocketAddr;

use parking_lot::Mutex;
use wheelhouse_access::User;
use wheelhouse_access::authn::x509::{self, CertificateError, Verified};
use wheelhouse_base::Timestamp;

use super::credentials::Credentials;

/// One client connection. Its certificate is verified once and remembered as long as the answer holds.
pub struct ConnectionInfo {
    /// The client's address, as the endpoint's PROXY header or the socket gave it.
    pub peer: SocketAddr,
    /// The span at the endpoint that the connection belongs to, as a `traceparent`.
    pub(crate) traceparent: Option<String>,
    /// DER, leaf first; empty if the client presented none. TLS has proved possession of the leaf's key and nothing else.
    certificates: Vec<Vec<u8>>,
    verified: Mutex<Option<Remembered>>,
}

struct Remembered {
    /// Of the credentials that it was verified with.
    generation: u64,
    verified: Verified,
}

impl ConnectionInfo {
    pub fn new(peer: SocketAddr, certificates: Vec<Vec<u8>>) -> Self {
        Self { peer, traceparent: None, certificates, verified: Mutex::new(None) }
    }

    /// Requests of the connection are part of this trace unless they name one themselves.
    #[must_use]
    pub fn traced(mut self, traceparent: Option<String>) -> Self {
        self.traceparent = traceparent;
        self
    }

    /// The user of the client's certificate; `None` without one.
    pub(super) fn user(&self, credentials: &Credentials, now: Timestamp) -> Option<Result<User, CertificateError>> {
        if self.certificates.is_empty() {
            return None;
        }
        let mut remembered = self.verified.lock();
        if let Some(known) = &*remembered
            && known.generation == credentials.generation
            && now <= known.verified.until
        {
            return Some(Ok(known.verified.user.clone()));
        }
        Some(x509::authenticate(&self.certificates, &credentials.client_cas, now).map(|verified| {
            let user = verified.user.clone();
            *remembered = Some(Remembered { generation: credentials.generation, verified });
            user
        }))
    }
}
