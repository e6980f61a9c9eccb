//! rustls set-up: one provider, certificates that change while connections run, and the two kinds of client check.
//!
//! - A cluster's API port asks for a client certificate and accepts any whose key the client holds: who that is, and whether the cluster's CA
//!   signed it, is authentication's to say, which answers 401. Tickets are each cluster's own, so a session cannot move between clusters.
//! - The peers port demands a certificate of the operator's CA and ends the handshake without one.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate is not PEM")]
    Certificate,
    #[error("the private key is not PEM")]
    Key,
    #[error("the certificate authority is not PEM")]
    Authority,
    #[error("the certificate or key cannot be used")]
    Unusable(#[source] rustls::Error),
    #[error("the client check cannot be set up")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// The crypto of the whole process.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: std::sync::OnceLock<Arc<CryptoProvider>> = std::sync::OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())))
}

/// A certificate and key that can be replaced while servers and clients use it; running connections keep theirs.
#[derive(Clone)]
pub struct CertificateSlot(Arc<ArcSwap<CertifiedKey>>);

impl CertificateSlot {
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(certified(certificate, key)?))))
    }

    /// From the next handshake on.
    pub fn replace(&self, certificate: &str, key: &str) -> Result<(), TlsError> {
        self.0.store(Arc::new(certified(certificate, key)?));
        Ok(())
    }

    /// The leaf certificate in use, DER.
    pub fn leaf(&self) -> Vec<u8> {
        self.0.load().cert.first().map(|c| c.as_ref().to_vec()).unwrap_or_default()
    }
}

impl fmt::Debug for CertificateSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateSlot")
    }
}

impl ResolvesServerCert for CertificateSlot {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl ResolvesClientCert for CertificateSlot {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn certified(certificate: &str, key: &str) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate).ok_or(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| TlsError::Key)?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(TlsError::Unusable)
}

/// Every certificate of a PEM text; `None` if there is none.
pub fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()?;
    (!chain.is_empty()).then_some(chain)
}

/// Trust in the certificates of a PEM text and in nothing else.
pub fn roots(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem).ok_or(TlsError::Authority)? {
        store.add(certificate).map_err(TlsError::Unusable)?;
    }
    Ok(store)
}

/// A cluster's API port.
pub fn api_server_config(certificate: CertificateSlot, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
    server_config(Arc::new(AnyClient(provider())), certificate, alpn)
}

/// The peers port: clients must hold a certificate of the given authority.
pub fn peer_server_config(certificate: CertificateSlot, authority: &str, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)?), provider()).build().map_err(TlsError::Verifier)?;
    server_config(verifier, certificate, alpn)
}

/// The peers port as hosts use it that have not joined yet: a certificate is checked if there is one, and what a client without one may do
/// is decided by its protocol.
pub fn joining_server_config(certificate: CertificateSlot, authority: &str, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)?), provider()).allow_unauthenticated();
    server_config(builder.build().map_err(TlsError::Verifier)?, certificate, alpn)
}

fn server_config(verifier: Arc<dyn ClientCertVerifier>, certificate: CertificateSlot, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(TlsError::Unusable)?;
    let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Unusable)?;
    // Tickets carry the session; a cache beside them would cost memory for every cluster.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// A client that trusts one authority and shows a certificate.
pub fn client_config(authority: &str, identity: Option<CertificateSlot>, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(authority)?), provider()).build().map_err(TlsError::Verifier)?;
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(TlsError::Unusable)?;
    let builder = builder.with_webpki_verifier(verifier);
    let mut config = match identity {
        Some(identity) => builder.with_client_cert_resolver(Arc::new(identity)),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Accepts every client certificate whose key the client proves to hold.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Naming no authority lets every client send what it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(&self, _: &CertificateDer<'_>, _: &[CertificateDer<'_>], _: UnixTime) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificates that a server shows, leaf first, without checking any: what a machine looks at that knows an authority only by its hash.
/// Nothing may be sent over such a connection; connect anew with the authority that was found.
pub async fn shown_certificates(address: &str, server_name: &str, alpn: &[&[u8]]) -> std::io::Result<Vec<Vec<u8>>> {
    let name = rustls::pki_types::ServerName::try_from(server_name.to_owned()).map_err(std::io::Error::other)?;
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(std::io::Error::other)?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider()))).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    let stream = tokio::net::TcpStream::connect(address).await?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(chain.iter().map(|c| c.as_ref().to_vec()).collect())
}

/// Accepts every server; for [`shown_certificates`] alone.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
