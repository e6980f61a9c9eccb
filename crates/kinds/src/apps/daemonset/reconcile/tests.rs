use serde_json::{Value, json};

use super::*;
use crate::reconciler::testing::Cluster;
use crate::time::api_time;

struct Run {
    cluster: Cluster,
    memory: BTreeMap<Key, failures::Failures>,
}

impl Run {
    fn new(nodes: &[&str], spec: Value) -> Self {
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "a"},
            "spec": {
                "selector": {"matchLabels": {"app": "d"}},
                "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "one"}]}},
            },
        });
        wheelhouse_meta::patch::merge_value(&mut set["spec"], spec);
        let mut cluster = Cluster::default();
        for node in nodes {
            cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}));
        }
        cluster.create(set);
        Self { cluster, memory: BTreeMap::new() }
    }

    fn settle(&mut self) -> Option<Timestamp> {
        self.cluster.settle(&DaemonSetController, &Key::new("a", "d"), &mut self.memory)
    }

    fn pods(&self) -> Vec<Value> {
        self.cluster.names(&PODS, "a").iter().map(|name| self.cluster.get(&PODS, "a", name)).collect()
    }

    /// `node image` of each pod that is not on its way out.
    fn placed(&self) -> Vec<String> {
        let staying = self.pods().into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let mut placed: Vec<String> = staying
            .map(|pod| {
                let node = placement::target(&serde_json::from_value(pod.clone()).unwrap()).unwrap();
                format!("{node} {}", pod["spec"]["containers"][0]["image"].as_str().unwrap())
            })
            .collect();
        placed.sort();
        placed
    }

    /// Pods are bound and become ready, and those on their way out are gone.
    fn kubelets(&mut self) {
        let now = json!(api_time(self.cluster.now));
        for pod in self.pods() {
            let name = pod["metadata"]["name"].as_str().unwrap();
            if pod["metadata"]["deletionTimestamp"].is_string() {
                self.cluster.pod_stops("a", name);
            } else if pod["status"]["phase"] != "Running" {
                let node = placement::target(&serde_json::from_value(pod.clone()).unwrap()).unwrap();
                self.cluster.edit(&PODS, "a", name, |pod| {
                    pod["spec"]["nodeName"] = json!(node);
                    pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]});
                });
            }
        }
        self.settle();
    }

    fn image(&mut self, image: &str) {
        self.cluster.edit(&SETS, "a", "d", |set| {
            set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            let generation: i64 = set["metadata"]["annotations"][crate::apps::daemonset::TEMPLATE_GENERATION].as_str().unwrap().parse().unwrap();
            set["metadata"]["annotations"][crate::apps::daemonset::TEMPLATE_GENERATION] = json!((generation + 1).to_string());
        });
        self.settle();
    }

    fn taint(&mut self, node: &str, key: &str, effect: &str) {
        self.cluster.edit(&NODES, "", node, |node| node["spec"]["taints"] = json!([{"key": key, "effect": effect}]));
        self.settle();
    }

    fn status(&self) -> Value {
        self.cluster.get(&SETS, "a", "d")["status"].clone()
    }
}

