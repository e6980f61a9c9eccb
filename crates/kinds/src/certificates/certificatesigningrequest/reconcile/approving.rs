//! `certificatesigningrequest-approving-controller`: approves what nodes need to join and to stay.
//!
//! ```text
//! client certificate  asked by the node itself -> may it create `selfnodeclient`? --\
//!                     asked by a token         -> may it create `nodeclient`?     ----> Approved
//! serving certificate asked by the node itself -> are all names its own addresses? -/
//! ```
//!
//! The first two are upstream's. Upstream leaves serving certificates to the operator, since it cannot know a machine's addresses; here they are approved
//! for exactly the addresses that the Node object names, and wait until it does.

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use wheelhouse_pki::{AltName, CertificateRequest};

use super::{REQUESTS, SERVICE_ACCOUNT, has, issued, node_request};
use crate::plan::{Effect, EffectKind, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::api_time;
use crate::validation::text;
use crate::view::{Key, ResourceName, View};

const NODES: ResourceName = ResourceName::new("", "nodes");

pub struct ApprovingController;

/// A right to ask for, and what is written when it is there.
struct Recognized {
    subresource: &'static str,
    message: &'static str,
}

const SELF_NODE_CLIENT: Recognized =
    Recognized { subresource: "selfnodeclient", message: "Auto approving self kubelet client certificate after SubjectAccessReview." };
const NODE_CLIENT: Recognized =
    Recognized { subresource: "nodeclient", message: "Auto approving kubelet client certificate after SubjectAccessReview." };
const SERVING: &str = "Auto approving kubelet serving certificate for the addresses of its Node.";

impl Reconciler for ApprovingController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "certificatesigningrequest-approving-controller"
    }

    fn service_account(&self) -> &'static str {
        SERVICE_ACCOUNT
    }

    fn triggers(&self) -> Vec<Trigger> {
        // A node's addresses may be what its serving request waits for.
        let nodes = Trigger {
            resource: NODES,
            keys: |view, change| {
                let user = format!("system:node:{}", change.reference.key.name);
                let waiting = view.list::<CertificateSigningRequest>(None).filter(|csr| csr.spec.username.as_deref() == Some(&user) && is_open(csr));
                waiting.map(|csr| Key::cluster(text(&csr.metadata.name))).collect()
            },
        };
        vec![Trigger::itself(REQUESTS), nodes]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, (): &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(csr) = view.get::<CertificateSigningRequest>("", &key.name).filter(|csr| is_open(csr)) else { return plan };
        let Ok(request) = CertificateRequest::parse_pem(&String::from_utf8_lossy(&csr.spec.request.0)) else { return plan };
        if node_request::is_own_serving(&csr, &request) {
            if names_are_the_nodes(&request, view) {
                plan.operations.push(approve(&csr, SERVING, cx));
            }
            return plan;
        }
        if !node_request::is_client(&csr, &request) {
            return plan;
        }
        let own = csr.spec.username.as_deref() == Some(request.subject.common_name.as_str());
        let candidates: &[Recognized] = if own { &[SELF_NODE_CLIENT, NODE_CLIENT] } else { &[NODE_CLIENT] };
        for candidate in candidates {
            let id = format!("{}/{}", text(&csr.metadata.uid), candidate.subresource);
            match cx.effects.get(&(EffectKind::ReviewAccess, id.clone())) {
                None => {
                    plan.effects.push(Effect { kind: EffectKind::ReviewAccess, id, input: review(&csr, candidate.subresource) });
                    return plan;
                }
                Some(Ok(answer)) if answer["allowed"] == true => {
                    plan.operations.push(approve(&csr, candidate.message, cx));
                    return plan;
                }
                Some(Ok(_)) => {}
                // Upstream's retry of a review that failed.
                Some(Err(_)) => {
                    plan.requeue_at = Some(cx.now.plus(std::time::Duration::from_secs(1)));
                    return plan;
                }
            }
        }
        plan
    }
}

fn is_open(csr: &CertificateSigningRequest) -> bool {
    issued(csr).is_none() && !["Approved", "Denied", "Failed"].iter().any(|condition| has(csr, condition))
}

/// Every name asked for is an address of the Node whose user asks.
fn names_are_the_nodes(request: &CertificateRequest, view: &View) -> bool {
    let Some(node) = node_request::node_name(request).and_then(|name| view.get::<Node>("", name)) else { return false };
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    request.alt_names.iter().all(|name| match name {
        AltName::Dns(name) => addresses.iter().any(|a| matches!(a.type_.as_str(), "Hostname" | "InternalDNS" | "ExternalDNS") && a.address == *name),
        AltName::Ip(ip) => addresses.iter().any(|a| matches!(a.type_.as_str(), "InternalIP" | "ExternalIP") && a.address.parse() == Ok(*ip)),
    })
}

/// The spec of a SubjectAccessReview.
fn review(csr: &CertificateSigningRequest, subresource: &str) -> Value {
    json!({
        "user": csr.spec.username, "uid": csr.spec.uid, "groups": csr.spec.groups, "extra": csr.spec.extra,
        "resourceAttributes": {"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create", "subresource": subresource, "version": "*"},
    })
}

