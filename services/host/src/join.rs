//! How a machine becomes a host.
//!
//! ```text
//! new host                                         running host (peers port, protocol wheelhouse-join/1)
//!    looks at the certificates shown, finds the authority by its hash, connects anew trusting it alone
//!    { token, host, request (CSR) }  ────────────▶  checks the token; signs
//!    ◀────────────  { certificate, authority, operator key, endpoint, hosts } or { error }
//! ```
//!
//! The answer carries the operator's key and authority: any host may come to lead the system cluster, which needs both. It travels inside TLS that
//! only the authority's holder can end.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use wheelhouse_base::routes::{KnownHost, peers_server_name};
use wheelhouse_base::{Clock, SystemClock, Timestamp};
use wheelhouse_pki::{Authority, CertificateRequest, EcKey, SealingKey, Subject, certificates_to_pem, spki_hash};
use wheelhouse_runtime::tls;

use crate::directory::{Directory, DirectoryError, HostFile, HostKeys};
use crate::identity::{LIFE, host_leaf};
use crate::token;

pub const ALPN: &[u8] = b"wheelhouse-join/1";

/// Requests and answers are a few kilobytes.
const MAX_MESSAGE: u64 = 1024 * 1024;

/// One exchange, signing included.
const EXCHANGE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("{address} cannot be reached")]
    Connect {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("{address} shows no certificate authority with the hash {hash}")]
    Hash { address: String, hash: String },
    #[error("the host refused: {0}")]
    Refused(String),
    #[error("the host's answer is malformed: {0}")]
    Malformed(String),
    #[error("making a key for this host")]
    Key(#[from] wheelhouse_pki::KeyError),
    #[error("trusting the authority")]
    Tls(#[from] tls::TlsError),
    #[error("writing the data directory")]
    Directory(#[from] DirectoryError),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    token: String,
    host: KnownHost,
    /// PEM certificate request; only its key counts.
    request: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(default)]
    certificate: String,
    #[serde(default)]
    authority: String,
    #[serde(default)]
    authority_key: String,
    #[serde(default)]
    operator_key: String,
    #[serde(default)]
    base_domain: String,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    hosts: Vec<KnownHost>,
}

/// What a running host answers joins with.
pub struct Registrar {
    pub authority: Authority,
    pub operator_key: SealingKey,
    pub host: HostFile,
}

impl Registrar {
    /// One exchange with a stranger. `hosts` are those known now; `learn` is told the new one.
    pub async fn serve(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        hosts: Vec<KnownHost>,
        learn: impl FnOnce(KnownHost),
    ) -> io::Result<()> {
        let exchange = async {
            let request: Request = serde_json::from_slice(&read_message(&mut stream).await?)?;
            let answer = match self.decide(&request, hosts, SystemClock.now()) {
                Ok(answer) => {
                    tracing::info!(host = %request.host.name, peers = %request.host.peers, "a host joins");
                    learn(request.host);
                    answer
                }
                Err(error) => {
                    tracing::warn!(host = %request.host.name, %error, "a join was refused");
                    Answer { error, ..Answer::default() }
                }
            };
            write_message(&mut stream, &serde_json::to_vec(&answer)?).await
        };
        tokio::time::timeout(EXCHANGE, exchange).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    fn decide(&self, request: &Request, mut hosts: Vec<KnownHost>, now: Timestamp) -> Result<Answer, String> {
        token::check(&request.token, &self.operator_key, now).map_err(|e| e.to_string())?;
        if hosts.iter().any(|h| h.name == request.host.name && h.peers != request.host.peers) {
            return Err(format!("a host named {} exists already", request.host.name));
        }
        let asked = CertificateRequest::parse_pem(&request.request).map_err(|e| e.to_string())?;
        let leaf = host_leaf(&request.host.name, &self.host.base_domain, LIFE, now);
        let certificate = self.authority.issue(&leaf, &asked.public_key_der).map_err(|e| e.to_string())?;
        hosts.retain(|h| h.name != request.host.name);
        hosts.push(request.host.clone());
        Ok(Answer {
            certificate: certificates_to_pem([certificate.as_slice()]),
            authority: self.authority.certificate_pem(),
            authority_key: self.authority.key_pem(),
            operator_key: STANDARD.encode(self.operator_key.as_bytes()),
            base_domain: self.host.base_domain.clone(),
            endpoint: self.host.endpoint.clone(),
            hosts,
            error: String::new(),
        })
    }
}

/// Joins through a running host and fills the data directory. `host.endpoint` and `host.base_domain` are taken from the answer.
pub async fn join(directory: &Directory, mut host: HostFile, through: &str, token: &str, hash: &str) -> Result<(), JoinError> {
    let authority = find_authority(through, &host.base_domain, hash).await?;
    let key = EcKey::generate()?;
    let request = Request {
        token: token.to_owned(),
        host: host.known(),
        request: CertificateRequest::create(&Subject::new(host.name.to_string(), &[]), &[], &key)?,
    };
    let answer = exchange(through, &host.base_domain, &authority, &request).await?;
    if !answer.error.is_empty() {
        return Err(JoinError::Refused(answer.error));
    }
    let malformed = |e: &dyn std::fmt::Display| JoinError::Malformed(e.to_string());
    let operator = STANDARD.decode(&answer.operator_key).map_err(|e| malformed(&e))?;
    let keys = HostKeys {
        operator: SealingKey::from_bytes(&operator).map_err(|e| malformed(&e))?,
        host: SealingKey::generate().map_err(|e| malformed(&e))?,
    };
    let authority = Authority::from_pem(&answer.authority, &answer.authority_key).map_err(|e| malformed(&e))?;
    host.base_domain = answer.base_domain;
    host.endpoint = answer.endpoint;
    directory.create()?;
    directory.write_keys(&authority, &keys)?;
    directory.write_text("tls.key", &key.to_pem())?;
    directory.write_text("tls.crt", &format!("{}{}", answer.certificate, answer.authority))?;
    directory.write_hosts(&answer.hosts)?;
    // Last: its presence says that the directory is complete.
    directory.write_host(&host)?;
    Ok(())
}

/// The certificate, among those shown, whose key has the hash.
async fn find_authority(address: &str, base_domain: &str, hash: &str) -> Result<String, JoinError> {
    let shown = tls::shown_certificates(address, &peers_server_name(base_domain), &[ALPN]).await;
    let shown = shown.map_err(|source| JoinError::Connect { address: address.to_owned(), source })?;
    let found = shown.iter().find(|der| spki_hash(der).is_ok_and(|h| h == hash));
    let found = found.ok_or_else(|| JoinError::Hash { address: address.to_owned(), hash: hash.to_owned() })?;
    Ok(certificates_to_pem([found.as_slice()]))
}

async fn exchange(address: &str, base_domain: &str, authority: &str, request: &Request) -> Result<Answer, JoinError> {
    let config = tls::client_config(authority, None, &[ALPN])?;
    let name = ServerName::try_from(peers_server_name(base_domain)).map_err(|e| JoinError::Malformed(e.to_string()))?;
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        let mut stream = TlsConnector::from(config).connect(name, stream).await?;
        write_message(&mut stream, &serde_json::to_vec(request)?).await?;
        read_message(&mut stream).await
    };
    let failed = |source| JoinError::Connect { address: address.to_owned(), source };
    let answer = tokio::time::timeout(EXCHANGE, exchange).await.map_err(|_| failed(io::ErrorKind::TimedOut.into()))?.map_err(failed)?;
    serde_json::from_slice(&answer).map_err(|e| JoinError::Malformed(e.to_string()))
}

/// Four bytes of length and the bytes.
async fn write_message(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(message).await?;
    stream.flush().await
}

async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    if u64::from(length) > MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length as usize];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_pki::Validity;

    fn host_file(name: &str) -> HostFile {
        let listen = "127.0.0.1:0".parse().unwrap();
        HostFile {
            name: name.parse().unwrap(),
            zone: String::new(),
            base_domain: "w.internal".into(),
            endpoint: "https://e:6443".into(),
            clients_listen: listen,
            peers_listen: listen,
            metrics_listen: listen,
            addresses: wheelhouse_kinds::fleet::host::HostAddresses {
                clients: format!("{name}:1"),
                peers: format!("{name}:2"),
                metrics: String::new(),
            },
        }
    }

    /// A running host named `a`; returns its address and its authority's hash.
    async fn running(key: &SealingKey) -> (String, String) {
        let authority = Authority::create("op", Validity::lasting(SystemClock.now(), Duration::from_secs(3600))).unwrap();
        let (certificate, tls_key) = authority.issue_with_key(&host_leaf(&"a".parse().unwrap(), "w.internal", LIFE, SystemClock.now())).unwrap();
        let slot = tls::CertificateSlot::from_pem(&format!("{certificate}{}", authority.certificate_pem()), &tls_key).unwrap();
        let config = tls::joining_server_config(slot, &authority.certificate_pem(), &[ALPN]).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let hash = authority.hash();
        let registrar = Registrar { authority, operator_key: key.clone(), host: host_file("a") };
        tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(config);
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = registrar.serve(stream, vec![registrar.host.known()], |_| {}).await;
                }
            }
        });
        (address, hash)
    }

    #[tokio::test]
    async fn a_token_and_a_hash_make_a_host() {
        let key = SealingKey::generate().unwrap();
        let (address, hash) = running(&key).await;
        let temp = tempfile::tempdir().unwrap();
        let good = token::issue(&key, SystemClock.now().plus(Duration::from_secs(60)));

        let try_with = |directory: Directory, name: &'static str, token: String, hash: String| {
            let address = address.clone();
            async move { join(&directory, host_file(name), &address, &token, &hash).await }
        };
        let directory = Directory::new(temp.path().join("b"));
        try_with(directory.clone(), "b", good.clone(), hash.clone()).await.unwrap();
        assert_eq!(directory.hosts().unwrap().iter().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let keys = directory.keys().unwrap();
        assert_eq!((keys.operator.as_bytes(), directory.authority(&keys).unwrap().hash()), (key.as_bytes(), hash.clone()));
        assert!(!crate::identity::load(&directory).unwrap().leaf().is_empty());

        let refused = Directory::new(temp.path().join("c"));
        let foreign = token::issue(&SealingKey::generate().unwrap(), SystemClock.now().plus(Duration::from_secs(60)));
        assert!(matches!(try_with(refused.clone(), "c", foreign, hash.clone()).await, Err(JoinError::Refused(_))));
        assert!(matches!(try_with(refused.clone(), "c", good.clone(), "sha256:00".into()).await, Err(JoinError::Hash { .. })));
        let mut taken = host_file("a");
        taken.addresses.peers = "elsewhere:2".into();
        assert!(matches!(join(&refused, taken, &address, &good, &hash).await, Err(JoinError::Refused(_))), "the name is taken");
        assert!(!refused.path("host.json").exists(), "a refused join leaves nothing behind");
    }
}
