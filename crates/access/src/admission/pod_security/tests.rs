//! Against recorded answers (`testdata/pod_security.json`).

use serde::Deserialize;
use serde_json::json;
use wheelhouse_base::Timestamp;

use super::*;
use crate::attributes::{Attributes, Target};
use crate::lookups::MemoryLookups;
use crate::user::User;

#[derive(Deserialize)]
struct Recording {
    name: String,
    labels: Value,
    /// Pods that are there from the start.
    pods: Vec<Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    resource: String,
    body: Value,
    status: u16,
    warnings: Vec<String>,
    message: Option<String>,
}

fn judge(group: &str, resource: &str, namespace: &str, new: &Value, old: Option<&Value>, world: &MemoryLookups) -> (Answer<()>, Notes) {
    let user = User::default();
    let target = Target::Resource { group, version: "v1", resource, subresource: "", namespace, name: text(&new["metadata"], "name") };
    let attributes = Attributes::new(&user, "create", target);
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let request = Request { attributes: &attributes, operation, old, dry_run: false, now: Timestamp::default(), seed: 1 };
    let mut notes = Notes::default();
    (validate(&request, new, world, &mut notes), notes)
}

#[test]
fn recorded_pods_are_judged_alike() {
    let recordings: Vec<Recording> = serde_json::from_str(include_str!("../../../testdata/pod_security.json")).unwrap();
    for recording in recordings {
        let namespace = format!("g-{}", recording.name);
        let stored = json!({"metadata": {"name": namespace, "labels": recording.labels}});
        let mut world = MemoryLookups::default().with("", "namespaces", stored.clone());
        for mut pod in recording.pods {
            pod["metadata"]["namespace"] = namespace.as_str().into();
            world = world.with("", "pods", pod);
        }
        for case in recording.cases {
            let place = format!("{}/{}", recording.name, case.id);
            let (answer, notes) = if case.resource == "namespaces" {
                let mut new = stored.clone();
                for (key, value) in case.body["metadata"]["labels"].as_object().unwrap() {
                    new["metadata"]["labels"][key] = value.clone();
                }
                judge("", "namespaces", &namespace, &new, Some(&stored), &world)
            } else {
                let group = if case.resource == "deployments" { "apps" } else { "" };
                judge(group, &case.resource, &namespace, &case.body, None, &world)
            };
            let refused = answer.as_ref().err().map(|status| (status.code, status.message.clone()));
            assert_eq!(refused, case.message.map(|message| (case.status, message)), "{place}");
            if refused.is_none() {
                assert_eq!(notes.warnings, case.warnings, "{place}");
            }
        }
    }
}

#[test]
fn an_older_version_has_fewer_checks() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "livenessProbe": {"httpGet": {"host": "h"}}}]}});
    let judged = |version: &str| {
        let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": version});
        let world = MemoryLookups::default().with("", "namespaces", json!({"metadata": {"name": "ns", "labels": labels}}));
        judge("", "pods", "ns", &pod, None, &world).0.err().map(|status| status.message.clone())
    };
    assert_eq!(judged("v1.33"), None);
    let expected = "pods \"p\" is forbidden: violates PodSecurity \"baseline:v1.34\": probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")";
    assert_eq!(judged("v1.34").as_deref(), Some(expected));
}

#[test]
fn an_update_that_cannot_matter_is_let_through() {
    let world = MemoryLookups::default().with(
        "",
        "namespaces",
        json!({"metadata": {"name": "ns", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}),
    );
    let old = json!({"metadata": {"name": "p"}, "spec": {"hostPID": true, "containers": [{"name": "c", "image": "i:1"}]}});
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    assert!(judge("", "pods", "ns", &new, Some(&old), &world).0.is_ok());
    new["spec"]["containers"][0]["image"] = "i:2".into();
    assert!(judge("", "pods", "ns", &new, Some(&old), &world).0.is_err());
}
