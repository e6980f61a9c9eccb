//! The taints that a node's conditions stand for, and which pods bear them.

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use wheelhouse_base::Timestamp;

use super::status_of;
use crate::time::api_time;
use crate::validation::items;

pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
pub const NO_EXECUTE: &str = "NoExecute";
pub const NO_SCHEDULE: &str = "NoSchedule";

/// Condition, status, and the taint that goes with it (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>).
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// The keys of the NoSchedule taints that the node should have of those that are this controller's.
pub fn no_schedule(node: &Node) -> Vec<&'static str> {
    let standing = BY_CONDITION.iter().filter(|(kind, status, _)| status_of(node, kind) == Some(*status));
    let mut keys: Vec<&'static str> = standing.map(|(_, _, key)| *key).collect();
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        keys.push(UNSCHEDULABLE);
    }
    keys
}

pub fn has(node: &Node, key: &str, effect: &str) -> bool {
    all(node).iter().any(|taint| taint.key == key && taint.effect == effect)
}

pub fn all(node: &Node) -> &[Taint] {
    node.spec.as_ref().map(|spec| items(&spec.taints)).unwrap_or_default()
}

/// The node's taints with this controller's set right: NoSchedule by `no_schedule`, NoExecute by `no_execute`. Others stay, and so does the
/// date of a taint that stays. None when nothing changes.
pub fn corrected(node: &Node, no_schedule: &[&str], no_execute: Option<&str>, now: Timestamp) -> Option<Vec<Taint>> {
    let ours = |taint: &Taint| match taint.effect.as_str() {
        NO_SCHEDULE => taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, key)| *key == taint.key),
        NO_EXECUTE => taint.key == NOT_READY || taint.key == UNREACHABLE,
        _ => false,
    };
    let wanted = |taint: &Taint| match taint.effect.as_str() {
        NO_SCHEDULE => no_schedule.contains(&taint.key.as_str()),
        _ => no_execute == Some(taint.key.as_str()),
    };
    let mut taints: Vec<Taint> = all(node).iter().filter(|taint| !ours(taint) || wanted(taint)).cloned().collect();
    let missing = no_schedule.iter().map(|key| (*key, NO_SCHEDULE)).chain(no_execute.map(|key| (key, NO_EXECUTE)));
    for (key, effect) in missing.filter(|(key, effect)| !has(node, key, effect)) {
        taints.push(Taint { key: key.to_owned(), effect: effect.to_owned(), time_added: Some(api_time(now)), value: None });
    }
    (taints != all(node)).then_some(taints)
}

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    if given(&toleration.effect).is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    if given(&toleration.key).is_some_and(|key| key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        None | Some("" | "Equal") => given(&toleration.value) == given(&taint.value),
        Some("Exists") => true,
        Some(_) => false,
    }
}
