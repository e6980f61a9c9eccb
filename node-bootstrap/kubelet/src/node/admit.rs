//! Whether this node takes a pod that was bound to it: the scheduler's word may be old, and some pods come by without it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::spec::NodeFacts;
use crate::spec::resources::request;

/// A refusal as the pod's status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub reason: String,
    pub message: String,
}

/// `others` are the pods that the node has already.
pub fn check(pod: &Pod, others: &[Arc<Pod>], node: &NodeFacts, max_pods: u32) -> Result<(), Refused> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS".to_owned();
        return Err(Refused { reason: "PodOSNotSupported".into(), message });
    }
    let running: Vec<&Arc<Pod>> =
        others.iter().filter(|other| !matches!(wheelhouse_kinds::core::pod::state::phase(other), "Succeeded" | "Failed")).collect();
    if running.len() >= max_pods as usize {
        return Err(short("pods", 1, running.len() as i64, i64::from(max_pods)));
    }
    for (name, value, capacity) in [("cpu", cpu as fn(&PodSpec) -> i64, node.allocatable_cpu_milli), ("memory", memory, node.allocatable_memory)] {
        let asked = value(spec);
        let used: i64 = running.iter().filter_map(|other| other.spec.as_ref()).map(value).sum();
        if asked > 0 && used + asked > capacity {
            return Err(short(name, asked, used, capacity));
        }
    }
    Ok(())
}

fn short(resource: &str, requested: i64, used: i64, capacity: i64) -> Refused {
    let message =
        format!("Pod was rejected: Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}");
    Refused { reason: format!("OutOf{resource}"), message }
}

fn cpu(spec: &PodSpec) -> i64 {
    requested(spec, "cpu", |quantity| quantity.milli_value())
}

fn memory(spec: &PodSpec) -> i64 {
    requested(spec, "memory", |quantity| quantity.value())
}

/// What runs together: the containers with sidecars, or an init container with the sidecars before it if that is more.
fn requested(spec: &PodSpec, name: &str, value: fn(wheelhouse_meta::Quantity) -> i64) -> i64 {
    let of = |container: &Container| request(container.resources.as_ref(), name).map_or(0, value);
    let (mut sidecars, mut most) = (0, 0);
    for init in spec.init_containers.iter().flatten() {
        if crate::lifecycle::is_sidecar(init) {
            sidecars += of(init);
            most = most.max(sidecars);
        } else {
            most = most.max(sidecars + of(init));
        }
    }
    let own = request(spec.resources.as_ref(), name).map(value);
    let overhead = spec.overhead.as_ref().and_then(|overhead| overhead.get(name));
    let overhead = overhead.and_then(|quantity| wheelhouse_meta::Quantity::parse(&quantity.0).ok()).map_or(0, value);
    own.unwrap_or_else(|| (spec.containers.iter().map(of).sum::<i64>() + sidecars).max(most)) + overhead
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_full_node_says_of_what() {
        let pod = |cpu: &str| -> Arc<Pod> {
            let spec = json!({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "700m"}}}],
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}]});
            Arc::new(serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec})).unwrap())
        };
        let node = NodeFacts { allocatable_cpu_milli: 2000, allocatable_memory: 10 << 20, ..NodeFacts::default() };
        assert_eq!(check(&pod("1"), &[pod("100m")], &node, 10), Ok(()));
        let refused = check(&pod("1"), &[pod("1"), pod("500m")], &node, 10).unwrap_err();
        assert_eq!(refused.reason, "OutOfcpu");
        assert_eq!(refused.message, "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 1700, capacity: 2000");
        assert_eq!(check(&pod("1m"), &[pod("1m")], &node, 1).unwrap_err().reason, "OutOfpods");
    }
}
