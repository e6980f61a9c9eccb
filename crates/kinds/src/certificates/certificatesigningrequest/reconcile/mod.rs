//! The controllers of requests for certificates: one approves nodes' own, one signs what is approved, one cleans up.

mod approving;
mod cleaner;
mod node_request;
mod signing;

pub use approving::ApprovingController;
pub use cleaner::CleanerController;
pub use signing::SigningController;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use crate::view::ResourceName;

const REQUESTS: ResourceName = ResourceName::new("certificates.k8s.io", "certificatesigningrequests");
/// The service account of all three.
const SERVICE_ACCOUNT: &str = "certificate-controller";

/// Signers of a cluster's own CA.
pub const CLIENT_KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

fn has(csr: &CertificateSigningRequest, condition: &str) -> bool {
    csr.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(|known| known.type_ == condition)
}

fn issued(csr: &CertificateSigningRequest) -> Option<&[u8]> {
    csr.status.as_ref()?.certificate.as_ref().map(|certificate| certificate.0.as_slice()).filter(|bytes| !bytes.is_empty())
}
