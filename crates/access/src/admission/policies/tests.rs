//! Against recorded answers (`testdata/admission_policies.json`).

use serde::Deserialize;
use serde_json::json;
use wheelhouse_base::Timestamp;

use super::*;
use crate::admission::{Notes, Operation};
use crate::attributes::{Attributes, Target};
use crate::lookups::MemoryLookups;
use crate::user::User;

#[derive(Deserialize)]
struct Recording {
    name: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Step {
    /// Something that is there from then on.
    Stored { store: Value, resource: String, group: String },
    /// A ConfigMap that is created, and what came of it.
    Created {
        id: String,
        body: Value,
        status: u16,
        warnings: Vec<String>,
        message: Option<String>,
        #[serde(default)]
        metadata: Value,
    },
}

fn create(object: &Value, namespace: &str, world: &MemoryLookups) -> (Result<Value, (u16, String)>, Notes) {
    let user = User::default();
    let target = Target::Resource { group: "", version: "v1", resource: "configmaps", subresource: "", namespace, name: "" };
    let attributes = Attributes::new(&user, "create", target);
    let request = Request { attributes: &attributes, operation: Operation::Create, old: None, dry_run: false, now: Timestamp::default(), seed: 1 };
    let (mut object, mut notes) = (object.clone(), Notes::default());
    let admitted = mutate(&request, &mut object, world).and_then(|()| validate(&request, Some(&object), world, &mut notes));
    (admitted.map(|()| object).map_err(|status| (status.code, status.message.clone())), notes)
}

#[test]
fn recorded_writes_are_judged_and_changed_alike() {
    let recordings: Vec<Recording> = serde_json::from_str(include_str!("../../../testdata/admission_policies.json")).unwrap();
    for recording in recordings {
        let namespace = format!("g-{}", recording.name);
        let labels = json!({"kubernetes.io/metadata.name": namespace});
        let mut world = MemoryLookups::default().with("", "namespaces", json!({"metadata": {"name": namespace, "labels": labels}}));
        for step in recording.steps {
            match step {
                Step::Stored { mut store, resource, group } => {
                    if group.is_empty() {
                        store["metadata"]["namespace"] = namespace.as_str().into();
                    }
                    world = world.with(&group, &resource, store);
                }
                Step::Created { id, body, status, warnings, message, metadata } => {
                    let place = format!("{namespace}/{id}");
                    let (answer, notes) = create(&body, &namespace, &world);
                    assert_eq!(answer.as_ref().err().cloned(), message.map(|message| (status, message)), "{place}");
                    if let Ok(object) = answer {
                        assert_eq!(notes.warnings, warnings, "{place}");
                        assert_eq!(
                            (&object["metadata"]["labels"], &object["metadata"]["annotations"]),
                            (&metadata["labels"], &metadata["annotations"]),
                            "{place}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn other_requests_are_left_alone_and_a_broken_policy_fails_as_it_says() {
    let policy = |rule: Value, expression: &str, failure: &str| {
        json!({"metadata": {"name": "p"}, "spec": {
            "failurePolicy": failure, "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}],
        }})
    };
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let rule =
        |resource: &str, operation: &str| json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]});
    let refused = |policy: Value| {
        let world = MemoryLookups::default().with(GROUP, "validatingadmissionpolicies", policy).with(
            GROUP,
            "validatingadmissionpolicybindings",
            binding.clone(),
        );
        create(&json!({"metadata": {"name": "x"}}), "ns", &world).0.err()
    };
    assert!(refused(policy(rule("configmaps", "*"), "false", "Fail")).is_some());
    assert_eq!(refused(policy(rule("configmaps", "UPDATE"), "false", "Fail")), None);
    assert_eq!(refused(policy(rule("configmaps/status", "*"), "false", "Fail")), None);
    assert_eq!(refused(policy(rule("secrets", "*"), "false", "Fail")), None);
    assert!(
        refused(policy(rule("*", "*"), "this is no expression", "Fail"))
            .is_some_and(|(code, message)| code == 422 && message.contains("compilation error"))
    );
    assert_eq!(refused(policy(rule("*", "*"), "this is no expression", "Ignore")), None);
}
