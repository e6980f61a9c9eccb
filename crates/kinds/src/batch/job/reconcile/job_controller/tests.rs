use serde_json::{Value, json};

use super::*;
use crate::plan::Operation;
use crate::reconciler::testing::Cluster;

struct Run {
    cluster: Cluster,
    memory: BTreeMap<Key, Backoff>,
}

impl Run {
    fn new(spec: Value) -> Self {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "a"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        });
        wheelhouse_meta::patch::merge_value(&mut job["spec"], spec);
        let mut cluster = Cluster::default();
        cluster.create(job);
        Self { cluster, memory: BTreeMap::new() }
    }

    fn settle(&mut self) -> Option<Timestamp> {
        self.cluster.settle(&JobController, &Key::new("a", "j"), &mut self.memory)
    }

    fn pods(&self) -> Vec<Value> {
        self.cluster.names(&PODS, "a").iter().map(|name| self.cluster.get(&PODS, "a", name)).collect()
    }

    /// Names of pods that have not ended, in the order of their indexes.
    fn active(&self) -> Vec<String> {
        let ended =
            |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded")) || pod["metadata"]["deletionTimestamp"].is_string();
        self.pods().iter().filter(|pod| !ended(pod)).map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn end(&mut self, name: &str, phase: &str, code: i32) {
        let now = json!(api_time(self.cluster.now));
        self.cluster.edit(&PODS, "a", name, |pod| {
            pod["status"] = json!({"phase": phase, "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "finishedAt": now}},
            }]});
        });
    }

    fn all(&mut self, phase: &str, code: i32) {
        for name in self.active() {
            self.end(&name, phase, code);
        }
        self.settle();
    }

    fn status(&self) -> Value {
        self.cluster.get(&JOBS, "a", "j")["status"].clone()
    }

    /// `type=reason` of every true condition.
    fn conditions(&self) -> Vec<String> {
        let status = self.status();
        let all = status["conditions"].as_array().into_iter().flatten().filter(|condition| condition["status"] == "True");
        all.map(|condition| format!("{}={}", condition["type"].as_str().unwrap(), condition["reason"].as_str().unwrap())).collect()
    }
}

#[test]
fn a_job_runs_its_pods_to_completion() {
    let mut run = Run::new(json!({"completions": 3, "parallelism": 2}));
    run.settle();
    let status = run.status();
    assert_eq!((&status["active"], &status["ready"], &status["terminating"]), (&json!(2), &json!(0), &json!(0)));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    let pod = &run.pods()[0];
    assert_eq!(pod["metadata"]["finalizers"], json!([TRACKING]));
    assert_eq!(pod["metadata"]["generateName"], "j-");
    assert_eq!(pod["metadata"]["labels"]["job-name"], "j");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Job");

    let first = run.active()[0].clone();
    run.end(&first, "Succeeded", 0);
    run.settle();
    assert_eq!((run.active().len(), run.status()["succeeded"].clone()), (2, json!(1)), "the third is begun");
    run.all("Succeeded", 0);
    let status = run.status();
    assert_eq!(run.conditions(), ["SuccessCriteriaMet=CompletionsReached", "Complete=CompletionsReached"]);
    assert_eq!((&status["succeeded"], &status["active"]), (&json!(3), &Value::Null));
    assert!(status["completionTime"].is_string());
    assert!(run.pods().iter().all(|pod| pod["metadata"]["finalizers"].is_null()));
    assert_eq!(run.cluster.events.iter().filter(|event| event.starts_with("SuccessfulCreate: Created pod: j-")).count(), 3);
    assert_eq!(run.cluster.events.last().map(String::as_str), Some("Completed: Job completed"));
}

