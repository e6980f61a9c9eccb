//! What makes a request a node's own (upstream's `pkg/apis/certificates/helpers.go`, as behaviour).

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use wheelhouse_pki::{AltName, CertificateRequest};

use super::{CLIENT_KUBELET, KUBELET_SERVING};

const GROUP: &str = "system:nodes";
const USER_PREFIX: &str = "system:node:";

/// Why a request is not what its signer signs; the texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotANodes {
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("subject common name does not begin with system:node: ")]
    CommonName,
    #[error("DNS subjectAltNames are not allowed")]
    DnsNames,
    #[error("IP subjectAltNames are not allowed")]
    Addresses,
    #[error("email and URI subjectAltNames are not allowed")]
    OtherNames,
    #[error("DNS or IP subjectAltName is required")]
    NoNames,
    #[error("usages did not match [key encipherment digital signature client auth]")]
    ClientUsages,
    #[error("usages did not match [key encipherment digital signature server auth]")]
    ServingUsages,
}

/// Node names asked for by a client certificate: `system:node:<name>`.
pub(super) fn client(request: &CertificateRequest, usages: &[String]) -> Result<(), NotANodes> {
    subject(request)?;
    if request.alt_names.iter().any(|name| matches!(name, AltName::Dns(_))) {
        return Err(NotANodes::DnsNames);
    }
    if !request.alt_names.is_empty() {
        return Err(NotANodes::Addresses);
    }
    if request.has_other_names {
        return Err(NotANodes::OtherNames);
    }
    if are(usages, "client auth") { Ok(()) } else { Err(NotANodes::ClientUsages) }
}

pub(super) fn serving(request: &CertificateRequest, usages: &[String]) -> Result<(), NotANodes> {
    subject(request)?;
    if request.has_other_names {
        return Err(NotANodes::OtherNames);
    }
    if request.alt_names.is_empty() {
        return Err(NotANodes::NoNames);
    }
    if are(usages, "server auth") { Ok(()) } else { Err(NotANodes::ServingUsages) }
}

fn subject(request: &CertificateRequest) -> Result<(), NotANodes> {
    if request.subject.organizations != [GROUP] {
        return Err(NotANodes::Organization);
    }
    if node_name(request).is_none() {
        return Err(NotANodes::CommonName);
    }
    Ok(())
}

/// Digital signature and the purpose; key encipherment, which only RSA keys use, may be there.
fn are(usages: &[String], purpose: &str) -> bool {
    let has = |wanted: &str| usages.iter().any(|usage| usage == wanted);
    let known = |usage: &String| usage == purpose || usage == "digital signature" || usage == "key encipherment";
    has(purpose) && has("digital signature") && usages.iter().all(known)
}

pub(super) fn node_name(request: &CertificateRequest) -> Option<&str> {
    request.subject.common_name.strip_prefix(USER_PREFIX)
}

/// Whether it asks for a node's client certificate.
pub(super) fn is_client(csr: &CertificateSigningRequest, request: &CertificateRequest) -> bool {
    csr.spec.signer_name == CLIENT_KUBELET && client(request, &csr.spec.usages.clone().unwrap_or_default()).is_ok()
}

/// Whether a node asks for a serving certificate of its own.
pub(super) fn is_own_serving(csr: &CertificateSigningRequest, request: &CertificateRequest) -> bool {
    csr.spec.signer_name == KUBELET_SERVING
        && csr.spec.username.as_deref() == Some(request.subject.common_name.as_str())
        && csr.spec.groups.iter().flatten().any(|group| group == GROUP)
        && serving(request, &csr.spec.usages.clone().unwrap_or_default()).is_ok()
}
