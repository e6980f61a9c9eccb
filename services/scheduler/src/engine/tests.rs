use super::*;
use crate::testing::pod_value;
use serde_json::{Value, json};
use std::time::Duration;
use wheelhouse_kinds::view::{ObjectRef, ResourceName, View};

const NOW: Timestamp = Timestamp::from_secs(1_000);

/// An engine fed as in life: by a view's changes.
struct Cluster {
    engine: Engine,
    view: View,
    revision: u64,
}

impl Cluster {
    fn new() -> Self {
        Self { engine: Engine::new(7), view: View::default(), revision: 1 }
    }

    fn put(&mut self, plural: &'static str, value: Value) {
        self.revision += 1;
        let resource = ResourceName::new("", plural);
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(text("namespace"), text("name"));
        let mut fields = value.as_object().unwrap().clone();
        let kind = fields.remove("kind").unwrap().as_str().unwrap().to_owned();
        fields.remove("apiVersion");
        let metadata = fields.remove("metadata").unwrap().to_string();
        let rest = Value::Object(fields).to_string();
        let rest = if rest == "{}" { "}".to_owned() } else { format!(",{}", &rest[1..]) };
        let body = format!("{}{rest}", &metadata[1..]);
        let record = Record::parse(resource.clone(), key.clone(), "v1", kind, self.revision, body.into()).unwrap();
        let change = self.view.apply(ObjectRef { resource, key }, Some(Arc::new(record)));
        self.engine.apply(&change, NOW);
    }

    fn delete(&mut self, plural: &'static str, namespace: &str, name: &str) {
        let reference = ObjectRef { resource: ResourceName::new("", plural), key: Key::new(namespace, name) };
        let change = self.view.apply(reference, None);
        self.engine.apply(&change, NOW);
    }

    fn node(&mut self, name: &str, cpu: &str) {
        self.put(
            "nodes",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
                "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}}),
        );
    }

    fn pod(&mut self, name: &str, cpu: &str, more: Value) {
        let mut value = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
        for (section, fields) in more.as_object().unwrap() {
            for (field, content) in fields.as_object().unwrap() {
                value[section][field] = content.clone();
            }
        }
        self.put("pods", pod_value(name, value));
    }

    fn bound(&mut self) -> (String, String) {
        match self.engine.step(NOW) {
            Some(Step::Bind { pod, node }) => (pod.key.name.to_string(), node.to_string()),
            other => panic!("no binding but {other:?}"),
        }
    }

    fn reported(&mut self) -> Report {
        match self.engine.step(NOW) {
            Some(Step::Report { report, .. }) => report,
            other => panic!("no report but {other:?}"),
        }
    }
}

#[test]
fn a_pod_waits_for_its_first_node_and_counts_there_at_once() {
    let mut cluster = Cluster::new();
    cluster.pod("p", "3", json!({}));
    let report = cluster.reported();
    assert_eq!((report.message.as_str(), report.condition_changes), ("no nodes available to schedule pods", true));
    assert!(cluster.engine.step(NOW).is_none());
    cluster.node("n", "4");
    assert_eq!(cluster.bound(), ("p".into(), "n".into()));
    cluster.pod("q", "2", json!({}));
    let message = cluster.reported().message;
    let none = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!(message, none);
    cluster.engine.snapshot.check();
}

#[test]
fn an_assumption_ends_with_the_binding_seen_or_failed() {
    let mut cluster = Cluster::new();
    cluster.node("n", "4");
    cluster.pod("p", "3", json!({}));
    let Some(Step::Bind { pod, .. }) = cluster.engine.step(NOW) else { panic!("it fits") };
    // Something else of the pod changes before the binding is seen.
    cluster.pod("p", "3", json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(cluster.engine.snapshot.is_assumed(&pod.key));
    cluster.engine.bind_failed(&pod, NOW);
    assert!(cluster.engine.snapshot.placed(&pod.key).is_none());
    assert!(cluster.engine.step(NOW).is_none(), "it backs off");
    let later = NOW.plus(Duration::from_secs(1));
    assert!(matches!(cluster.engine.step(later), Some(Step::Bind { .. })));
    cluster.pod("p", "3", json!({"spec": {"nodeName": "n"}}));
    assert!(cluster.engine.snapshot.placed(&pod.key).is_some() && !cluster.engine.snapshot.is_assumed(&pod.key));
    assert_eq!(cluster.engine.waiting(), 0);
    cluster.engine.bind_failed(&pod, later);
    assert!(cluster.engine.snapshot.placed(&pod.key).is_some(), "a late failure does not undo what was seen");
    cluster.engine.snapshot.check();
}

#[test]
fn ended_and_deleted_pods_make_room() {
    let mut cluster = Cluster::new();
    cluster.node("n", "4");
    cluster.pod("done", "4", json!({"spec": {"nodeName": "n"}}));
    cluster.pod("p", "4", json!({}));
    cluster.reported();
    cluster.pod("done", "4", json!({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}}));
    assert_eq!(cluster.bound(), ("p".into(), "n".into()));
    cluster.pod("q", "4", json!({}));
    cluster.reported();
    cluster.delete("pods", "default", "p");
    assert_eq!(cluster.bound(), ("q".into(), "n".into()));
    cluster.engine.snapshot.check();
}

#[test]
fn other_schedulers_and_gates_are_respected() {
    let mut cluster = Cluster::new();
    cluster.node("n", "4");
    cluster.pod("other", "1", json!({"spec": {"schedulerName": "mine"}}));
    cluster.pod("gated", "1", json!({"spec": {"schedulingGates": [{"name": "g"}]}}));
    cluster.pod("leaving", "1", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert!(cluster.engine.step(NOW).is_none());
    cluster.pod("gated", "1", json!({}));
    assert_eq!(cluster.bound(), ("gated".into(), "n".into()));
}

#[test]
fn an_important_pod_is_nominated_and_gets_the_room_that_it_made() {
    let mut cluster = Cluster::new();
    cluster.node("n", "4");
    cluster.pod("low", "4", json!({"spec": {"nodeName": "n"}}));
    cluster.pod("high", "4", json!({"spec": {"priority": 10}}));
    let report = cluster.reported();
    assert_eq!(report.victims.iter().map(|pod| &*pod.key.name).collect::<Vec<_>>(), ["low"]);
    assert_eq!((report.nomination.as_deref(), report.message.as_str()), (Some("n"), "0/1 nodes are available: 1 Insufficient cpu."));
    // Its own status update must not set it going, nor a lesser pod take the room.
    cluster.pod("high", "4", json!({"spec": {"priority": 10}, "status": {"nominatedNodeName": "n"}}));
    cluster.pod("low2", "4", json!({}));
    assert!(cluster.reported().victims.is_empty());
    cluster.delete("pods", "default", "low");
    assert_eq!(cluster.bound(), ("high".into(), "n".into()));
    cluster.engine.snapshot.check();
}

#[test]
fn an_unchanged_condition_is_not_written_again() {
    let mut cluster = Cluster::new();
    cluster.pod("p", "1", json!({}));
    let message = cluster.reported().message;
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    cluster.pod("p", "1", json!({"status": {"conditions": [condition]}}));
    let again = match cluster.engine.step(NOW.plus(crate::queue::MAX_UNSCHEDULABLE)) {
        Some(Step::Report { report, .. }) => report,
        other => panic!("{other:?}"),
    };
    assert!(!again.condition_changes && again.nomination.is_none());
}