#[test]
fn failures_wait_longer_each_time_until_the_limit() {
    let mut run = Run::new(json!({"backoffLimit": 2}));
    run.settle();
    for wait in [10, 20] {
        let begun = run.cluster.now;
        run.all("Failed", 1);
        assert!(run.active().is_empty(), "not before the back-off");
        assert_eq!(run.settle(), Some(begun.plus(Duration::from_secs(wait))));
        run.cluster.wait(wait);
        run.settle();
        assert_eq!(run.active().len(), 1);
    }
    run.all("Failed", 1);
    assert_eq!(run.conditions(), ["FailureTarget=BackoffLimitExceeded", "Failed=BackoffLimitExceeded"]);
    assert_eq!(run.status()["failed"], 3);
    assert_eq!(run.cluster.events.last().map(String::as_str), Some("BackoffLimitExceeded: Job has reached the specified backoff limit"));
    assert!(run.settle().is_none());
}

#[test]
fn a_job_that_ends_waits_for_its_running_pods() {
    let mut run = Run::new(json!({"completions": 3, "parallelism": 3, "backoffLimit": 0}));
    run.settle();
    let names = run.active();
    for name in &names {
        run.cluster.edit(&PODS, "a", name, |pod| pod["spec"]["nodeName"] = json!("n"));
    }
    run.end(&names[0], "Failed", 1);
    run.settle();
    assert_eq!(run.conditions(), ["FailureTarget=BackoffLimitExceeded"]);
    assert_eq!((run.status()["terminating"].clone(), run.status()["active"].clone()), (json!(2), Value::Null));
    run.cluster.pod_stops("a", &names[1]);
    run.cluster.pod_stops("a", &names[2]);
    run.settle();
    assert_eq!(run.conditions(), ["FailureTarget=BackoffLimitExceeded", "Failed=BackoffLimitExceeded"]);
    assert_eq!(run.status()["failed"], 3);
    assert_eq!(run.pods().len(), 1, "deleted pods are gone once their finalizer is");
}

#[test]
fn the_deadline_ends_a_job() {
    let mut run = Run::new(json!({"activeDeadlineSeconds": 30}));
    let begun = run.cluster.now;
    assert_eq!(run.settle(), Some(begun.plus(Duration::from_secs(30))));
    run.cluster.wait(30);
    run.settle();
    assert_eq!(run.conditions(), ["FailureTarget=DeadlineExceeded", "Failed=DeadlineExceeded"]);
    assert!(run.active().is_empty());
}

#[test]
fn suspension_takes_the_pods_away_and_counts_none() {
    let mut run = Run::new(json!({"suspend": true, "completions": 2, "parallelism": 2, "activeDeadlineSeconds": 30}));
    run.settle();
    assert_eq!((run.pods().len(), run.conditions()), (0, vec!["Suspended=JobSuspended".to_owned()]));
    assert!(run.status()["startTime"].is_null());
    run.cluster.edit(&JOBS, "a", "j", |job| job["spec"]["suspend"] = json!(false));
    run.settle();
    assert_eq!((run.active().len(), run.conditions().len()), (2, 0));
    assert_eq!(run.status()["startTime"], json!(api_time(run.cluster.now)));
    run.cluster.edit(&JOBS, "a", "j", |job| job["spec"]["suspend"] = json!(true));
    run.settle();
    assert_eq!((run.pods().len(), run.status()["failed"].clone()), (0, Value::Null));
    let told = |wanted: &str| run.cluster.events.iter().filter(|event| *event == wanted).count();
    assert_eq!((told("Suspended: Job suspended"), told("Resumed: Job resumed")), (2, 1));
}