#[test]
fn every_node_that_fits_has_a_pod() {
    let mut run = Run::new(&["x", "y", "z"], json!({"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}));
    run.settle();
    assert!(run.pods().is_empty());
    for node in ["x", "y"] {
        run.cluster.edit(&NODES, "", node, |node| node["metadata"]["labels"] = json!({"disk": "ssd"}));
    }
    run.settle();
    assert_eq!(run.placed(), ["x one", "y one"]);
    let pod = run.pods()[0].clone();
    let labels = &pod["metadata"]["labels"];
    assert_eq!((&labels["pod-template-generation"], &pod["metadata"]["generateName"]), (&json!("1"), &json!("d-")));
    let revision = run.cluster.names(&REVISIONS, "a");
    assert_eq!(revision, [format!("d-{}", labels["controller-revision-hash"].as_str().unwrap())]);
    let tolerated: Vec<&str> = pod["spec"]["tolerations"].as_array().unwrap().iter().map(|t| t["key"].as_str().unwrap()).collect();
    assert_eq!(tolerated.len(), 6);
    run.kubelets();
    let status = run.status();
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let fields = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "numberAvailable",
        "updatedNumberScheduled",
        "numberMisscheduled",
        "numberUnavailable",
    ];
    assert_eq!(fields.map(number), [2, 2, 2, 2, 2, 0, 0]);
    run.cluster.edit(&NODES, "", "x", |node| node["metadata"]["labels"] = json!({}));
    run.settle();
    assert_eq!((run.placed(), run.status()["numberMisscheduled"].clone()), (vec!["y one".to_owned()], json!(1)));
}

#[test]
fn taints_keep_new_pods_away_or_drive_them_out() {
    let mut run = Run::new(&["x"], json!({}));
    run.taint("x", "k", "NoSchedule");
    assert!(run.placed().is_empty());
    run.taint("x", "node.kubernetes.io/unschedulable", "NoSchedule");
    assert_eq!(run.placed(), ["x one"], "every daemon bears it");
    run.kubelets();
    run.taint("x", "k", "NoSchedule");
    assert_eq!((run.placed(), run.status()["desiredNumberScheduled"].clone()), (vec!["x one".to_owned()], json!(0)), "it may stay");
    run.taint("x", "k", "NoExecute");
    assert!(run.placed().is_empty());
}

#[test]
fn failed_pods_are_made_anew_ever_more_slowly() {
    let mut run = Run::new(&["x"], json!({}));
    run.settle();
    run.kubelets();
    let fail = |run: &mut Run| {
        let name = run.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
        run.cluster.pod_stops("a", &name);
        (name, run.settle())
    };
    let (first, _) = fail(&mut run);
    assert_ne!(run.pods()[0]["metadata"]["name"], first.as_str());
    let (second, again) = fail(&mut run);
    assert_eq!(
        (run.pods()[0]["metadata"]["name"].as_str(), again),
        (Some(second.as_str()), Some(run.cluster.now.plus(std::time::Duration::from_secs(1))))
    );
    run.cluster.wait(1);
    run.settle();
    assert_ne!(run.pods()[0]["metadata"]["name"], second.as_str());
    assert!(run.cluster.events.contains(&format!("FailedDaemonPod: Found failed daemon pod a/{first} on node x, will try to kill it")));
}

#[test]
fn an_update_takes_one_node_after_the_other_and_back() {
    let mut run = Run::new(&["x", "y"], json!({}));
    run.settle();
    run.kubelets();
    run.image("two");
    assert_eq!(run.placed(), ["y one"]);
    run.kubelets();
    assert_eq!(run.placed(), ["x two", "y one"]);
    run.kubelets();
    run.kubelets();
    run.kubelets();
    assert_eq!(run.placed(), ["x two", "y two"]);
    let kept: Vec<Value> = run.pods().iter().map(|pod| pod["metadata"]["uid"].clone()).collect();
    run.image("broken");
    run.image("two");
    let left: Vec<Value> =
        run.pods().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).map(|pod| pod["metadata"]["uid"].clone()).collect();
    assert_eq!(left.len(), 1);
    assert!(kept.contains(&left[0]), "a rollback restarts nothing that is right already");
    run.kubelets();
    assert_eq!(run.placed(), ["x two", "y two"]);
    assert_eq!(run.cluster.names(&REVISIONS, "a").len(), 3);
}

#[test]
fn a_surge_begins_the_new_pod_first() {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let mut run = Run::new(&["x", "y"], json!({"updateStrategy": strategy}));
    run.settle();
    run.kubelets();
    run.image("two");
    assert_eq!(run.placed(), ["x one", "x two", "y one"]);
    run.kubelets();
    assert_eq!(run.placed(), ["x two", "y one", "y two"], "the old one goes once the new one serves, and the next node has its turn");
    run.kubelets();
    run.kubelets();
    assert_eq!(run.placed(), ["x two", "y two"]);
}

#[test]
fn on_delete_waits_for_someone_to_delete() {
    let mut run = Run::new(&["x"], json!({"updateStrategy": {"type": "OnDelete"}}));
    run.settle();
    run.image("two");
    assert_eq!((run.placed(), run.status()["updatedNumberScheduled"].clone()), (vec!["x one".to_owned()], Value::Null));
    let name = run.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    run.cluster.delete(&PODS, "a", &name);
    run.settle();
    assert_eq!(run.placed(), ["x two"]);
}
