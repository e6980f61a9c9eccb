//! Keys and certificates: making them, reading them, and deciding when they are due. No I/O; what is random here is key material.
//!
//! ```text
//! operator CA ─signs─▶ host certificates (server + client), endpoints' client certificates
//!     └ is the system cluster's CA too, so that a host's certificate also authenticates it at the system API
//! cluster bundle: cluster CA, front-proxy CA, service-account key, data key       one per cluster, stored wrapped
//!     └ cluster CA ─signs─▶ API serving certificate (issued by each host for itself), clients, nodes
//! ```
//!
//! Certificates are written by this crate's own small DER writer: a Kubernetes user's groups are repeated `O` attributes in one subject, which
//! the common builders cannot express, and a request's subject must be copied to the byte. They are read with `x509-parser`.
//! EC keys are P-256, service-account keys RSA-2048 (cloud identity providers verify RS256).

mod authority;
mod bundle;
mod certificate;
mod der;
mod keys;
mod kubeconfig;
mod names;
mod pem;
mod request;
mod seal;

pub use authority::{Authority, AuthorityError, Leaf, Usage};
pub use bundle::{BundleError, ClusterBundle, SERVING_LIFE};
pub use certificate::{CertificateError, CertificateInfo, Validity, spki_hash};
pub use keys::{EcKey, KeyError, RsaKey};
pub use kubeconfig::{Credential, Kubeconfig};
pub use names::{API_SERVICE_ADDRESS, server_names};
pub use pem::{certificates_from_pem, certificates_to_pem};
pub use request::{CertificateRequest, RequestError};
pub use seal::{SealError, SealingKey};

/// A subject as Kubernetes reads it: the common name is the user, each organisation a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub common_name: String,
    pub organizations: Vec<String>,
}

impl Subject {
    pub fn new(common_name: impl Into<String>, organizations: &[&str]) -> Self {
        Self { common_name: common_name.into(), organizations: organizations.iter().map(|o| (*o).to_owned()).collect() }
    }
}

/// A subject alternative name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AltName {
    /// May be a wildcard of one label, `*.example.org`.
    Dns(String),
    Ip(std::net::IpAddr),
}
