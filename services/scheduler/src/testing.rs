//! Builders for tests.

use std::sync::Arc;

use serde_json::{Value, json};
use wheelhouse_kinds::view::Key;

use crate::cycle;
use crate::node::NodeFacts;
use crate::plugins::pod_topology_spread;
use crate::pod::PodInfo;
use crate::snapshot::{NodeId, Snapshot};

/// A cluster in the making.
#[derive(Default)]
pub struct World {
    pub snapshot: Snapshot,
}

impl World {
    pub fn node(&mut self, name: &str, object: Value) {
        self.snapshot.set_node(name, Some(node(name, object)));
    }

    /// Makes ready what plugins read for this pod; answers the nodes.
    pub fn prepare(&mut self, pod: &PodInfo) -> Arc<[NodeId]> {
        let (soft, _) = pod_topology_spread::soft_constraints(pod, &self.snapshot);
        cycle::prepare(pod, &soft, &mut self.snapshot);
        self.snapshot.order()
    }
}

fn object(kind: &str, name: &str, mut object: Value) -> Value {
    object["apiVersion"] = json!("v1");
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    object
}

/// A node with plenty of room unless `value` says otherwise.
pub fn node(name: &str, value: Value) -> Arc<NodeFacts> {
    let mut value = object("Node", name, value);
    if value["status"]["allocatable"].is_null() {
        value["status"]["allocatable"] = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    }
    Arc::new(NodeFacts::parse(name, &serde_json::from_value(value).unwrap()))
}

pub fn sized(cpu: &str, memory: &str, pods: &str) -> Value {
    json!({"status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}}})
}

/// A pod of the namespace `default` unless `value` says otherwise.
pub fn pod_value(name: &str, value: Value) -> Value {
    let mut value = object("Pod", name, value);
    if value["metadata"]["namespace"].is_null() {
        value["metadata"]["namespace"] = json!("default");
    }
    if value["metadata"]["uid"].is_null() {
        value["metadata"]["uid"] = json!(format!("uid-{name}"));
    }
    if value["spec"]["containers"].is_null() {
        value["spec"]["containers"] = json!([{"name": "c"}]);
    }
    value
}

pub fn pod(name: &str, value: Value) -> Arc<PodInfo> {
    let value = pod_value(name, value);
    let key = Key::new(value["metadata"]["namespace"].as_str().unwrap(), name);
    Arc::new(PodInfo::parse(key, 1, Arc::new(serde_json::from_value(value).unwrap())))
}

pub fn pod_with(name: &str, cpu: &str, memory: &str) -> Arc<PodInfo> {
    pod(name, json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}}))
}
