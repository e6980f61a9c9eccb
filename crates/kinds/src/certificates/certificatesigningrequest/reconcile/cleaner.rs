//! `certificatesigningrequest-cleaner-controller`: deletes requests that are done with: an hour after they were decided, a day after they were made
//! if nobody decides, and once their certificate is over.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use wheelhouse_base::Timestamp;
use wheelhouse_pki::{CertificateInfo, certificates_from_pem};

use super::{REQUESTS, SERVICE_ACCOUNT, has, issued};
use crate::plan::{DeleteOptions, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::timestamp;
use crate::view::{Key, View};

/// Upstream's periods.
const DECIDED: Duration = Duration::from_secs(3600);
const PENDING: Duration = Duration::from_secs(24 * 3600);

pub struct CleanerController;

impl Reconciler for CleanerController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "certificatesigningrequest-cleaner-controller"
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
        let Some(due) = due(&csr) else { return plan };
        if due > cx.now {
            plan.requeue_at = Some(due);
            return plan;
        }
        let options = DeleteOptions { uid: csr.metadata.uid.clone(), ..DeleteOptions::default() };
        plan.operations.push(Operation::Delete { resource: REQUESTS, key: key.clone(), options });
        plan
    }
}

/// When the request may go.
fn due(csr: &CertificateSigningRequest) -> Option<Timestamp> {
    let created = csr.metadata.creation_timestamp.as_ref().map(timestamp)?;
    let conditions = csr.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let decided = conditions.filter(|c| matches!(c.type_.as_str(), "Approved" | "Denied" | "Failed")).filter_map(|c| c.last_update_time.as_ref());
    let decided = decided.map(timestamp).max();
    let after_decision = decided.map(|at| at.plus(DECIDED));
    let certificate = issued(csr).and_then(|pem| certificates_from_pem(&String::from_utf8_lossy(pem)).into_iter().next());
    let over = certificate.and_then(|der| CertificateInfo::parse(&der).ok()).map(|info| info.validity.not_after);
    if has(csr, "Approved") && issued(csr).is_none() && !has(csr, "Failed") {
        // Approved and not signed: the signer may yet come.
        return Some(created.plus(PENDING));
    }
    match (after_decision, over) {
        (Some(decided), Some(over)) => Some(decided.min(over)),
        (Some(decided), None) => Some(decided),
        _ => Some(created.plus(PENDING)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};
    use serde_json::json;

    #[test]
    fn requests_go_when_they_are_done_with() {
        // The clock stands at 00:10 of the first of January.
        let rows = [
            ("2025-12-31T00:09:00Z", json!([]), true),
            ("2025-12-31T00:11:00Z", json!([]), false),
            ("2025-12-31T20:00:00Z", json!([{"type": "Denied", "status": "True", "lastUpdateTime": "2025-12-31T23:09:00Z"}]), true),
            ("2025-12-31T20:00:00Z", json!([{"type": "Denied", "status": "True", "lastUpdateTime": "2025-12-31T23:11:00Z"}]), false),
        ];
        for (created, conditions, gone) in rows {
            let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "metadata": {"name": "c", "uid": "u", "creationTimestamp": created}, "spec": {"signerName": "s", "request": ""}, "status": {"conditions": conditions}});
            let world = World::new().with(&object.to_string());
            let plan = CleanerController.reconcile(&Key::cluster("c"), world.view(), &context(), &mut ());
            assert_eq!((plan.operations.len() == 1, plan.requeue_at.is_some()), (gone, !gone), "{object}");
        }
    }
}
