//! Certificates by CertificateSigningRequest: the first with the token, all others with the one before.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use wheelhouse_base::Timestamp;
use wheelhouse_client::{Client, ClientError};
use wheelhouse_pki::{AltName, CertificateInfo, CertificateRequest, EcKey, KeyError, Subject, certificates_from_pem};

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// Between looks at a request that was made.
const LOOK: Duration = Duration::from_millis(100);
/// How long the control plane may take; it takes milliseconds unless approval is left to people.
const WAIT: Duration = Duration::from_secs(60);
/// A year, as upstream's kubelets ask for nothing shorter; the signer may cut it.
const LIFE_SECONDS: i32 = 365 * 24 * 3600;

#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("a key for this node")]
    Key(#[from] KeyError),
    #[error("the token is not valid: it has expired, was revoked, or is of another cluster")]
    Token(#[source] ClientError),
    #[error("asking for a certificate")]
    Ask(#[source] ClientError),
    #[error("the request {name} for a certificate was denied: {message}")]
    Denied { name: String, message: String },
    #[error("the request {name} for a certificate failed: {message}")]
    Failed { name: String, message: String },
    #[error("nobody approved the request {0} within {1:?}; `kubectl certificate approve {0}` does")]
    Unanswered(String, Duration),
}

/// What a certificate is for.
pub enum Purpose<'a> {
    /// Who the node is at the API server.
    Client,
    /// What the kubelet's own server shows.
    Serving(&'a [AltName]),
}

/// Asks for a certificate of the node and waits for it: certificate and key as one PEM text.
pub async fn obtain(client: &Client, node_name: &str, purpose: &Purpose<'_>) -> Result<String, CredentialError> {
    let key = EcKey::generate()?;
    let (signer, usage, names) = match purpose {
        Purpose::Client => (CLIENT_SIGNER, "client auth", &[][..]),
        Purpose::Serving(names) => (SERVING_SIGNER, "server auth", *names),
    };
    let subject = Subject::new(format!("system:node:{node_name}"), &["system:nodes"]);
    let request = CertificateRequest::create(&subject, names, &key)?;
    let csr = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), usage.to_owned()]),
            expiration_seconds: Some(LIFE_SECONDS),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let requests = client.api("certificates.k8s.io", "v1", "certificatesigningrequests", "");
    let made: CertificateSigningRequest = requests.create(&csr).await.map_err(|error| match error.code() {
        401 => CredentialError::Token(error),
        _ => CredentialError::Ask(error),
    })?;
    let name = made.metadata.name.unwrap_or_default();
    let started = tokio::time::Instant::now();
    while started.elapsed() < WAIT {
        let now: CertificateSigningRequest = match requests.get(&name).await {
            Ok(now) => now,
            // A replica may go away in between.
            Err(ClientError::Transport(_)) => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(error) => return Err(CredentialError::Ask(error)),
        };
        if let Some(pem) = answer(&name, &now)? {
            return Ok(pem + &key.to_pem());
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(CredentialError::Unanswered(name, WAIT))
}

fn answer(name: &str, csr: &CertificateSigningRequest) -> Result<Option<String>, CredentialError> {
    let status = csr.status.clone().unwrap_or_default();
    for condition in status.conditions.iter().flatten() {
        let (name, message) = (name.to_owned(), condition.message.clone().unwrap_or_default());
        match condition.type_.as_str() {
            "Denied" => return Err(CredentialError::Denied { name, message }),
            "Failed" => return Err(CredentialError::Failed { name, message }),
            _ => {}
        }
    }
    let certificate = status.certificate.filter(|certificate| !certificate.0.is_empty());
    Ok(certificate.map(|certificate| String::from_utf8_lossy(&certificate.0).into_owned()))
}

/// When a certificate is to be renewed: after seven tenths of its life.
pub fn renewal(pem: &str) -> Option<Timestamp> {
    let der = certificates_from_pem(pem).into_iter().next()?;
    let validity = CertificateInfo::parse(&der).ok()?.validity;
    let life = validity.not_after.since(validity.not_before);
    Some(validity.not_before.plus(life * 7 / 10))
}

/// Whether the certificate still holds and is this node's.
pub fn is_usable(pem: &str, node_name: &str, now: Timestamp) -> bool {
    let info = certificates_from_pem(pem).into_iter().next().and_then(|der| CertificateInfo::parse(&der).ok());
    info.is_some_and(|info| info.validity.holds_at(now) && info.subject.common_name == format!("system:node:{node_name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_pki::{Authority, Leaf, Usage, Validity};

    #[test]
    fn a_certificate_is_renewed_in_time_and_only_ones_own_counts() {
        let now = Timestamp::from_secs(1_800_000_000);
        let life = Duration::from_secs(1_000_000);
        let authority = Authority::create("ca", Validity::lasting(now, life * 2)).unwrap();
        let leaf = Leaf {
            subject: Subject::new("system:node:a", &["system:nodes"]),
            alt_names: Vec::new(),
            usage: Usage::Client,
            validity: Validity { not_before: now, not_after: now.plus(life) },
        };
        let (certificate, key) = authority.issue_with_key(&leaf).unwrap();
        let pem = certificate + &key;
        assert_eq!(renewal(&pem), Some(now.plus(Duration::from_secs(700_000))));
        assert!(is_usable(&pem, "a", now) && !is_usable(&pem, "b", now) && !is_usable(&pem, "a", now.plus(life * 2)));
    }
}
