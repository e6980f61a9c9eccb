//! DefaultTolerationSeconds and TaintNodesByCondition: how nodes that are not ready are avoided and left.

use serde_json::{Value, json};

use super::pod::{list_mut, text};
use super::{Operation, Request};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Seconds that a pod stays on a node that is not ready or unreachable, unless it says otherwise.
const TOLERATION_SECONDS: i64 = 300;

/// A pod tolerates both taints for five minutes unless it says something about them.
pub(super) fn default_tolerations(request: &Request<'_>, pod: &mut Value) {
    if !request.is("", "pods") || !matches!(request.operation, Operation::Create | Operation::Update) {
        return;
    }
    for taint in [NOT_READY, UNREACHABLE] {
        let speaks_of = |t: &Value| matches!(text(t, "key"), "" | NOT_READY | UNREACHABLE) && (text(t, "key").is_empty() || text(t, "key") == taint);
        let evicts = |t: &Value| matches!(text(t, "effect"), "" | "NoExecute");
        let said = pod["spec"]["tolerations"].as_array().is_some_and(|list| list.iter().any(|t| speaks_of(t) && evicts(t)));
        if !said {
            let toleration = json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS});
            list_mut(&mut pod["spec"], "tolerations").push(toleration);
        }
    }
}

/// A new node is not ready until its kubelet says so.
pub(super) fn taint_new_node(request: &Request<'_>, node: &mut Value) {
    if !request.is("", "nodes") || request.operation != Operation::Create {
        return;
    }
    if !node["spec"].is_object() {
        node["spec"] = json!({});
    }
    let taints = list_mut(&mut node["spec"], "taints");
    if !taints.iter().any(|t| text(t, "key") == NOT_READY && text(t, "effect") == "NoSchedule") {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
