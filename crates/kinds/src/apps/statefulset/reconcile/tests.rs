use serde_json::{Value, json};

use super::*;
use crate::reconciler::testing::Cluster;
use crate::time::api_time;

struct Run(Cluster);

impl Run {
    fn new(spec: Value) -> Self {
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "namespace": "a"},
            "spec": {
                "serviceName": "svc", "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "one"}]}},
            },
        });
        wheelhouse_meta::patch::merge_value(&mut set["spec"], spec);
        let mut cluster = Cluster::default();
        cluster.create(set);
        Self(cluster)
    }

    fn settle(&mut self) -> Vec<String> {
        self.0.settle(&StatefulSetController, &Key::new("a", "web"), &mut ());
        self.names()
    }

    fn names(&self) -> Vec<String> {
        self.0.names(&PODS, "a")
    }

    fn pod(&self, name: &str) -> Value {
        self.0.get(&PODS, "a", name)
    }

    fn ready(&mut self, name: &str, is_ready: bool) {
        let now = json!(api_time(self.0.now));
        self.0.edit(&PODS, "a", name, |pod| {
            pod["spec"]["nodeName"] = json!("n");
            let status = if is_ready { "True" } else { "False" };
            pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": now}]});
        });
    }

    /// Every pod becomes ready, and those that are stopping stop, until nothing moves. Answers the order in which pods went.
    fn run_on(&mut self) -> Vec<String> {
        let mut gone = Vec::new();
        for _ in 0..50 {
            self.settle();
            let mut moved = false;
            for name in self.names() {
                let pod = self.pod(&name);
                if pod["metadata"]["deletionTimestamp"].is_string() {
                    self.0.pod_stops("a", &name);
                    gone.push(name);
                    moved = true;
                } else if pod["status"]["phase"] != "Running" {
                    self.ready(&name, true);
                    moved = true;
                }
            }
            if !moved {
                return gone;
            }
        }
        panic!("it never settles");
    }

    fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        self.0.edit(&SETS, "a", "web", |set| change(&mut set["spec"]));
    }

    fn image(&mut self, image: &str) {
        self.edit(|spec| spec["template"]["spec"]["containers"][0]["image"] = json!(image));
    }

    fn images(&self) -> Vec<String> {
        self.names().iter().map(|name| self.pod(name)["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()).collect()
    }

    fn status(&self) -> Value {
        self.0.get(&SETS, "a", "web")["status"].clone()
    }
}

#[test]
fn pods_come_up_one_after_the_other() {
    let mut run = Run::new(json!({"replicas": 3}));
    assert_eq!(run.settle(), ["web-0"]);
    let pod = run.pod("web-0");
    let revision = run.status()["updateRevision"].clone();
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-0"), &json!("svc")));
    let labels = &pod["metadata"]["labels"];
    assert_eq!((&labels["statefulset.kubernetes.io/pod-name"], &labels["apps.kubernetes.io/pod-index"]), (&json!("web-0"), &json!("0")));
    assert_eq!(labels["controller-revision-hash"], revision);
    run.ready("web-0", true);
    assert_eq!(run.settle(), ["web-0", "web-1"]);
    run.ready("web-0", false);
    run.ready("web-1", true);
    assert_eq!(run.settle(), ["web-0", "web-1"], "a sick pod halts the rest");
    run.ready("web-0", true);
    run.run_on();
    let status = run.status();
    assert_eq!((&status["replicas"], &status["readyReplicas"], &status["availableReplicas"]), (&json!(3), &json!(3), &json!(3)));
    assert_eq!((&status["currentReplicas"], &status["updatedReplicas"], &status["currentRevision"]), (&json!(3), &json!(3), &revision));
    assert_eq!((&status["collisionCount"], &status["observedGeneration"]), (&json!(0), &json!(1)));
    assert!(run.0.events.contains(&"SuccessfulCreate: create Pod web-2 in StatefulSet web successful".to_owned()));
}

#[test]
fn shrinking_goes_from_the_highest_and_halts_at_a_sick_pod() {
    let mut run = Run::new(json!({"replicas": 3}));
    run.run_on();
    run.ready("web-0", false);
    run.edit(|spec| spec["replicas"] = json!(1));
    run.settle();
    assert!(run.names().iter().all(|name| run.pod(name)["metadata"]["deletionTimestamp"].is_null()));
    run.ready("web-0", true);
    assert_eq!(run.run_on(), ["web-2", "web-1"]);
    assert!(run.0.events.contains(&"SuccessfulDelete: delete Pod web-2 in StatefulSet web successful".to_owned()));
}

#[test]
fn parallel_sets_do_all_at_once() {
    let mut run = Run::new(json!({"replicas": 3, "podManagementPolicy": "Parallel", "ordinals": {"start": 5}}));
    assert_eq!(run.settle(), ["web-5", "web-6", "web-7"]);
    run.edit(|spec| spec["replicas"] = json!(1));
    assert_eq!(run.settle(), ["web-5"], "also while none is ready");
}

#[test]
fn updates_go_from_the_highest_down_to_the_partition() {
    let mut run = Run::new(json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}}));
    run.run_on();
    let first = run.status()["currentRevision"].clone();
    run.image("two");
    assert_eq!(run.run_on(), ["web-2"]);
    assert_eq!(run.images(), ["one", "one", "two"]);
    let status = run.status();
    assert_eq!((&status["currentRevision"], &status["currentReplicas"], &status["updatedReplicas"]), (&first, &json!(2), &json!(1)));
    run.0.delete(&PODS, "a", "web-0");
    run.run_on();
    assert_eq!(run.images(), ["one", "one", "two"], "a pod below the partition is made anew as it was");
    run.edit(|spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = json!(0));
    assert_eq!(run.run_on(), ["web-1", "web-0"]);
    assert_eq!(run.status()["currentRevision"], run.status()["updateRevision"]);
    run.image("one");
    run.run_on();
    assert_eq!(run.status()["currentRevision"], first, "a template that comes back is the old revision");
    assert_eq!(run.0.get(&REVISIONS, "a", first.as_str().unwrap())["revision"], 3);
    assert_eq!(run.0.names(&REVISIONS, "a").len(), 2);
}

