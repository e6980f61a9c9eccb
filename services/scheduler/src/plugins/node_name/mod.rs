//! A pod that names its node runs there or nowhere.

use crate::change::Change;
use crate::node::NodeFacts;
use crate::plugins::{Plugin, Rejection};
use crate::pod::PodInfo;

pub fn filter(pod: &PodInfo, node: &NodeFacts) -> Result<(), Rejection> {
    if pod.node().is_empty() || pod.node() == &*node.name {
        return Ok(());
    }
    Err(Rejection::unresolvable(Plugin::NodeName, "node(s) didn't match the requested node name"))
}

pub fn helps(pod: &PodInfo, change: &Change) -> bool {
    change.node_becomes(|node| filter(pod, node).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn only_the_named_node_passes() {
        let named = pod("p", json!({"spec": {"nodeName": "a"}}));
        assert!(filter(&named, &node("a", json!({}))).is_ok());
        assert_eq!(filter(&named, &node("b", json!({}))).unwrap_err().reasons, ["node(s) didn't match the requested node name"]);
    }
}