#[test]
fn each_index_has_its_pod() {
    let mut run = Run::new(json!({"completionMode": "Indexed", "completions": 4, "parallelism": 2}));
    run.settle();
    let pod = run.pods()[1].clone();
    assert!(pod["metadata"]["name"].as_str().unwrap().starts_with("j-1-"));
    assert_eq!(pod["spec"]["hostname"], "j-1");
    assert_eq!(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"], "1");
    assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"], "1");
    let variable = &pod["spec"]["containers"][0]["env"][0];
    assert_eq!(
        (&variable["name"], &variable["valueFrom"]["fieldRef"]["fieldPath"]),
        (&json!("JOB_COMPLETION_INDEX"), &json!("metadata.labels['batch.kubernetes.io/job-completion-index']"))
    );
    let one = run.active()[1].clone();
    run.end(&one, "Succeeded", 0);
    run.settle();
    assert_eq!((run.status()["completedIndexes"].clone(), run.status()["succeeded"].clone()), (json!("1"), json!(1)));
    run.all("Succeeded", 0);
    run.all("Succeeded", 0);
    assert_eq!((run.status()["completedIndexes"].clone(), run.status()["succeeded"].clone()), (json!("0-3"), json!(4)));
    assert_eq!(run.conditions().last().map(String::as_str), Some("Complete=CompletionsReached"));
}

#[test]
fn each_index_fails_for_itself() {
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1});
    let mut run = Run::new(spec.clone());
    run.settle();
    let bad = run.active()[0].clone();
    run.all("Failed", 1);
    assert!(run.active().is_empty());
    let held: Vec<bool> = run.pods().iter().map(|pod| pod["metadata"]["finalizers"].is_array()).collect();
    assert_eq!(held, [true, true], "they hold the failures of their index");
    run.cluster.wait(10);
    run.settle();
    let next = run.active();
    assert_eq!(next.len(), 2);
    assert_eq!(run.cluster.get(&PODS, "a", &next[0])["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"], "1");
    assert!(run.cluster.get(&PODS, "a", &bad)["metadata"]["finalizers"].is_null());
    run.end(&next[0], "Failed", 1);
    run.end(&next[1], "Succeeded", 0);
    run.settle();
    let status = run.status();
    assert_eq!((&status["failedIndexes"], &status["completedIndexes"], &status["failed"]), (&json!("0"), &json!("1"), &json!(3)));
    assert_eq!(run.conditions(), ["FailureTarget=FailedIndexes", "Failed=FailedIndexes"]);

    let mut strict = spec;
    strict["maxFailedIndexes"] = json!(0);
    strict["backoffLimitPerIndex"] = json!(0);
    let mut run = Run::new(strict);
    run.settle();
    let bad = run.active()[0].clone();
    run.end(&bad, "Failed", 1);
    run.settle();
    assert_eq!(run.conditions(), ["FailureTarget=MaxFailedIndexesExceeded", "Failed=MaxFailedIndexesExceeded"]);
}

#[test]
fn policies_decide_on_failures_and_on_success() {
    let rules = json!([
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ]);
    let mut run = Run::new(json!({"backoffLimit": 0, "podFailurePolicy": {"rules": rules}}));
    run.settle();
    let first = run.active()[0].clone();
    run.cluster.edit(&PODS, "a", &first, |pod| {
        pod["status"] = json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]});
    });
    run.settle();
    assert_eq!((run.conditions().len(), run.status()["failed"].clone()), (0, Value::Null), "a disruption is no failure");
    run.cluster.wait(10);
    run.settle();
    run.all("Failed", 42);
    assert_eq!(run.conditions(), ["FailureTarget=PodFailurePolicy", "Failed=PodFailurePolicy"]);

    let policy = json!({"rules": [{"succeededIndexes": "0"}]});
    let mut run = Run::new(json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "successPolicy": policy}));
    run.settle();
    let leader = run.active()[0].clone();
    run.end(&leader, "Succeeded", 0);
    run.settle();
    assert_eq!(run.conditions(), ["SuccessCriteriaMet=SuccessPolicy", "Complete=SuccessPolicy"]);
    assert!(run.active().is_empty());
    assert_eq!((run.status()["succeeded"].clone(), run.status()["failed"].clone()), (json!(1), Value::Null));
}

