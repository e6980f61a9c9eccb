//! A node as the scheduler reads it, and what its pods use of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use wheelhouse_kinds::view::Key;
use wheelhouse_meta::quantity::Quantity;

use crate::pod::{HostPort, PodInfo};
use crate::resources::Resources;

/// What the node's object says.
#[derive(Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: Arc<str>,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    /// How many pods it takes.
    pub allowed_pods: usize,
    /// Sizes in bytes of the images it has, by name.
    pub images: HashMap<String, i64>,
}

impl NodeFacts {
    pub fn parse(name: &str, node: &Node) -> Self {
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let pods = allocatable.and_then(|list| list.get("pods")).and_then(|pods| Quantity::parse(&pods.0).ok());
        let mut images = HashMap::new();
        for image in status.into_iter().flat_map(|status| status.images.iter().flatten()) {
            images.extend(image.names.iter().flatten().map(|name| (name.clone(), image.size_bytes.unwrap_or(0))));
        }
        Self {
            name: Arc::from(name),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            unschedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
            allocatable: Resources::from_list(allocatable),
            allowed_pods: pods.map_or(0, |pods| usize::try_from(pods.value()).unwrap_or(0)),
            images,
        }
    }

    /// Region and zone, by which nodes are interleaved.
    pub fn zone(&self) -> (&str, &str) {
        let label = |name: &str| self.labels.get(name).map_or("", String::as_str);
        (label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
    }

    /// The first taint that keeps a pod with these tolerations away.
    pub fn untolerated(&self, tolerations: &[Toleration]) -> Option<&Taint> {
        let mut taints = self.taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
        taints.find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    }
}

/// `v1.Toleration.ToleratesTaint`.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.as_deref().unwrap_or_default().to_owned();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = toleration.key.as_deref().unwrap_or_default();
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

/// A node with its pods. Without `facts` only its pods are known: the node's object is gone or has not come yet.
#[derive(Debug, Default)]
pub struct NodeInfo {
    pub name: Arc<str>,
    pub facts: Option<Arc<NodeFacts>>,
    pub pods: Vec<Arc<PodInfo>>,
    pub requested: Resources,
    /// CPU and memory with defaults, as scores count them.
    pub scored: (i64, i64),
    pub host_ports: Vec<HostPort>,
}

impl NodeInfo {
    pub fn add(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.scored.0 += pod.scored_requests.0;
        self.scored.1 += pod.scored_requests.1;
        self.host_ports.extend(pod.host_ports.iter().cloned());
        self.pods.push(pod);
    }

    pub fn remove(&mut self, key: &Key) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|pod| pod.key == *key)?;
        let pod = self.pods.swap_remove(at);
        self.requested.subtract(&pod.requests);
        self.scored.0 -= pod.scored_requests.0;
        self.scored.1 -= pod.scored_requests.1;
        for port in &pod.host_ports {
            if let Some(at) = self.host_ports.iter().position(|used| used == port) {
                self.host_ports.swap_remove(at);
            }
        }
        Some(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let taint = Taint { key: "a".into(), value: Some("1".into()), effect: "NoSchedule".into(), time_added: None };
        let toleration = |key: &str, operator: &str, value: &str, effect: &str| Toleration {
            key: Some(key.into()),
            operator: Some(operator.into()),
            value: Some(value.into()),
            effect: Some(effect.into()),
            toleration_seconds: None,
        };
        assert!(tolerates(&toleration("a", "Equal", "1", ""), &taint));
        assert!(!tolerates(&toleration("a", "", "2", ""), &taint));
        assert!(tolerates(&toleration("", "Exists", "", ""), &taint));
        assert!(!tolerates(&toleration("a", "Exists", "", "NoExecute"), &taint));
        let node = NodeFacts { taints: vec![taint], ..NodeFacts::default() };
        assert!(node.untolerated(&[]).is_some());
    }
}
