//! Resources as cgroup settings.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use wheelhouse_kinds::core::pod::qos::qos_class;
use wheelhouse_meta::Quantity;

use super::{NodeFacts, meta};
use crate::cri::api::LinuxContainerResources;

const SHARES_PER_CPU: i64 = 1024;
/// The kernel's least.
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
/// The kernel's default, in microseconds.
const PERIOD: i64 = 100_000;
/// Below this the kernel refuses.
const MIN_QUOTA: i64 = 1000;
/// Highest bound for what can be killed first; 1000 is what BestEffort gets.
const BEST_EFFORT_OOM: i64 = 1000;
const GUARANTEED_OOM: i64 = -997;

fn amount(map: Option<&std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>, name: &str) -> Option<Quantity> {
    map.and_then(|map| map.get(name)).and_then(|quantity| Quantity::parse(&quantity.0).ok())
}

pub fn request(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    amount(resources.and_then(|r| r.requests.as_ref()), name)
}

pub fn limit(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    amount(resources.and_then(|r| r.limits.as_ref()), name)
}

pub fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(SHARES_PER_CPU) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

pub fn quota(milli: i64) -> i64 {
    (milli.saturating_mul(PERIOD) / 1000).max(MIN_QUOTA)
}

/// `cpu.weight` of the unified hierarchy for the shares of the old one.
pub fn weight(shares: i64) -> i64 {
    1 + (shares.clamp(MIN_SHARES, MAX_SHARES) - 2) * 9999 / 262_142
}

/// What a container's cgroup gets.
pub fn of_container(pod: &Pod, container: &Container, node: &NodeFacts) -> LinuxContainerResources {
    let resources = container.resources.as_ref();
    let (cpu_request, cpu_limit) = (request(resources, "cpu"), limit(resources, "cpu"));
    let memory_limit = limit(resources, "memory").map_or(0, |quantity| quantity.value());
    // A limit without a request is one; without either there are the fewest shares.
    let shares = cpu_request.or_else(|| cpu_limit.clone()).map_or(MIN_SHARES, |quantity| shares(quantity.milli_value()));
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: cpu_limit.map_or(0, |quantity| quota(quantity.milli_value())),
        cpu_shares: shares,
        memory_limit_in_bytes: memory_limit,
        // No swap beyond the memory limit.
        memory_swap_limit_in_bytes: memory_limit,
        oom_score_adj: oom_score(pod, container, node),
        ..LinuxContainerResources::default()
    }
}

/// Upstream's order of dying: the less a Burstable container asked for, the earlier.
fn oom_score(pod: &Pod, container: &Container, node: &NodeFacts) -> i64 {
    let Some(spec) = &pod.spec else { return BEST_EFFORT_OOM };
    if spec.priority.is_some_and(|priority| priority >= 2_000_000_000) {
        return GUARANTEED_OOM;
    }
    match qos_class(spec) {
        "Guaranteed" => GUARANTEED_OOM,
        "BestEffort" => BEST_EFFORT_OOM,
        _ => {
            let asked = request(container.resources.as_ref(), "memory").map_or(0, |quantity| quantity.value());
            let share = 1000_i64.saturating_mul(asked).checked_div(node.allocatable_memory).unwrap_or(0);
            (1000 - share).clamp(1000 + GUARANTEED_OOM, BEST_EFFORT_OOM - 1)
        }
    }
}

/// The cgroup of a pod, below the node's root: Guaranteed pods lie in the root itself.
pub fn pod_cgroup(pod: &Pod, node: &NodeFacts) -> String {
    let class = pod.spec.as_ref().map_or("BestEffort", qos_class);
    let uid = meta(&pod.metadata.uid);
    let root = node.cgroup_root.trim_end_matches('/');
    match class {
        "Guaranteed" => format!("{root}/pod{uid}"),
        class => format!("{root}/{}/pod{uid}", class.to_lowercase()),
    }
}