fn approve(csr: &CertificateSigningRequest, message: &str, cx: &Context<'_>) -> Operation {
    let mut approved = csr.clone();
    let condition = CertificateSigningRequestCondition {
        type_: "Approved".into(),
        status: "True".into(),
        reason: Some("AutoApproved".into()),
        message: Some(message.to_owned()),
        last_update_time: Some(api_time(cx.now)),
        last_transition_time: None,
    };
    approved.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    let object = serde_json::to_value(&approved).expect("a request for a certificate is plain data");
    Operation::Update { resource: REQUESTS, subresource: "approval", object }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{NOW, World, context};
    use std::collections::BTreeMap;
    use wheelhouse_pki::{EcKey, Subject};

    fn csr(signer: &str, user: &str, names: &[AltName], usages: &[&str]) -> String {
        let subject = Subject::new("system:node:vm-1", &["system:nodes"]);
        let pem = CertificateRequest::create(&subject, names, &EcKey::generate().unwrap()).unwrap();
        let request = k8s_openapi::ByteString(pem.into_bytes());
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "c", "uid": "u"},
            "spec": {"signerName": signer, "username": user, "groups": ["system:nodes", "g"], "usages": usages, "request": request}})
        .to_string()
    }

    fn plan(world: &World, answers: &[(&str, bool)]) -> Plan {
        let effects: BTreeMap<_, _> =
            answers.iter().map(|(name, allowed)| ((EffectKind::ReviewAccess, format!("u/{name}")), Ok(json!({"allowed": allowed})))).collect();
        let cx = Context { now: NOW, failure: None, effects: &effects };
        ApprovingController.reconcile(&Key::cluster("c"), world.view(), &cx, &mut ())
    }

    const CLIENT_USAGES: &[&str] = &["digital signature", "client auth"];

    #[test]
    fn a_token_may_ask_for_a_node_if_it_has_the_right() {
        let world = World::new().with(&csr(super::super::CLIENT_KUBELET, "system:bootstrap:abc", &[], CLIENT_USAGES));
        let asked = plan(&world, &[]);
        assert_eq!(asked.effects[0].input["resourceAttributes"]["subresource"], "nodeclient");
        assert_eq!(asked.effects[0].input["user"], "system:bootstrap:abc");
        assert!(plan(&world, &[("nodeclient", false)]).is_empty());
        let Operation::Update { subresource: "approval", object, .. } = &plan(&world, &[("nodeclient", true)]).operations[0] else { panic!() };
        assert_eq!(object["status"]["conditions"][0]["reason"], "AutoApproved");
    }

    #[test]
    fn a_node_renews_its_own_by_another_right() {
        let world = World::new().with(&csr(super::super::CLIENT_KUBELET, "system:node:vm-1", &[], CLIENT_USAGES));
        assert_eq!(plan(&world, &[]).effects[0].input["resourceAttributes"]["subresource"], "selfnodeclient");
        assert_eq!(plan(&world, &[("selfnodeclient", true)]).operations.len(), 1);
        let other = plan(&world, &[("selfnodeclient", false)]);
        assert_eq!(other.effects[0].input["resourceAttributes"]["subresource"], "nodeclient");
    }

    #[test]
    fn what_is_not_a_nodes_is_left_to_people() {
        let dns = [AltName::Dns("x".into())];
        for (names, usages) in [(&dns[..], CLIENT_USAGES), (&[], &["digital signature", "server auth"][..]), (&[], &["client auth"][..])] {
            let world = World::new().with(&csr(super::super::CLIENT_KUBELET, "system:bootstrap:abc", names, usages));
            assert!(plan(&world, &[]).is_empty());
        }
    }

    #[test]
    fn a_serving_certificate_is_for_the_nodes_own_addresses() {
        let usages = ["digital signature", "server auth"];
        let names = [AltName::Dns("vm-1".into()), AltName::Ip("10.0.0.7".parse().unwrap())];
        let world = |user: &str, addresses: Value| {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "vm-1", "uid": "n"}, "status": {"addresses": addresses}});
            World::new().with(&csr(super::super::KUBELET_SERVING, user, &names, &usages)).with(&node.to_string())
        };
        let own = json!([{"type": "InternalIP", "address": "10.0.0.7"}, {"type": "Hostname", "address": "vm-1"}]);
        let count = |world: World| ApprovingController.reconcile(&Key::cluster("c"), world.view(), &context(), &mut ()).operations.len();
        assert_eq!(count(world("system:node:vm-1", own.clone())), 1);
        assert_eq!(count(world("system:node:vm-1", json!([]))), 0, "it waits for the addresses");
        assert_eq!(
            count(world("system:node:vm-1", json!([{"type": "InternalIP", "address": "10.0.0.8"}, {"type": "Hostname", "address": "vm-1"}]))),
            0
        );
        assert_eq!(count(world("system:node:vm-2", own)), 0, "of another node");
    }
}
