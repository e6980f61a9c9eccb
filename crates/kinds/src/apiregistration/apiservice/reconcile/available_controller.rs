//! `available-controller`: says of each APIService whether the Service behind it can answer.
//!
//! Requests are not passed on to such Services by this server, so one that exists is not available either, and the condition says why.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceCondition};
use wheelhouse_meta::gotext::quote;

use super::super::AVAILABLE;
use crate::plan::{Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::{text, time};
use crate::view::{Key, ResourceName, View};

const API_SERVICES: ResourceName = ResourceName::new("apiregistration.k8s.io", "apiservices");
const SERVICES: ResourceName = ResourceName::new("", "services");

/// Keyed by the APIService.
pub struct AvailableController;

impl Reconciler for AvailableController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "available-controller"
    }

    fn is_part_of_the_server(&self) -> bool {
        true
    }

    fn triggers(&self) -> Vec<Trigger> {
        let services = Trigger {
            resource: SERVICES,
            keys: |view, change| {
                let key = &change.reference.key;
                let behind = |api: &APIService| {
                    let service = api.spec.as_ref().and_then(|spec| spec.service.as_ref());
                    service.is_some_and(|s| text(&s.namespace) == &*key.namespace && text(&s.name) == &*key.name)
                };
                view.list::<APIService>(None).filter(|api| behind(api)).map(|api| Key::cluster(text(&api.metadata.name))).collect()
            },
        };
        vec![Trigger::itself(API_SERVICES), services]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(api) = view.get::<APIService>("", &key.name) else { return plan };
        // One without a Service is this server's own, which has said so when it was made.
        let Some(service) = api.spec.as_ref().and_then(|spec| spec.service.as_ref()) else { return plan };
        let (namespace, name) = (text(&service.namespace), text(&service.name));
        let (reason, message) = match view.get::<Service>(namespace, name) {
            None => ("ServiceNotFound", format!("service/{name} in {} is not present", quote(namespace))),
            Some(_) => ("FailedDiscoveryCheck", format!("requests are not passed on to service/{name} in {}", quote(namespace))),
        };
        let mut new = (*api).clone();
        let conditions = new.status.get_or_insert_default().conditions.get_or_insert_default();
        let old = conditions.iter().position(|condition| condition.type_ == AVAILABLE);
        let said = old.map(|at| &conditions[at]);
        if said.is_some_and(|c| c.status == "False" && text(&c.reason) == reason && text(&c.message) == message) {
            return plan;
        }
        let since = said.filter(|c| c.status == "False").and_then(|c| c.last_transition_time.clone());
        let condition = APIServiceCondition {
            type_: AVAILABLE.to_owned(),
            status: "False".to_owned(),
            last_transition_time: since.or_else(|| time(cx.now)),
            reason: Some(reason.to_owned()),
            message: Some(message),
        };
        match old {
            Some(at) => conditions[at] = condition,
            None => conditions.push(condition),
        }
        let object = serde_json::to_value(&new).expect("an APIService is plain data");
        plan.operations.push(Operation::Update { resource: API_SERVICES, subresource: "status", object });
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    const API: &str = r#"{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v2.x.io","uid":"a"},
        "spec":{"group":"x.io","version":"v2","groupPriorityMinimum":1,"versionPriority":1,"service":{"namespace":"nope","name":"s"}}}"#;

    fn message(world: &World) -> Option<String> {
        let plan = AvailableController.reconcile(&Key::cluster("v2.x.io"), world.view(), &context(), &mut ());
        let [Operation::Update { object, subresource: "status", .. }] = &plan.operations[..] else { return None };
        let condition = &object["status"]["conditions"][0];
        Some(format!("{} {}", condition["reason"].as_str().unwrap_or_default(), condition["message"].as_str().unwrap_or_default()))
    }

    /// The first message is recorded from upstream 1.36.
    #[test]
    fn an_api_is_as_available_as_its_service() {
        let world = World::new().with(API);
        assert_eq!(message(&world).as_deref(), Some("ServiceNotFound service/s in \"nope\" is not present"));
        let service = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","namespace":"nope","uid":"s"},"spec":{}}"#;
        assert!(message(&world.with(service)).is_some_and(|text| text.starts_with("FailedDiscoveryCheck")));
        let own = API.replace(r#","service":{"namespace":"nope","name":"s"}"#, "");
        assert_eq!(message(&World::new().with(&own)), None);
    }
}
