//! Reviews of access, and signatures of the cluster's CA.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use wheelhouse_base::Clock;
use wheelhouse_client::Client;
use wheelhouse_kinds::plan::{Effect, EffectKind};
use wheelhouse_pki::{Authority, CertificateRequest, Usage, Validity, certificates_to_pem};

use super::EffectHandler;

/// Executes what the controllers of certificate requests ask for, and hands everything else on.
pub struct CertificateEffects {
    /// Acts as [`CertificateEffects::SERVICE_ACCOUNT`].
    pub client: Client,
    pub authority: Authority,
    pub clock: Arc<dyn Clock>,
    pub others: Arc<dyn EffectHandler>,
}

#[derive(Deserialize)]
struct SignInput {
    request: String,
    server: bool,
    client: bool,
    seconds: u64,
}

#[async_trait]
impl EffectHandler for CertificateEffects {
    async fn run(&self, effect: &Effect) -> Result<Value, String> {
        match effect.kind {
            EffectKind::ReviewAccess => self.review(&effect.input).await,
            EffectKind::SignCertificate => self.sign(&effect.input),
            _ => self.others.run(effect).await,
        }
    }
}

impl CertificateEffects {
    pub const SERVICE_ACCOUNT: &str = "certificate-controller";

    async fn review(&self, spec: &Value) -> Result<Value, String> {
        let review = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": spec});
        let answer = self.client.api("authorization.k8s.io", "v1", "subjectaccessreviews", "").create::<Value>(&review).await;
        answer.map(|review| review["status"].clone()).map_err(|error| error.to_string())
    }

    /// What may be signed is the controller's decision; the usages and the time are those that were asked for.
    fn sign(&self, input: &Value) -> Result<Value, String> {
        let input = SignInput::deserialize(input).map_err(|error| error.to_string())?;
        let request = CertificateRequest::parse_pem(&input.request).map_err(|error| error.to_string())?;
        let usage = match (input.server, input.client) {
            (true, true) => Usage::Both,
            (true, false) => Usage::Server,
            _ => Usage::Client,
        };
        let validity = Validity::lasting(self.clock.now(), Duration::from_secs(input.seconds));
        let certificate = self.authority.sign_request(&request, usage, validity).map_err(|error| error.to_string())?;
        Ok(Value::from(certificates_to_pem([certificate.as_slice()])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::NoEffects;
    use wheelhouse_base::{ManualClock, Timestamp};
    use wheelhouse_client::{ResponseBody, Transport, TransportError};
    use wheelhouse_pki::{CertificateInfo, EcKey, Subject, certificates_from_pem};

    struct Nowhere;

    #[async_trait]
    impl Transport for Nowhere {
        async fn send(&self, _: http::Request<bytes::Bytes>) -> Result<http::Response<ResponseBody>, TransportError> {
            Err(TransportError::Stopped)
        }
    }

    #[test]
    fn a_signature_keeps_the_subject_and_the_time_asked_for() {
        let now = Timestamp::from_secs(1_800_000_000);
        let authority = Authority::create("ca", Validity::lasting(now, Duration::from_secs(1_000_000))).unwrap();
        let effects = CertificateEffects {
            client: Client::new(Arc::new(Nowhere)),
            authority,
            clock: Arc::new(ManualClock::at(now)),
            others: Arc::new(NoEffects),
        };
        let subject = Subject::new("system:node:a", &["system:nodes"]);
        let request = CertificateRequest::create(&subject, &[], &EcKey::generate().unwrap()).unwrap();
        let signed = effects.sign(&json!({"request": request, "server": false, "client": true, "seconds": 3600})).unwrap();
        let info = CertificateInfo::parse(&certificates_from_pem(signed.as_str().unwrap())[0]).unwrap();
        assert_eq!((info.subject, info.validity.not_after), (subject, now.plus(Duration::from_secs(3600))));
    }
}
