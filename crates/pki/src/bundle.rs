//! What makes a cluster that cluster: its authorities and keys.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wheelhouse_base::{ClusterId, Timestamp};

use crate::authority::{Authority, AuthorityError, Leaf, Usage};
use crate::certificate::Validity;
use crate::keys::{KeyError, RsaKey};
use crate::names::server_names;
use crate::seal::{SealError, SealingKey};
use crate::{AltName, Subject};

/// Authorities last ten years, as kubeadm's do.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Serving certificates last 90 days and are replaced after 60, so that renewal is an everyday matter.
pub const SERVING_LIFE: Duration = Duration::from_secs(90 * 86_400);

#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("the bundle's keys")]
    Key(#[from] KeyError),
    #[error("the bundle's authority")]
    Authority(#[from] AuthorityError),
    #[error("sealing")]
    Seal(#[from] SealError),
    #[error("the opened bundle is malformed")]
    Malformed(#[source] serde_json::Error),
}

/// All PEM. The data key seals the cluster's values at rest and is destroyed with the cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBundle {
    pub cluster: ClusterId,
    pub ca_certificate: String,
    pub ca_key: String,
    pub front_proxy_ca_certificate: String,
    pub front_proxy_ca_key: String,
    pub service_account_key: String,
    data_key: [u8; 32],
}

impl ClusterBundle {
    /// New keys throughout. The RSA key is passed in because it comes from a pool.
    pub fn create(cluster: ClusterId, service_account_key: &RsaKey, now: Timestamp) -> Result<Self, BundleError> {
        let ca = Authority::create(&format!("wheelhouse-{cluster}"), Validity::lasting(now, AUTHORITY_LIFE))?;
        Self::with_authority(cluster, &ca, service_account_key, now)
    }

    /// The same under an existing authority: the system cluster's is the operator's.
    pub fn with_authority(cluster: ClusterId, ca: &Authority, service_account_key: &RsaKey, now: Timestamp) -> Result<Self, BundleError> {
        let front_proxy = Authority::create("front-proxy-ca", Validity::lasting(now, AUTHORITY_LIFE))?;
        Ok(Self {
            cluster,
            ca_certificate: ca.certificate_pem(),
            ca_key: ca.key_pem(),
            front_proxy_ca_certificate: front_proxy.certificate_pem(),
            front_proxy_ca_key: front_proxy.key_pem(),
            service_account_key: service_account_key.to_pem(),
            data_key: *SealingKey::generate()?.as_bytes(),
        })
    }

    pub fn data_key(&self) -> &[u8; 32] {
        &self.data_key
    }

    pub fn authority(&self) -> Result<Authority, AuthorityError> {
        Authority::from_pem(&self.ca_certificate, &self.ca_key)
    }

    /// A serving certificate for one replica, `(certificate PEM, key PEM)`. Each host makes its own and renews it itself. The CA follows the leaf, so that
    /// a machine that knows it only by its hash finds it in the handshake.
    pub fn issue_serving(
        &self,
        base_domain: &str,
        service_address: IpAddr,
        extra: &[AltName],
        life: Duration,
        now: Timestamp,
    ) -> Result<(String, String), AuthorityError> {
        let mut alt_names = server_names(&self.cluster, base_domain, service_address);
        alt_names.extend_from_slice(extra);
        let leaf = Leaf { subject: Subject::new("kube-apiserver", &[]), alt_names, usage: Usage::Server, validity: Validity::lasting(now, life) };
        let (certificate, key) = self.authority()?.issue_with_key(&leaf)?;
        Ok((certificate + &self.ca_certificate, key))
    }

    /// A client certificate, `(certificate PEM, key PEM)`.
    pub fn issue_client(&self, subject: Subject, life: Duration, now: Timestamp) -> Result<(String, String), AuthorityError> {
        let leaf = Leaf { subject, alt_names: Vec::new(), usage: Usage::Client, validity: Validity::lasting(now, life) };
        self.authority()?.issue_with_key(&leaf)
    }

    /// Sealed under `key`, for this cluster only.
    pub fn wrap(&self, key: &SealingKey) -> Result<Vec<u8>, BundleError> {
        let plain = serde_json::to_vec(self).map_err(BundleError::Malformed)?;
        Ok(key.seal(&plain, &context(&self.cluster))?)
    }

    pub fn unwrap(sealed: &[u8], cluster: &ClusterId, key: &SealingKey) -> Result<Self, BundleError> {
        let plain = key.open(sealed, &context(cluster))?;
        serde_json::from_slice(&plain).map_err(BundleError::Malformed)
    }
}

fn context(cluster: &ClusterId) -> String {
    format!("wheelhouse/cluster-bundle/{cluster}")
}

impl std::fmt::Debug for ClusterBundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterBundle({})", self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::CertificateInfo;
    use crate::pem::certificates_from_pem;

    fn bundle() -> ClusterBundle {
        ClusterBundle::create(ClusterId::from_random(1), &RsaKey::generate().unwrap(), Timestamp::from_secs(1_800_000_000)).unwrap()
    }

    #[test]
    fn a_bundle_opens_for_its_own_cluster_only() {
        let (bundle, key) = (bundle(), SealingKey::generate().unwrap());
        let sealed = bundle.wrap(&key).unwrap();
        assert_eq!(ClusterBundle::unwrap(&sealed, &bundle.cluster, &key).unwrap(), bundle);
        assert!(matches!(ClusterBundle::unwrap(&sealed, &ClusterId::from_random(2), &key), Err(BundleError::Seal(SealError::Refused))));
        assert_eq!(format!("{bundle:?}"), format!("ClusterBundle({})", bundle.cluster), "no key is printed");
    }

    #[test]
    fn the_serving_certificate_names_every_way_in() {
        let bundle = bundle();
        let (certificate, _) = bundle
            .issue_serving("wheelhouse.internal", "10.96.0.1".parse().unwrap(), &[], SERVING_LIFE, Timestamp::from_secs(1_800_000_000))
            .unwrap();
        let chain = certificates_from_pem(&certificate);
        assert_eq!(chain[1], bundle.authority().unwrap().certificate_der(), "the CA is shown too");
        let info = CertificateInfo::parse(&chain[0]).unwrap();
        for name in ["kubernetes.default.svc", &format!("*.{}.wheelhouse.internal", bundle.cluster)] {
            assert!(info.alt_names.contains(&AltName::Dns(name.to_owned())), "{name}");
        }
        assert!(info.alt_names.contains(&AltName::Ip("10.96.0.1".parse().unwrap())));
    }
}
