//! The way to the API server, whose certificate can be exchanged under running clients.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use wheelhouse_client::{Client, HttpsTransport, ResponseBody, Target, TlsOptions, Transport, TransportError};

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("the file holds no certificate and key")]
    Pem,
    #[error("the certificate cannot be used")]
    Tls(#[from] rustls::Error),
}

/// Connects as whoever the newest certificate says.
pub struct NodeTransport {
    target: Target,
    ca: String,
    current: ArcSwap<HttpsTransport>,
}

fn https(target: &Target, ca: &str, identity: Option<&str>) -> Result<HttpsTransport, IdentityError> {
    let certificates = |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(|_| IdentityError::Pem);
    let identity = match identity {
        None => None,
        Some(pem) => {
            let chain = certificates(pem)?;
            let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| IdentityError::Pem)?;
            Some((chain, key))
        }
    };
    Ok(HttpsTransport::new(target.clone(), TlsOptions { roots: certificates(ca)?, identity })?)
}

impl NodeTransport {
    /// `identity` is PEM: certificate and key.
    pub fn new(target: Target, ca: String, identity: &str) -> Result<Arc<Self>, IdentityError> {
        let current = ArcSwap::from_pointee(https(&target, &ca, Some(identity))?);
        Ok(Arc::new(Self { target, ca, current }))
    }

    /// New requests show the new certificate; watches end with their connection and come back by themselves.
    pub fn replace(&self, identity: &str) -> Result<(), IdentityError> {
        self.current.store(Arc::new(https(&self.target, &self.ca, Some(identity))?));
        Ok(())
    }
}

#[async_trait]
impl Transport for NodeTransport {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<ResponseBody>, TransportError> {
        self.current.load_full().send(request).await
    }
}

/// A client that shows no certificate, for the token.
pub fn anonymous(target: Target, ca: &str) -> Result<Client, IdentityError> {
    Ok(Client::new(Arc::new(https(&target, ca, None)?)).user_agent("wheelhouse-node"))
}
