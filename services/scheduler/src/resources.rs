//! Amounts of resources, as the scheduler adds and compares them.
//!
//! CPU counts in thousandths, everything else in whole units. The rules for a pod's request are upstream's `component-helpers/resource`: the sum of the
//! containers, or what an init container needs beside the sidecars started before it, whichever is more; then the overhead.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use wheelhouse_meta::quantity::Quantity;

/// What a container without a CPU request counts as when nodes are scored.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// What a container without a memory request counts as when nodes are scored: 200 MiB.
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Extended resources, huge pages and the like, sorted by name. Usually empty.
    pub scalar: Vec<(Arc<str>, i64)>,
}

impl Resources {
    /// Reads a resource list. Names that are none of a node's resources are left out, as are quantities that do not parse.
    pub fn from_list(list: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        let mut total = Self::default();
        for (name, quantity) in list.into_iter().flatten() {
            let Ok(quantity) = Quantity::parse(&quantity.0) else { continue };
            match name.as_str() {
                "cpu" => total.milli_cpu = quantity.milli_value(),
                "memory" => total.memory = quantity.value(),
                "ephemeral-storage" => total.ephemeral_storage = quantity.value(),
                name if is_scalar(name) => total.scalar.push((Arc::from(name), quantity.value())),
                _ => {}
            }
        }
        total
    }

    pub fn scalar(&self, name: &str) -> i64 {
        self.scalar.binary_search_by(|(known, _)| (**known).cmp(name)).map_or(0, |at| self.scalar[at].1)
    }

    pub fn add(&mut self, other: &Self) {
        self.combine(other, |a, b| a + b);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, |a, b| a - b);
        self.scalar.retain(|(_, amount)| *amount != 0);
    }

    /// The larger of each amount.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = with(self.milli_cpu, other.milli_cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.scalar {
            match self.scalar.binary_search_by(|(known, _)| known.cmp(name)) {
                Ok(at) => self.scalar[at].1 = with(self.scalar[at].1, *amount),
                Err(at) => self.scalar.insert(at, (name.clone(), with(0, *amount))),
            }
        }
    }
}

fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

/// What a pod asks of its node. With `defaults`, containers that ask for no CPU or memory count with [`DEFAULT_MILLI_CPU`] and [`DEFAULT_MEMORY`].
pub fn pod_requests(pod: &Pod, defaults: bool) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let status = pod.status.as_ref();
    let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let init_statuses = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    let infeasible = resize_is_infeasible(pod);
    let request = |container: &Container, statuses: &[ContainerStatus]| container_request(container, statuses, infeasible, defaults);

    let mut total = Resources::default();
    for container in &spec.containers {
        total.add(&request(container, statuses));
    }
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let mut wanted = request(container, init_statuses);
        if container.restart_policy.as_deref() == Some("Always") {
            total.add(&wanted);
            sidecars.add(&wanted);
            wanted = sidecars.clone();
        } else {
            wanted.add(&sidecars);
        }
        starting.raise_to(&wanted);
    }
    total.raise_to(&starting);
    if let Some(list) = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()) {
        override_with_pod_level(&mut total, list);
    }
    total.add(&Resources::from_list(spec.overhead.as_ref()));
    total
}

/// Requests of the pod as a whole replace the sum of its containers, for the resources that they name.
fn override_with_pod_level(total: &mut Resources, list: &BTreeMap<String, ApiQuantity>) {
    let wanted = Resources::from_list(Some(list));
    if list.contains_key("cpu") {
        total.milli_cpu = wanted.milli_cpu;
    }
    if list.contains_key("memory") {
        total.memory = wanted.memory;
    }
    for (name, amount) in wanted.scalar.iter().filter(|(name, _)| name.starts_with("hugepages-")) {
        match total.scalar.binary_search_by(|(known, _)| known.cmp(name)) {
            Ok(at) => total.scalar[at].1 = *amount,
            Err(at) => total.scalar.insert(at, (name.clone(), *amount)),
        }
    }
}

/// During a resize in place a container counts with the most of what it asks for, has been allocated and has in effect.
fn container_request(container: &Container, statuses: &[ContainerStatus], infeasible: bool, defaults: bool) -> Resources {
    let list = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut wanted = Resources::from_list(list);
    if defaults {
        let asks = |name: &str| list.is_some_and(|list| list.contains_key(name));
        if !asks("cpu") {
            wanted.milli_cpu = DEFAULT_MILLI_CPU;
        }
        if !asks("memory") {
            wanted.memory = DEFAULT_MEMORY;
        }
    }
    if let Some(status) = statuses.iter().find(|status| status.name == container.name) {
        let actual = status.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        if infeasible {
            if actual.is_some() {
                wanted = Resources::from_list(actual);
            }
        } else {
            wanted.raise_to(&Resources::from_list(actual));
            wanted.raise_to(&Resources::from_list(status.allocated_resources.as_ref()));
        }
    }
    wanted
}

fn resize_is_infeasible(pod: &Pod) -> bool {
    wheelhouse_kinds::core::pod::state::condition(pod, "PodResizePending").is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn requests(spec: Value) -> Resources {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec});
        pod_requests(&serde_json::from_value(pod).unwrap(), false)
    }

    fn container(name: &str, cpu: &str, more: Value) -> Value {
        let mut container = json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        container
    }

    #[test]
    fn init_containers_count_beside_the_sidecars_started_before_them() {
        let spec = |init: Value| json!({"containers": [container("a", "1", json!({}))], "initContainers": init, "overhead": {"cpu": "100m"}});
        let sidecar = container("s", "500m", json!({"restartPolicy": "Always"}));
        let big = container("i", "2", json!({}));
        assert_eq!(requests(spec(json!([]))).milli_cpu, 1_100);
        assert_eq!(requests(spec(json!([big]))).milli_cpu, 2_100, "an init container needs more than the containers");
        assert_eq!(requests(spec(json!([sidecar]))).milli_cpu, 1_600, "a sidecar runs beside them");
        assert_eq!(requests(spec(json!([sidecar, big]))).milli_cpu, 2_600, "the sidecar runs while the init container does");
        assert_eq!(requests(spec(json!([big, sidecar]))).milli_cpu, 2_100, "it does not yet");
    }

    #[test]
    fn a_pods_own_requests_replace_the_sum() {
        let spec = json!({"containers": [container("a", "1", json!({}))], "resources": {"requests": {"cpu": "3", "memory": "1Ki"}}});
        let got = requests(spec);
        assert_eq!((got.milli_cpu, got.memory), (3_000, 1_024));
    }

    #[test]
    fn defaults_are_per_container_and_per_resource() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": [container("a", "1", json!({})), {"name": "b"}]}});
        let got = pod_requests(&serde_json::from_value(pod).unwrap(), true);
        assert_eq!((got.milli_cpu, got.memory), (1_100, 2 * DEFAULT_MEMORY));
    }

    #[test]
    fn extended_resources_come_and_go() {
        let list = |n: &str| Resources::from_list(Some(&BTreeMap::from([("example.com/gpu".to_owned(), ApiQuantity(n.to_owned()))])));
        let mut total = list("2");
        total.add(&list("1"));
        assert_eq!(total.scalar("example.com/gpu"), 3);
        total.subtract(&list("3"));
        assert_eq!(total, Resources::default());
    }
}
