//! `kubectl get certificatesigningrequests`.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::strategy::conditions;
use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::AGE,
    table::text("SignerName", "Who is to sign."),
    table::text("Requestor", "Who asks."),
    table::text("RequestedDuration", "For how long the certificate is asked to hold."),
    table::text("Condition", "How far it has come."),
];

pub fn row(object: &CertificateSigningRequest, now: Timestamp) -> Vec<Value> {
    let spec = &object.spec;
    let lasting = spec.expiration_seconds.map(|seconds| table::duration(i64::from(seconds) * 1_000_000));
    vec![
        table::name(&object.metadata),
        table::age(&object.metadata, now),
        if spec.signer_name.is_empty() { "<none>".into() } else { spec.signer_name.as_str().into() },
        text(&spec.username).into(),
        lasting.unwrap_or_else(|| "<none>".to_owned()).into(),
        condition(object).into(),
    ]
}

fn condition(object: &CertificateSigningRequest) -> String {
    let has = |type_: &str| conditions(object).iter().any(|c| c.type_ == type_);
    let mut shown = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        shown.push_str(",Failed");
    }
    if object.status.as_ref().and_then(|s| s.certificate.as_ref()).is_some_and(|c| !c.0.is_empty()) {
        shown.push_str(",Issued");
    }
    shown
}
