//! CertificateSigningRequest: somebody asks a signer for a certificate.
//!
//! ```text
//! created, with who asked written in by the server -> approved or denied at `approval` -> certificate set at `status`
//! ```
//!
//! What was asked never changes. That the asker holds the key is checked once, at creation.

mod columns;
pub mod reconcile;
mod strategy;
mod validate;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestStatus};

use crate::prelude::*;

pub struct CertificateSigningRequestKind;

impl TypedKind for CertificateSigningRequestKind {
    type Object = CertificateSigningRequest;

    const INFO: KindInfo = KindInfo {
        short_names: &["csr"],
        subresources: &[subresource::part("approval"), subresource::STATUS],
        ..KindInfo::cluster("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", "certificatesigningrequest")
    };

    /// Anything that can stand in a path.
    const NAME_RULE: NameRule = NameRule::Own;

    fn prepare_create(object: &mut CertificateSigningRequest, cx: &RequestContext<'_>) -> Verdict {
        strategy::name_requestor(object, cx.user);
        object.status = Some(CertificateSigningRequestStatus::default());
        validate::create(object).into()
    }

    fn prepare_update(new: &mut CertificateSigningRequest, old: &CertificateSigningRequest, cx: &RequestContext<'_>) -> Verdict {
        new.spec.clone_from(&old.spec);
        match cx.subresource {
            "approval" => {
                new.status.get_or_insert_default().certificate = old.status.as_ref().and_then(|s| s.certificate.clone());
                strategy::date_conditions(new, old, cx.now);
            }
            "status" => strategy::date_conditions(new, old, cx.now),
            _ => new.status.clone_from(&old.status),
        }
        validate::update(new, old, cx.subresource).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &CertificateSigningRequest, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }

    const SELECTABLE: &'static [&'static str] = &["spec.signerName"];

    fn selectable_fields(object: &CertificateSigningRequest) -> Vec<(&'static str, String)> {
        vec![("spec.signerName", object.spec.signer_name.clone())]
    }
}
