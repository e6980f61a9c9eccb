//! What a CertificateSigningRequest must be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use wheelhouse_meta::validation as names;
use wheelhouse_pki::{CertificateInfo, CertificateRequest, certificates_from_pem};

use super::strategy::conditions;
use crate::prelude::*;

/// What a certificate may be used for, in the order that messages list it.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The shortest life that can be asked for, in seconds.
const MIN_EXPIRATION: i32 = 600;

/// The signer of the first version of this API, which v1 does not have.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

/// Conditions that once set stay.
const LASTING: &[&str] = &["Approved", "Denied", "Failed"];

pub fn create(object: &CertificateSigningRequest) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = &object.spec;
    if let Err(why) = CertificateRequest::parse_pem(&String::from_utf8_lossy(&spec.request.0)) {
        errors.push(FieldError::invalid(&path.child("request"), STANDARD.encode(&spec.request.0), why.to_string()));
    }
    usages(items(&spec.usages), &path.child("usages"), &mut errors);
    let signer = path.child("signerName");
    if spec.signer_name == LEGACY_SIGNER {
        errors.push(FieldError::invalid(&signer, &spec.signer_name, "the legacy signerName is not allowed via this API version"));
    } else {
        signer_name(&spec.signer_name, &signer, &mut errors);
    }
    if let Some(seconds) = spec.expiration_seconds.filter(|s| *s < MIN_EXPIRATION) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, why));
    }
    status(object, &mut errors);
    errors
}

fn usages(usages: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    if usages.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    for (at, usage) in usages.iter().enumerate() {
        if !USAGES.contains(&usage.as_str()) {
            errors.push(FieldError::not_supported(&path.index(at), usage, USAGES));
        }
    }
    for (at, usage) in usages.iter().enumerate() {
        if usages[..at].contains(usage) {
            errors.push(FieldError::duplicate(&path.index(at), usage));
        }
    }
}

/// `domain/path`, where each step of the path is like a label: `kubernetes.io/kube-apiserver-client`.
fn signer_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    /// In bytes: a domain, a slash, and a namespace and a name in it.
    const MAX: usize = 253 + 1 + 63 + 1 + 253;
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((domain, rest)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        errors.push(FieldError::invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'"));
        return;
    };
    for problem in names::dns1123_subdomain(domain) {
        errors.push(FieldError::invalid(path, name, format!("validating label \"{domain}\": {problem}")));
    }
    if !domain.contains('.') {
        errors.push(FieldError::invalid(path, name, "should be a domain with at least two segments separated by dots"));
    }
    for part in rest.split('.') {
        for problem in names::dns1123_label(part) {
            errors.push(FieldError::invalid(path, name, format!("validating label \"{part}\": {problem}")));
        }
    }
    if name.len() > MAX {
        errors.push(FieldError::too_long(path, MAX));
    }
}

fn status(object: &CertificateSigningRequest, errors: &mut ErrorList) {
    let path = Path::new("status");
    let (here, all) = (path.child("conditions"), conditions(object));
    for (at, condition) in all.iter().enumerate() {
        one_condition(condition, &here.index(at), errors);
        let opposite = match condition.type_.as_str() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if all[..at].iter().any(|c| c.type_ == opposite) {
            errors.push(FieldError::invalid(&here, &condition.type_, "Approved and Denied conditions are mutually exclusive"));
        }
        if all[..at].iter().any(|c| c.type_ == condition.type_) {
            errors.push(FieldError::duplicate(&here.index(at).child("type"), &condition.type_));
        }
    }
    let certificate = object.status.as_ref().and_then(|s| s.certificate.as_ref()).filter(|c| !c.0.is_empty());
    if let Some(why) = certificate.and_then(|c| fault_of_chain(&String::from_utf8_lossy(&c.0))) {
        errors.push(FieldError::invalid(&path.child("certificate"), "<certificate data>", why));
    }
}

/// What is wrong with a text that must hold certificates and nothing else.
fn fault_of_chain(text: &str) -> Option<String> {
    let labels = text.lines().filter_map(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    if let Some(other) = labels.into_iter().find(|label| *label != "CERTIFICATE") {
        return Some(format!("only CERTIFICATE PEM blocks are allowed, found \"{other}\""));
    }
    let certificates = certificates_from_pem(text);
    if certificates.is_empty() {
        return Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    certificates.iter().find_map(|der| CertificateInfo::parse(der).err()).map(|error| error.to_string())
}

fn one_condition(condition: &CertificateSigningRequestCondition, path: &Path<'_>, errors: &mut ErrorList) {
    if condition.type_.is_empty() {
        errors.push(FieldError::required(&path.child("type"), ""));
    }
    // A decision is there or it is not; what else signers report may be anything.
    let allowed: &[&str] = if LASTING.contains(&condition.type_.as_str()) { &["True"] } else { &["False", "True", "Unknown"] };
    if condition.status.is_empty() {
        errors.push(FieldError::required(&path.child("status"), ""));
    } else if !allowed.contains(&condition.status.as_str()) {
        errors.push(FieldError::not_supported(&path.child("status"), &condition.status, allowed));
    }
}

/// Decisions are made once, at `approval` alone; the certificate is set once, at `status` alone.
pub fn update(new: &CertificateSigningRequest, old: &CertificateSigningRequest, subresource: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    status(new, &mut errors);
    let path = Path::new("status");
    let here = path.child("conditions");
    for type_ in LASTING {
        let of = |object| -> Vec<&CertificateSigningRequestCondition> { conditions(object).iter().filter(|c| c.type_ == *type_).collect() };
        let (is, was) = (of(new), of(old));
        let why = if is.len() < was.len() {
            "remove"
        } else if is.len() > was.len() && *type_ != "Failed" && subresource != "approval" {
            "add"
        } else if is.len() == was.len() && is != was && *type_ != "Failed" {
            "modify"
        } else {
            continue;
        };
        errors.push(FieldError::forbidden(&here, format!("updates may not {why} a condition of type \"{type_}\"")));
    }
    let certificate = |object: &CertificateSigningRequest| object.status.as_ref().and_then(|s| s.certificate.clone()).unwrap_or_default().0;
    let (is, was) = (certificate(new), certificate(old));
    if is != was {
        let here = path.child("certificate");
        if subresource != "status" {
            errors.push(FieldError::forbidden(&here, "updates may not set certificate content"));
        } else if !was.is_empty() {
            errors.push(FieldError::forbidden(&here, "updates may not modify existing certificate content"));
        }
    }
    errors
}
