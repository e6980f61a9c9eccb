//! The tenant API, as the commands call it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use wheelhouse_client::{Client, ClientError, HttpsTransport, Target, TlsOptions, TransportError};

use crate::args::Connection;
use crate::error::CliError;
use crate::profile::{self, Profile};

/// A single wait on the server's side, below its own limit.
const WAIT_SLICE: Duration = Duration::from_secs(30);

pub struct Api {
    client: Client,
    address: String,
}

impl Api {
    /// With the API key of the profile; without one the first refusal says how to get it.
    pub fn connect(connection: &Connection) -> Result<Self, CliError> {
        Self::with_profile(&profile::resolve(connection)?)
    }

    pub fn with_profile(profile: &Profile) -> Result<Self, CliError> {
        let usage = |detail: String| CliError::Usage(detail);
        let address = profile.endpoint.strip_prefix("https://").map(|rest| rest.trim_end_matches('/').to_owned());
        let address = address.ok_or_else(|| usage(format!("the endpoint {:?} must begin with https://", profile.endpoint)))?;
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).trim_matches(['[', ']']).to_owned();
        let address = if address.contains(':') { address } else { format!("{address}:443") };
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(profile.ca.as_bytes()).collect();
        let roots = roots.ok().filter(|roots| !roots.is_empty());
        let roots = roots.ok_or_else(|| usage("no CA certificate of the tenant API is known: give --ca FILE".into()))?;
        let transport = HttpsTransport::new(Target { address: address.clone(), server_name: host }, TlsOptions { roots, identity: None });
        let transport = transport.map_err(|error| usage(format!("the endpoint or its CA is not usable: {error}")))?;
        let mut client = Client::new(Arc::new(transport)).user_agent("wheelhouse-cli");
        if !profile.api_key.is_empty() {
            client = client.bearer(&profile.api_key).ok_or_else(|| usage("the API key holds characters that no header can carry".into()))?;
        }
        Ok(Self { client, address })
    }

    pub async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.call(Method::POST, path, Some(body)).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.call(Method::PATCH, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Result<(), CliError> {
        self.call(Method::DELETE, path, None).await.map(drop)
    }

    /// Every item of a paged list.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, CliError> {
        let mut items = Vec::new();
        let mut token = String::new();
        loop {
            let page = self.get(&format!("{path}?limit=500&continue={token}")).await?;
            items.extend(page["items"].as_array().into_iter().flatten().cloned());
            match page["continue"].as_str() {
                Some(next) if !next.is_empty() => token = next.to_owned(),
                _ => return Ok(items),
            }
        }
    }

    /// The text of a page that is not JSON, e.g. `/readyz`.
    pub async fn text(&self, path: &str) -> Result<String, CliError> {
        let bytes = self.bytes(Method::GET, path, None).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CliError> {
        let bytes = self.bytes(method, path, body).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|error| CliError::Failed(format!("the answer is not JSON: {error}")))
    }

    async fn bytes(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes, CliError> {
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let sent = self.client.send(method, path, body.map(|_| "application/json"), bytes).await;
        let response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|error| CliError::Failed(format!("the answer broke off: {error}")))?.to_bytes();
        if status.is_success() {
            return Ok(bytes);
        }
        let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let detail = match problem["detail"].as_str() {
            Some(detail) => detail.to_owned(),
            None => format!("{} answered HTTP {status}; is that the tenant API?", self.address),
        };
        Err(CliError::Refused { code: status.as_u16(), detail })
    }

    fn unreachable(&self, error: &ClientError) -> CliError {
        let reason = match error {
            ClientError::Transport(TransportError::Connect { source, .. }) => source.to_string(),
            other => other.to_string(),
        };
        CliError::Unreachable { address: self.address.clone(), reason }
    }

    /// Follows a cluster until `done`; `None` stands for a cluster that is gone. `progress` is told of every state on the way.
    pub async fn follow(
        &self,
        name: &str,
        limit: Duration,
        what: &str,
        mut progress: impl FnMut(&Value),
        done: impl Fn(Option<&Value>) -> bool,
    ) -> Result<Option<Value>, CliError> {
        let started = Instant::now();
        let mut after = String::new();
        loop {
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(CliError::TimedOut { what: what.to_owned(), seconds: limit.as_secs() });
            }
            let slice = left.min(WAIT_SLICE).as_secs().max(1);
            let cluster = match self.get(&format!("/v1/clusters/{name}?after={after}&timeoutSeconds={slice}")).await {
                Ok(cluster) => Some(cluster),
                Err(CliError::Refused { code: 404, .. }) => None,
                Err(error) => return Err(error),
            };
            if done(cluster.as_ref()) {
                return Ok(cluster);
            }
            let Some(cluster) = cluster else {
                return Err(CliError::Refused { code: 404, detail: format!("there is no cluster {name:?}") });
            };
            progress(&cluster);
            after = cluster["resourceVersion"].as_str().unwrap_or_default().to_owned();
        }
    }
}
