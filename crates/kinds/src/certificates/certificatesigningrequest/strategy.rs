//! What the server writes into a CertificateSigningRequest.

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};

use crate::kind::Requester;
use crate::prelude::*;

/// Who asks is who sent the request, whatever the body says.
pub fn name_requestor(object: &mut CertificateSigningRequest, user: Option<Requester<'_>>) {
    let spec = &mut object.spec;
    let user = user.unwrap_or_default();
    spec.username = Some(user.name.to_owned());
    spec.uid = Some(user.uid.to_owned()).filter(|uid| !uid.is_empty());
    spec.groups = Some(user.groups.to_vec());
    spec.extra = user.extra.cloned();
}

/// Gives conditions without times the ones that they had, or now.
pub fn date_conditions(new: &mut CertificateSigningRequest, old: &CertificateSigningRequest, now: Timestamp) {
    let before = conditions(old);
    let same_status = |a: &CertificateSigningRequestCondition, b: &CertificateSigningRequestCondition| a.type_ == b.type_ && a.status == b.status;
    for condition in new.status.iter_mut().flat_map(|s| s.conditions.iter_mut().flatten()) {
        if condition.last_update_time.is_none() {
            let same =
                |b: &&CertificateSigningRequestCondition| same_status(b, condition) && b.reason == condition.reason && b.message == condition.message;
            let known = before.iter().find(same).and_then(|b| b.last_update_time.clone());
            condition.last_update_time = known.or_else(|| validation::time(now));
        }
        if condition.last_transition_time.is_none() {
            let known = before.iter().filter(|b| same_status(b, condition)).find_map(|b| b.last_transition_time.clone());
            condition.last_transition_time = known.or_else(|| validation::time(now));
        }
    }
}

pub fn conditions(object: &CertificateSigningRequest) -> &[CertificateSigningRequestCondition] {
    object.status.as_ref().map(|s| items(&s.conditions)).unwrap_or_default()
}
