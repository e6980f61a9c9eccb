//! `serviceaccount-controller`: keeps the `default` ServiceAccount in every namespace.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use serde_json::json;

use crate::plan::{Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::view::{Key, ResourceName, View};

const NAMESPACES: ResourceName = ResourceName::new("", "namespaces");
const SERVICE_ACCOUNTS: ResourceName = ResourceName::new("", "serviceaccounts");
const DEFAULT: &str = "default";

/// Keyed by the namespace.
pub struct ServiceAccountController;

impl Reconciler for ServiceAccountController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "serviceaccount-controller"
    }

    fn service_account(&self) -> &'static str {
        "service-account-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let accounts = Trigger {
            resource: SERVICE_ACCOUNTS,
            keys: |_, change| {
                let lost = change.new.is_none() && &*change.reference.key.name == DEFAULT;
                if lost { vec![Key::cluster(change.reference.key.namespace.clone())] } else { Vec::new() }
            },
        };
        vec![Trigger::itself(NAMESPACES), accounts]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(namespace) = view.get::<Namespace>("", &key.name) else { return plan };
        if namespace.metadata.deletion_timestamp.is_none() && view.get::<ServiceAccount>(&key.name, DEFAULT).is_none() {
            let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT, "namespace": &*key.name}});
            plan.operations.push(Operation::Create { resource: SERVICE_ACCOUNTS, namespace: key.name.to_string(), object });
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    #[test]
    fn a_living_namespace_has_a_default_account() {
        let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","uid":"n"}}"#;
        let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"a","uid":"s"}}"#;
        let plan = |world: &World| ServiceAccountController.reconcile(&Key::cluster("a"), world.view(), &context(), &mut ());
        assert!(matches!(&plan(&World::new().with(namespace)).operations[..], [Operation::Create { .. }]));
        assert!(plan(&World::new().with(namespace).with(account)).is_empty());
        assert!(plan(&World::new()).is_empty());
    }
}
