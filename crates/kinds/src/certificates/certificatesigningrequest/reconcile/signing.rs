//! `certificatesigningrequest-signing-controller`: has approved requests signed by the cluster's CA, each signer for what it stands for.
//!
//! A request that does not fit its signer fails for good, with the reason `SignerValidationFailure`.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use serde_json::json;
use wheelhouse_pki::CertificateRequest;

use super::{CLIENT, CLIENT_KUBELET, KUBELET_SERVING, LEGACY_UNKNOWN, REQUESTS, SERVICE_ACCOUNT, has, issued, node_request};
use crate::plan::{Effect, EffectKind, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::api_time;
use crate::validation::text;
use crate::view::{Key, View};

/// Upstream's `--cluster-signing-duration`: a year, in seconds.
pub const LONGEST: i64 = 365 * 24 * 3600;

pub struct SigningController;

impl Reconciler for SigningController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "certificatesigningrequest-signing-controller"
    }

    fn service_account(&self) -> &'static str {
        SERVICE_ACCOUNT
    }

    fn triggers(&self) -> Vec<Trigger> {
        vec![Trigger::itself(REQUESTS)]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, (): &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(csr) = view.get::<CertificateSigningRequest>("", &key.name) else { return plan };
        let due = has(&csr, "Approved") && !has(&csr, "Denied") && !has(&csr, "Failed") && issued(&csr).is_none();
        if !due || ![CLIENT, CLIENT_KUBELET, KUBELET_SERVING, LEGACY_UNKNOWN].contains(&csr.spec.signer_name.as_str()) {
            return plan;
        }
        if let Err(why) = check(&csr) {
            plan.operations.push(status(&csr, None, Some(why), cx));
            return plan;
        }
        let id = text(&csr.metadata.uid).to_owned();
        match cx.effects.get(&(EffectKind::SignCertificate, id.clone())) {
            Some(Ok(certificate)) => {
                let pem = certificate.as_str().unwrap_or_default().as_bytes().to_vec();
                plan.operations.push(status(&csr, Some(pem), None, cx));
            }
            Some(Err(_)) => plan.requeue_at = Some(cx.now.plus(std::time::Duration::from_secs(1))),
            None => {
                let usages = csr.spec.usages.clone().unwrap_or_default();
                let asks = |usage: &str| usages.iter().any(|known| known == usage);
                let seconds = csr.spec.expiration_seconds.map_or(LONGEST, i64::from).min(LONGEST);
                let input = json!({"request": String::from_utf8_lossy(&csr.spec.request.0), "server": asks("server auth"), "client": asks("client auth"), "seconds": seconds});
                plan.effects.push(Effect { kind: EffectKind::SignCertificate, id, input });
            }
        }
        plan
    }
}

/// Whether the request is what its signer signs.
fn check(csr: &CertificateSigningRequest) -> Result<(), String> {
    let request = CertificateRequest::parse_pem(&String::from_utf8_lossy(&csr.spec.request.0)).map_err(|error| error.to_string())?;
    let usages = csr.spec.usages.clone().unwrap_or_default();
    match csr.spec.signer_name.as_str() {
        CLIENT_KUBELET => node_request::client(&request, &usages).map_err(|error| error.to_string()),
        KUBELET_SERVING => {
            if csr.spec.username.as_deref() != Some(request.subject.common_name.as_str()) {
                return Err("subject common name does not match the requestor's user name".to_owned());
            }
            node_request::serving(&request, &usages).map_err(|error| error.to_string())
        }
        CLIENT => {
            let known = ["digital signature", "key encipherment", "client auth"];
            let fits = usages.iter().any(|usage| usage == "client auth") && usages.iter().all(|usage| known.contains(&usage.as_str()));
            if fits { Ok(()) } else { Err("usages did not match [key encipherment digital signature client auth]".to_owned()) }
        }
        _ => Ok(()),
    }
}

fn status(csr: &CertificateSigningRequest, certificate: Option<Vec<u8>>, failed: Option<String>, cx: &Context<'_>) -> Operation {
    let mut signed = csr.clone();
    let status = signed.status.get_or_insert_default();
    if let Some(message) = failed {
        let condition = CertificateSigningRequestCondition {
            type_: "Failed".into(),
            status: "True".into(),
            reason: Some("SignerValidationFailure".into()),
            message: Some(message),
            last_update_time: Some(api_time(cx.now)),
            last_transition_time: None,
        };
        status.conditions.get_or_insert_default().push(condition);
    }
    if let Some(certificate) = certificate {
        status.certificate = Some(ByteString(certificate));
    }
    let object = serde_json::to_value(&signed).expect("a request for a certificate is plain data");
    Operation::Update { resource: REQUESTS, subresource: "status", object }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{NOW, World, context};
    use wheelhouse_pki::{EcKey, Subject};

    fn world(organization: &str, conditions: serde_json::Value) -> World {
        let subject = Subject::new("system:node:vm-1", &[organization]);
        let pem = CertificateRequest::create(&subject, &[], &EcKey::generate().unwrap()).unwrap();
        let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "c", "uid": "u"},
            "spec": {"signerName": CLIENT_KUBELET, "username": "x", "usages": ["digital signature", "client auth"], "expirationSeconds": 3600,
                     "request": ByteString(pem.into_bytes())},
            "status": {"conditions": conditions}});
        World::new().with(&object.to_string())
    }

    #[test]
    fn what_is_approved_is_signed_for_as_long_as_asked() {
        let approved = json!([{"type": "Approved", "status": "True"}]);
        let world = world("system:nodes", approved);
        let plan = SigningController.reconcile(&Key::cluster("c"), world.view(), &context(), &mut ());
        assert_eq!(
            (&plan.effects[0].input["seconds"], &plan.effects[0].input["client"], &plan.effects[0].input["server"]),
            (&json!(3600), &json!(true), &json!(false))
        );
        let effects = [((EffectKind::SignCertificate, "u".to_owned()), Ok(json!("PEM")))].into();
        let cx = Context { now: NOW, failure: None, effects: &effects };
        let plan = SigningController.reconcile(&Key::cluster("c"), world.view(), &cx, &mut ());
        let Operation::Update { subresource: "status", object, .. } = &plan.operations[0] else { panic!() };
        assert_eq!(object["status"]["certificate"], "UEVN");
    }

    #[test]
    fn what_is_not_approved_waits_and_what_does_not_fit_fails() {
        let waiting = world("system:nodes", json!([]));
        assert!(SigningController.reconcile(&Key::cluster("c"), waiting.view(), &context(), &mut ()).is_empty());
        let wrong = world("system:masters", json!([{"type": "Approved", "status": "True"}]));
        let plan = SigningController.reconcile(&Key::cluster("c"), wrong.view(), &context(), &mut ());
        let Operation::Update { object, .. } = &plan.operations[0] else { panic!() };
        assert_eq!(object["status"]["conditions"][1]["reason"], "SignerValidationFailure");
        assert_eq!(object["status"]["conditions"][1]["message"], "subject organization is not system:nodes");
    }
}
