//! Reads a kubeconfig: its current context's server and credential.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;

use crate::{Client, HttpsTransport, ResponseBody, Target, TlsOptions, Transport, TransportError};

/// How long a file is taken to be what it was: a renewed certificate has a third of its life to be noticed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the kubeconfig is not YAML of the expected shape")]
    Syntax(#[from] serde_norway::Error),
    #[error("the kubeconfig has no {what} named {name:?}")]
    Missing { what: &'static str, name: String },
    #[error("the kubeconfig's {0} is not usable")]
    Field(&'static str),
    #[error("the kubeconfig's TLS settings")]
    Tls(#[from] rustls::Error),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    current_context: String,
    #[serde(default)]
    clusters: Vec<Named>,
    #[serde(default)]
    users: Vec<Named>,
    #[serde(default)]
    contexts: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    cluster: Option<ClusterPart>,
    user: Option<UserPart>,
    context: Option<ContextPart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterPart {
    server: String,
    #[serde(default)]
    tls_server_name: String,
    #[serde(default)]
    certificate_authority_data: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct UserPart {
    client_certificate_data: String,
    client_key_data: String,
    token: String,
}

#[derive(Deserialize)]
struct ContextPart {
    cluster: String,
    user: String,
}

fn named<T>(list: Vec<Named>, what: &'static str, name: &str, part: fn(Named) -> Option<T>) -> Result<T, KubeconfigError> {
    let found = list.into_iter().find(|entry| entry.name == name).and_then(part);
    found.ok_or_else(|| KubeconfigError::Missing { what, name: name.to_owned() })
}

/// What a kubeconfig's current context says: where to connect, whom to trust, and who one is. Only embedded (`-data`) credentials are read.
pub struct Connection {
    pub target: Target,
    roots: Vec<CertificateDer<'static>>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    token: String,
}

impl Connection {
    pub fn parse(text: &str) -> Result<Self, KubeconfigError> {
        let file: File = serde_norway::from_str(text)?;
        let context = named(file.contexts, "context", &file.current_context, |entry| entry.context)?;
        let cluster = named(file.clusters, "cluster", &context.cluster, |entry| entry.cluster)?;
        let user = named(file.users, "user", &context.user, |entry| entry.user)?;
        let address = cluster.server.strip_prefix("https://").ok_or(KubeconfigError::Field("server"))?.trim_end_matches('/').to_owned();
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let server_name = if cluster.tls_server_name.is_empty() { host.to_owned() } else { cluster.tls_server_name };
        let address = if address.contains(':') { address } else { format!("{address}:443") };
        let roots = certificates(&cluster.certificate_authority_data).ok_or(KubeconfigError::Field("certificate-authority-data"))?;
        let identity = if user.client_certificate_data.is_empty() {
            None
        } else {
            let chain = certificates(&user.client_certificate_data).ok_or(KubeconfigError::Field("client-certificate-data"))?;
            let key = STANDARD.decode(&user.client_key_data).ok().and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).ok());
            Some((chain, key.ok_or(KubeconfigError::Field("client-key-data"))?))
        };
        Ok(Self { target: Target { address, server_name }, roots, identity, token: user.token })
    }

    /// The client certificate, DER, if it is by one that one shows oneself.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.identity.as_ref().and_then(|(chain, _)| chain.first()).map(|certificate| certificate.as_ref())
    }

    /// The TLS side of it, for protocols other than this crate's.
    pub fn tls(&self, alpn: &[&[u8]]) -> Result<rustls::ClientConfig, KubeconfigError> {
        Ok(self.options().config(alpn)?)
    }

    fn options(&self) -> TlsOptions {
        let identity = self.identity.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()));
        TlsOptions { roots: self.roots.clone(), identity }
    }

    pub fn client(&self) -> Result<Client, KubeconfigError> {
        let client = Client::new(Arc::new(HttpsTransport::new(self.target.clone(), self.options())?));
        if self.token.is_empty() { Ok(client) } else { client.bearer(&self.token).ok_or(KubeconfigError::Field("token")) }
    }
}

/// A kubeconfig that others renew: read again now and then, and used from the next request on when it has changed.
struct FileTransport {
    path: PathBuf,
    state: Mutex<FileState>,
}

struct FileState {
    looked: Instant,
    text: String,
    client: Client,
}

impl FileTransport {
    fn client(&self) -> Client {
        let mut state = self.state.lock();
        if state.looked.elapsed() >= LOOK_AGAIN {
            state.looked = Instant::now();
            // One that is being written does not parse, or not yet: the former one may do for some time.
            if let Ok(text) = std::fs::read_to_string(&self.path)
                && text != state.text
                && let Ok(fresh) = client(&text)
            {
                state.text = text;
                state.client = fresh;
            }
        }
        state.client.clone()
    }
}

#[async_trait]
impl Transport for FileTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
        self.client().forward(request).await
    }
}

/// A client for the kubeconfig in a file. It is read again when it changes, e.g. for a renewed certificate; the server should stay the same.
pub fn client_of_file(path: &Path) -> Result<Client, KubeconfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| KubeconfigError::Read { path: path.to_owned(), source })?;
    let state = FileState { looked: Instant::now(), client: client(&text)?, text };
    Ok(Client::new(Arc::new(FileTransport { path: path.to_owned(), state: Mutex::new(state) })))
}

/// A client for the kubeconfig in `text`.
pub fn client(text: &str) -> Result<Client, KubeconfigError> {
    Connection::parse(text)?.client()
}

fn certificates(data: &str) -> Option<Vec<CertificateDer<'static>>> {
    let pem = STANDARD.decode(data).ok()?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    certificates.ok().filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let text = "current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\n";
        assert_eq!(client(text).err().unwrap().to_string(), "the kubeconfig has no cluster named \"b\"");
        let text = format!("{text}clusters: [{{name: b, cluster: {{server: 'http://x'}}}}]\nusers: [{{name: c, user: {{}}}}]\n");
        assert_eq!(client(&text).err().unwrap().to_string(), "the kubeconfig's server is not usable");
    }
}
