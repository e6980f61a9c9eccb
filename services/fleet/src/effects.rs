//! The shells of the fleet's two effects: making a cluster's keys, and proving that a cluster answers its tenant.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use serde_json::{Value, json};
use wheelhouse_base::{Clock, ClusterId};
use wheelhouse_client::{Client, HttpsTransport, PatchKind, Target, TlsOptions};
use wheelhouse_controllers::effects::EffectHandler;
use wheelhouse_kinds::fleet::SYSTEM_NAMESPACE;
use wheelhouse_kinds::plan::{Effect, EffectKind};
use wheelhouse_pki::{ClusterBundle, SealingKey, Subject};

use crate::key_pool::KeyPool;
use crate::names::{BUNDLE_KEY, CLUSTER_ADMINS_GROUP, OPERATORS_GROUP, bundle_name};

/// A proof's credential lives just long enough for it, clocks' differences included.
const PROOF_LIFE: Duration = Duration::from_secs(600);

/// A proof that takes longer has failed; a cluster that answers does so in milliseconds.
const PROOF_TIME: Duration = Duration::from_secs(10);

/// The object that proofs write, in `kube-system`.
const PROOF_OBJECT: &str = "wheelhouse-proof";

/// What the fleet's effects need.
pub struct FleetEffects {
    /// Reads bundles.
    pub system: Client,
    pub operator_key: SealingKey,
    pub keys: Arc<KeyPool>,
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl EffectHandler for FleetEffects {
    async fn run(&self, effect: &Effect) -> Result<Value, String> {
        match effect.kind {
            EffectKind::IssueClusterKeys => self.issue(&effect.input).await,
            EffectKind::ProveReady => tokio::time::timeout(PROOF_TIME, self.prove(&effect.input))
                .await
                .unwrap_or_else(|_| Err("the endpoint did not answer in time".to_owned())),
            kind => Err(format!("the fleet does not execute {kind:?}")),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IssueInput {
    #[serde(rename = "clusterID")]
    cluster: ClusterId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProveInput {
    #[serde(rename = "clusterID")]
    cluster: ClusterId,
    server_name: String,
    /// `https://host:port`
    endpoint: String,
}

impl FleetEffects {
    async fn issue(&self, input: &Value) -> Result<Value, String> {
        let input = IssueInput::deserialize(input).map_err(text)?;
        let rsa = self.keys.take().await.map_err(text)?;
        let bundle = ClusterBundle::create(input.cluster, &rsa, self.clock.now()).map_err(text)?;
        let wrapped = bundle.wrap(&self.operator_key).map_err(text)?;
        Ok(Value::from(STANDARD.encode(wrapped)))
    }

    /// Writes a fresh value through the endpoint under a tenant's credential and reads it back.
    async fn prove(&self, input: &Value) -> Result<Value, String> {
        let input = ProveInput::deserialize(input).map_err(text)?;
        let bundle = self.bundle(&input.cluster).await?;
        let group = if input.cluster.is_system() { OPERATORS_GROUP } else { CLUSTER_ADMINS_GROUP };
        let subject = Subject::new("wheelhouse:proof", &[group]);
        let (certificate, key) = bundle.issue_client(subject, PROOF_LIFE, self.clock.now()).map_err(text)?;
        let address = input.endpoint.strip_prefix("https://").unwrap_or(&input.endpoint).to_owned();
        let target = Target { address, server_name: input.server_name };
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>().map_err(text)?;
        let identity = (chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(text)?);
        let roots = CertificateDer::pem_slice_iter(bundle.ca_certificate.as_bytes()).collect::<Result<_, _>>().map_err(text)?;
        let transport = HttpsTransport::new(target, TlsOptions { roots, identity: Some(identity) }).map_err(text)?;
        let client = Client::new(Arc::new(transport)).user_agent("wheelhouse-proof");

        let configmaps = client.api("", "v1", "configmaps", "kube-system");
        let stamp = self.clock.now().as_micros().to_string();
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PROOF_OBJECT, "namespace": "kube-system"}, "data": {"written": stamp}});
        let written: Result<Value, _> = configmaps.patch(PROOF_OBJECT, "", PatchKind::Merge, "", &body).await;
        if let Err(error) = written {
            if !error.is_not_found() {
                return Err(format!("writing failed: {}", chain_text(&error)));
            }
            configmaps.create::<Value>(&body).await.map_err(|e| format!("writing failed: {}", chain_text(&e)))?;
        }
        let read: Value = configmaps.get(PROOF_OBJECT).await.map_err(|e| format!("reading failed: {}", chain_text(&e)))?;
        if read["data"]["written"] != stamp.as_str() {
            return Err("what was read is not what was written".to_owned());
        }
        Ok(Value::from(stamp))
    }

    async fn bundle(&self, cluster: &ClusterId) -> Result<ClusterBundle, String> {
        let secret: Value = self.system.api("", "v1", "secrets", SYSTEM_NAMESPACE).get(&bundle_name(cluster)).await.map_err(|e| chain_text(&e))?;
        unwrap_bundle(&secret, cluster, &self.operator_key)
    }
}

/// The bundle in a Secret that was written from the effect's answer.
pub fn unwrap_bundle(secret: &Value, cluster: &ClusterId, operator_key: &SealingKey) -> Result<ClusterBundle, String> {
    let wrapped = secret["data"][BUNDLE_KEY].as_str().ok_or("the bundle's Secret is empty")?;
    let wrapped = STANDARD.decode(wrapped).map_err(text)?;
    ClusterBundle::unwrap(&wrapped, cluster, operator_key).map_err(text)
}

fn text(error: impl std::error::Error) -> String {
    chain_text(&error)
}

/// An error with its sources, which this crate's callers show in a condition.
fn chain_text(error: &dyn std::error::Error) -> String {
    let mut out = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        out.push_str(": ");
        out.push_str(&inner.to_string());
        source = inner.source();
    }
    out
}
