//! Which nodes a daemon runs on.

use k8s_openapi::api::apps::v1::DaemonSetSpec;
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

use crate::core::node::affinity::RequiredNodes;
use crate::core::node::reconcile::taints::{self, NO_EXECUTE, NO_SCHEDULE};
use crate::core::pod::state;
use crate::validation::{items, text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A pod belongs there.
    Run,
    /// None is begun, but one that is there may stay: the node has a NoSchedule taint that the daemon does not bear.
    Stay,
    /// None belongs there.
    Go,
}

/// Taints that every daemon bears: a node is not well, and its daemons are there to see to that.
const BORNE: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
];
/// Borne as well by daemons that use the node's own network.
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE);

/// A template's conditions on nodes.
pub struct Rule {
    node_name: String,
    required: RequiredNodes,
    tolerations: Vec<Toleration>,
}

impl Rule {
    pub fn of(spec: &DaemonSetSpec) -> Self {
        let pod = spec.template.spec.clone().unwrap_or_default();
        Self { node_name: text(&pod.node_name).to_owned(), required: RequiredNodes::parse(&pod), tolerations: tolerations(spec) }
    }

    pub fn placement(&self, node: &Node) -> Placement {
        let name = text(&node.metadata.name);
        let labels = node.metadata.labels.clone().unwrap_or_default();
        if (!self.node_name.is_empty() && self.node_name != name) || !self.required.matches(name, &labels) {
            return Placement::Go;
        }
        let borne = |taint: &Taint| self.tolerations.iter().any(|toleration| taints::tolerates(toleration, taint));
        let unborne = |effect: &str| taints::all(node).iter().any(|taint| taint.effect == effect && !borne(taint));
        match (unborne(NO_EXECUTE), unborne(NO_SCHEDULE)) {
            (true, _) => Placement::Go,
            (false, true) => Placement::Stay,
            (false, false) => Placement::Run,
        }
    }
}

/// The template's tolerations and those of every daemon.
pub fn tolerations(spec: &DaemonSetSpec) -> Vec<Toleration> {
    let pod = spec.template.spec.clone().unwrap_or_default();
    let mut all = items(&pod.tolerations).to_vec();
    let more = BORNE.into_iter().chain((pod.host_network == Some(true)).then_some(NO_NETWORK));
    for (key, effect) in more {
        let toleration =
            Toleration { key: Some(key.to_owned()), operator: Some("Exists".to_owned()), effect: Some(effect.to_owned()), ..Toleration::default() };
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

/// The node that a daemon's pod is on, or for.
pub fn target(pod: &Pod) -> Option<String> {
    if !state::node(pod).is_empty() {
        return Some(state::node(pod).to_owned());
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| items(&term.match_fields));
    let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In").filter_map(|field| items(&field.values).first());
    names.next().cloned()
}