#[test]
fn updates_wait_for_deletion_or_take_several_at_a_time() {
    let mut run = Run::new(json!({"replicas": 2, "updateStrategy": {"type": "OnDelete"}}));
    run.run_on();
    run.image("two");
    assert!(run.run_on().is_empty());
    run.0.delete(&PODS, "a", "web-0");
    run.run_on();
    assert_eq!(run.images(), ["two", "one"]);

    let mut run = Run::new(json!({"replicas": 4, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}));
    run.run_on();
    run.image("two");
    run.settle();
    let going: Vec<String> = run.names().into_iter().filter(|name| run.pod(name)["metadata"]["deletionTimestamp"].is_string()).collect();
    assert_eq!(going, ["web-2", "web-3"]);
}

#[test]
fn ended_pods_are_made_anew() {
    let mut run = Run::new(json!({"replicas": 1}));
    run.run_on();
    let uid = run.pod("web-0")["metadata"]["uid"].clone();
    run.0.pod_stops("a", "web-0");
    run.settle();
    assert_eq!(run.names(), ["web-0"]);
    assert_ne!(run.pod("web-0")["metadata"]["uid"], uid);
}

#[test]
fn claims_follow_their_pods_and_the_policy() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let mut run = Run::new(json!({"replicas": 2, "volumeClaimTemplates": [claim], "persistentVolumeClaimRetentionPolicy": policy}));
    run.run_on();
    assert_eq!(run.0.names(&CLAIMS, "a"), ["data-web-0", "data-web-1"]);
    assert_eq!(run.pod("web-1")["spec"]["volumes"][0], json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}));
    let owner = |run: &Run, name: &str| run.0.get(&CLAIMS, "a", name)["metadata"]["ownerReferences"][0]["kind"].clone();
    assert_eq!(
        (owner(&run, "data-web-1"), run.0.get(&CLAIMS, "a", "data-web-1")["metadata"]["labels"]["app"].clone()),
        (json!("StatefulSet"), json!("web"))
    );
    assert!(run.0.events.contains(&"SuccessfulCreate: create Claim data-web-0 Pod web-0 in StatefulSet web success".to_owned()));
    run.edit(|spec| spec["replicas"] = json!(1));
    run.settle();
    assert_eq!(owner(&run, "data-web-1"), "Pod", "it goes with the pod that is scaled away");
    run.edit(|spec| spec["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Retain", "whenScaled": "Retain"}));
    run.settle();
    assert_eq!(owner(&run, "data-web-0"), Value::Null);
}

#[test]
fn old_revisions_are_forgotten() {
    let mut run = Run::new(json!({"replicas": 1, "revisionHistoryLimit": 1}));
    for image in ["two", "three", "four"] {
        run.run_on();
        run.image(image);
    }
    run.run_on();
    assert_eq!(run.0.names(&REVISIONS, "a").len(), 2);
}

#[test]
fn only_pods_of_the_right_name_are_adopted() {
    let mut run = Run::new(json!({"replicas": 1}));
    for name in ["web-0", "web-x", "other-0"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        run.0.create(pod);
    }
    run.run_on();
    let owned: Vec<bool> = run.names().iter().map(|name| run.pod(name)["metadata"]["ownerReferences"].is_array()).collect();
    assert_eq!(run.names().into_iter().zip(owned).filter(|(_, owned)| *owned).map(|(name, _)| name).collect::<Vec<_>>(), ["web-0"]);
}
