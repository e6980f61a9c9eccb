//! Reads a kubeconfig: its current context's server and credential.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;

use crate::{Client, HttpsTransport, Target, TlsOptions};

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
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
