//! `node-departure-controller`: deletes a Node that says of itself that its machine has left. Upstream has no such thing: there an administrator does it.
//!
//! Only the node's own credential, or an administrator's, can set the annotation (NodeRestriction), so no node takes another one out.

use super::{NODES, SERVICE_ACCOUNT};
use crate::core::node::LEAVING;
use crate::plan::{DeleteOptions, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::view::{Key, View};

pub struct NodeDepartureController;

impl Reconciler for NodeDepartureController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "node-departure-controller"
    }

    fn service_account(&self) -> &'static str {
        SERVICE_ACCOUNT
    }

    fn triggers(&self) -> Vec<Trigger> {
        vec![Trigger::itself(NODES)]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, (): &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(record) = view.record(&NODES, key).filter(|record| !record.deleting()) else { return plan };
        if record.meta.annotations.as_ref().and_then(|all| all.get(LEAVING)).is_some_and(|value| value == "true") {
            let options = DeleteOptions { uid: record.meta.uid.clone(), ..DeleteOptions::default() };
            plan.operations.push(Operation::Delete { resource: NODES, key: key.clone(), options });
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    #[test]
    fn only_a_node_that_says_so_goes() {
        let node =
            |annotations: &str| format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"n","uid":"u","annotations":{annotations}}}}}"#);
        let count = |annotations: &str| {
            let world = World::new().with(&node(annotations));
            NodeDepartureController.reconcile(&Key::cluster("n"), world.view(), &context(), &mut ()).operations.len()
        };
        assert_eq!((count("{}"), count(r#"{"node.wheelhouse.dev/leaving":"true"}"#)), (0, 1));
    }
}
