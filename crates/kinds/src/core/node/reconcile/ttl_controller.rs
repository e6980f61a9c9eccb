//! `ttl-controller`: tells kubelets, in an annotation of their node, for how many seconds they may cache Secrets and ConfigMaps. The larger the
//! cluster, the longer.

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::NODES;
use crate::plan::{Operation, PatchStrategy, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::view::{Key, View};

const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// Upstream's steps: up to how many nodes, below how many it goes back a step (so that it does not flutter), seconds.
const STEPS: [(usize, usize, u32); 6] = [(100, 0, 0), (500, 90, 15), (1000, 450, 30), (2000, 900, 60), (10_000, 1800, 300), (usize::MAX, 9000, 600)];

pub struct TtlController;

impl Reconciler for TtlController {
    /// The step. After a leader change it is the lowest that fits.
    type Memory = usize;

    fn name(&self) -> &'static str {
        "ttl-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        // Other nodes follow with their next heartbeat.
        vec![Trigger::itself(NODES)]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, step: &mut usize) -> Plan {
        let mut plan = Plan::default();
        let nodes = view.records(&NODES, None).count();
        while nodes > STEPS[*step].0 {
            *step += 1;
        }
        while nodes < STEPS[*step].1 {
            *step -= 1;
        }
        let wanted = STEPS[*step].2.to_string();
        let Some(node) = view.get::<Node>("", &key.name) else { return plan };
        if node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(TTL)) == Some(&wanted) {
            return plan;
        }
        let patch = json!({"metadata": {"uid": node.metadata.uid, "annotations": {TTL: wanted}}});
        plan.operations.push(Operation::Patch { resource: NODES, key: key.clone(), subresource: "", strategy: PatchStrategy::Merge, patch });
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    #[test]
    fn steps_go_up_at_once_and_down_late() {
        let mut step = 0;
        let mut of = |nodes: usize| {
            let mut world = World::new();
            for at in 0..nodes {
                world.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{at}"), "uid": format!("u{at}")}}));
            }
            let plan = TtlController.reconcile(&Key::cluster("n0"), world.view(), &context(), &mut step);
            match &plan.operations[..] {
                [Operation::Patch { patch, .. }] => patch["metadata"]["annotations"][TTL].as_str().map(str::to_owned),
                _ => None,
            }
        };
        assert_eq!([1, 101, 95, 89].map(&mut of), ["0", "15", "15", "0"].map(|text| Some(text.to_owned())));
    }
}
