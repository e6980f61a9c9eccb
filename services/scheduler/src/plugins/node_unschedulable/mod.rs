//! Keeps pods off cordoned nodes, unless they tolerate the taint that cordoning stands for.

use k8s_openapi::api::core::v1::Taint;

use crate::change::Change;
use crate::node::{NodeFacts, tolerates};
use crate::plugins::{Plugin, Rejection};
use crate::pod::PodInfo;

pub fn filter(pod: &PodInfo, node: &NodeFacts) -> Result<(), Rejection> {
    if passes(pod, node) { Ok(()) } else { Err(Rejection::unresolvable(Plugin::NodeUnschedulable, "node(s) were unschedulable")) }
}

fn passes(pod: &PodInfo, node: &NodeFacts) -> bool {
    if !node.unschedulable {
        return true;
    }
    let taint = Taint { key: "node.kubernetes.io/unschedulable".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    pod.tolerations().iter().any(|toleration| tolerates(toleration, &taint))
}

pub fn helps(pod: &PodInfo, change: &Change) -> bool {
    change.node_becomes(|node| passes(pod, node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn a_cordoned_node_takes_only_who_tolerates_it() {
        let cordoned = node("n", json!({"spec": {"unschedulable": true}}));
        let plain = pod("p", json!({}));
        assert_eq!(filter(&plain, &cordoned).unwrap_err().reasons, ["node(s) were unschedulable"]);
        let tolerant = pod("p", json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}}));
        assert!(filter(&tolerant, &cordoned).is_ok());
        let open = node("n", json!({}));
        assert!(helps(&plain, &Change::Node { old: Some(cordoned.clone()), new: Some(open.clone()) }));
        assert!(!helps(&plain, &Change::Node { old: Some(open), new: Some(cordoned) }));
    }
}