#[test]
fn a_leaving_pod_is_replaced_at_once_or_when_it_has_failed() {
    for (policy, during) in [("TerminatingOrFailed", 1), ("Failed", 0)] {
        let mut run = Run::new(json!({"podReplacementPolicy": policy}));
        run.settle();
        let name = run.active()[0].clone();
        run.cluster.edit(&PODS, "a", &name, |pod| pod["spec"]["nodeName"] = json!("n"));
        run.cluster.delete(&PODS, "a", &name);
        run.settle();
        run.cluster.wait(10);
        run.settle();
        assert_eq!(run.active().len(), during, "{policy}");
        run.cluster.pod_stops("a", &name);
        run.settle();
        run.cluster.wait(10);
        run.settle();
        assert_eq!((run.active().len(), run.status()["failed"].clone()), (1, json!(1)), "{policy}");
    }
}

#[test]
fn pods_are_adopted_released_and_never_left_held() {
    let mut run = Run::new(json!({"parallelism": 2, "completions": 2}));
    run.settle();
    let names = run.active();
    run.cluster.edit(&PODS, "a", &names[0], |pod| {
        let meta = pod["metadata"].as_object_mut().unwrap();
        meta.remove("ownerReferences");
        meta.remove("finalizers");
    });
    run.settle();
    let adopted = run.cluster.get(&PODS, "a", &names[0]);
    assert_eq!((&adopted["metadata"]["ownerReferences"][0]["kind"], &adopted["metadata"]["finalizers"]), (&json!("Job"), &json!([TRACKING])));
    run.cluster.edit(&PODS, "a", &names[1], |pod| pod["metadata"]["labels"] = json!({}));
    run.settle();
    let released = run.cluster.get(&PODS, "a", &names[1]);
    assert!(released["metadata"]["ownerReferences"].is_null() && released["metadata"]["finalizers"].is_null());
    assert_eq!(run.active().len(), 3, "another took its place");
    // The job goes and leaves its pods behind, as an orphaning deletion does.
    run.cluster.delete(&JOBS, "a", "j");
    run.settle();
    assert!(run.pods().iter().all(|pod| pod["metadata"]["finalizers"].is_null()));
}

#[test]
fn leftovers_of_others_hold_nothing_up() {
    let mut run = Run::new(json!({}));
    let pod = |name: &str, owner: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "a", "finalizers": [TRACKING], "labels": {"batch.kubernetes.io/job-name": "j"}, "ownerReferences": owner},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        })
    };
    run.cluster.create(pod("stray", json!([])));
    run.cluster.create(pod("gone", json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "k", "uid": "k", "controller": true}])));
    let plan = run.cluster.run(&JobController, &Key::new("a", "j"), &mut run.memory);
    assert!(plan.operations.iter().any(|operation| matches!(operation, Operation::Create { .. })), "{plan:?}");
    let held = |run: &Run, name: &str| run.cluster.get(&PODS, "a", name)["metadata"]["finalizers"].is_array();
    assert_eq!((held(&run, "stray"), held(&run, "gone")), (false, true));
    run.cluster.settle(&JobController, &Key::new("a", "k"), &mut run.memory);
    assert!(!held(&run, "gone"), "its own job's key lets it go");
}

#[test]
fn a_job_of_another_manager_is_let_be() {
    let mut run = Run::new(json!({"managedBy": "example.com/queue"}));
    run.settle();
    assert_eq!((run.pods().len(), run.status()), (0, json!({})));
}

#[test]
fn refused_creations_are_told_and_tried_one_by_one() {
    let mut run = Run::new(json!({"parallelism": 3, "completions": 3}));
    run.cluster.refuse = Some((PODS, "pods \"j\" is forbidden: exceeded quota".into()));
    let key = Key::new("a", "j");
    run.cluster.run(&JobController, &key, &mut run.memory);
    let again = run.cluster.run(&JobController, &key, &mut run.memory);
    assert_eq!(again.operations.iter().filter(|o| matches!(o, Operation::Create { .. })).count(), 1);
    assert!(run.cluster.events.contains(&"FailedCreate: Error creating: pods \"j\" is forbidden: exceeded quota".to_owned()));
}