/// What a whole pod's cgroup gets: the sum of its containers, a limit only where each has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodLimits {
    pub shares: i64,
    /// Microseconds in 100 ms.
    pub quota: Option<i64>,
    pub memory: Option<i64>,
}

pub fn pod_limits(pod: &Pod) -> PodLimits {
    let Some(spec) = &pod.spec else { return PodLimits { shares: MIN_SHARES, quota: None, memory: None } };
    let sidecar = |container: &&Container| crate::lifecycle::is_sidecar(container);
    let lasting: Vec<&Container> = spec.containers.iter().chain(spec.init_containers.iter().flatten().filter(sidecar)).collect();
    let inits: Vec<&Container> = spec.init_containers.iter().flatten().filter(|container| !sidecar(container)).collect();
    let milli = |quantity: Quantity| quantity.milli_value();
    let bytes = |quantity: Quantity| quantity.value();
    let request_milli = |c: &Container| request(c.resources.as_ref(), "cpu").or_else(|| limit(c.resources.as_ref(), "cpu")).map_or(0, milli);
    let requested: i64 = lasting.iter().map(|c| request_milli(c)).sum();
    let requested = inits.iter().map(|c| request_milli(c)).fold(requested, i64::max);
    let total = |name: &str, value: fn(Quantity) -> i64| -> Option<i64> {
        let sum: Option<i64> = lasting.iter().map(|c| limit(c.resources.as_ref(), name).map(value)).sum();
        let most: Option<Vec<i64>> = inits.iter().map(|c| limit(c.resources.as_ref(), name).map(value)).collect();
        most?.into_iter().chain(sum).max()
    };
    let own = |name: &str| limit(spec.resources.as_ref(), name);
    let requested = request(spec.resources.as_ref(), "cpu").map_or(requested, milli);
    PodLimits {
        shares: shares(requested),
        quota: own("cpu").map(milli).or_else(|| total("cpu", milli)).map(quota),
        memory: own("memory").map(bytes).or_else(|| total("memory", bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(containers: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"uid": "u"}, "spec": {"containers": containers}})).unwrap()
    }

    #[test]
    fn classes_decide_cgroup_and_order_of_dying() {
        let node = NodeFacts { cgroup_root: "/vm/kubepods".into(), allocatable_memory: 1000 << 20, ..NodeFacts::default() };
        let guaranteed =
            pod(json!([{"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "500m", "memory": "64Mi"}}}]));
        let burstable = pod(json!([{"name": "a", "resources": {"requests": {"memory": "100Mi"}}}]));
        let best = pod(json!([{"name": "a"}]));
        let of = |pod: &Pod| (pod_cgroup(pod, &node), of_container(pod, &pod.spec.as_ref().unwrap().containers[0], &node));
        let (cgroup, resources) = of(&guaranteed);
        assert_eq!((cgroup.as_str(), resources.oom_score_adj, resources.cpu_shares, resources.cpu_quota), ("/vm/kubepods/podu", -997, 512, 50_000));
        assert_eq!(resources.memory_limit_in_bytes, 64 << 20);
        let (cgroup, resources) = of(&burstable);
        assert_eq!((cgroup.as_str(), resources.oom_score_adj, resources.cpu_shares), ("/vm/kubepods/burstable/podu", 900, 2));
        let (cgroup, resources) = of(&best);
        assert_eq!((cgroup.as_str(), resources.oom_score_adj), ("/vm/kubepods/besteffort/podu", 1000));
    }

    #[test]
    fn a_pod_is_limited_only_if_every_container_is() {
        let one = json!({"name": "a", "resources": {"limits": {"cpu": "1", "memory": "10Mi"}}});
        assert_eq!(pod_limits(&pod(json!([one, {"name": "b"}]))), PodLimits { shares: 1024, quota: None, memory: None });
        assert_eq!(pod_limits(&pod(json!([one, one]))), PodLimits { shares: 2048, quota: Some(200_000), memory: Some(20 << 20) });
        assert_eq!((weight(2), weight(1024), weight(262_144)), (1, 39, 10_000));
    }
}
