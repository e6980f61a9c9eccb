use super::*;
use crate::reconciler::Failure;
use crate::reconciler::testing::{NOW, World, context};
use serde_json::Value;

fn set(replicas: i32) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{{"name":"web","namespace":"a","uid":"rs","generation":1}},
        "spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"web"}}}},
        "template":{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
    )
}

fn pod(name: &str, extra_meta: &str, spec: &str, status: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","labels":{{"app":"web"}}{extra_meta}}},
        "spec":{{"containers":[]{spec}}},"status":{{{status}}}}}"#
    )
}

const OWNED: &str = r#","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"rs","controller":true}]"#;

fn plan(world: &World) -> Plan {
    ReplicaSetController.reconcile(&Key::new("a", "web"), world.view(), &context(), &mut ())
}

fn count(plan: &Plan) -> (usize, usize, usize) {
    let kinds = |wanted: fn(&Operation) -> bool| plan.operations.iter().filter(|operation| wanted(operation)).count();
    (
        kinds(|o| matches!(o, Operation::Create { .. })),
        kinds(|o| matches!(o, Operation::Delete { .. })),
        kinds(|o| matches!(o, Operation::Patch { .. })),
    )
}

#[test]
fn missing_pods_are_created_with_names_that_repeat() {
    let world = World::new().with(&set(3));
    let first = plan(&world);
    assert_eq!(count(&first), (3, 0, 0));
    assert_eq!(first, plan(&world), "carrying the same plan out twice creates nothing twice");
    let Some(Operation::Create { object, .. }) = first.operations.last() else { panic!("{first:?}") };
    assert_eq!(object["metadata"]["generateName"], "web-");
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "rs");
    assert_eq!(object["spec"]["containers"][0]["name"], "c");
    assert_eq!(first.events.len(), 3);
}

#[test]
fn ended_and_ending_pods_do_not_count() {
    let world = World::new().with(&set(1)).with(&pod("failed", OWNED, "", r#""phase":"Failed""#)).with(&pod(
        "ending",
        &format!(r#"{OWNED},"deletionTimestamp":"2026-01-01T00:00:00Z""#),
        "",
        r#""phase":"Running""#,
    ));
    assert_eq!(count(&plan(&world)).0, 1);
}

#[test]
fn an_orphan_is_adopted_before_anything_is_created() {
    let world = World::new().with(&set(2)).with(&pod("orphan", "", "", ""));
    assert_eq!(count(&plan(&world)), (0, 0, 1));
}

#[test]
fn a_pod_that_matches_no_more_is_released() {
    let strayed = pod("strayed", OWNED, "", "").replace(r#""app":"web""#, r#""app":"other""#);
    let plan = plan(&World::new().with(&set(1)).with(&strayed));
    let released = plan.operations.iter().find_map(|operation| match operation {
        Operation::Patch { patch, .. } => Some(patch["metadata"]["ownerReferences"].clone()),
        _ => None,
    });
    assert_eq!(released, Some(Value::Null));
}

#[test]
fn the_least_useful_pod_goes_first() {
    let ready = r#""phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]"#;
    let cheap = format!(r#"{OWNED},"annotations":{{"controller.kubernetes.io/pod-deletion-cost":"-1"}}"#);
    let gone = |others: &[String]| {
        let world = others.iter().fold(World::new().with(&set(1)), |world, pod| world.with(pod));
        let plan = plan(&world);
        plan.operations.into_iter().find_map(|operation| match operation {
            Operation::Delete { key, .. } => Some(key.name.to_string()),
            _ => None,
        })
    };
    let on = |node: &str| format!(r#","nodeName":"{node}""#);
    let pairs = [
        ("unassigned before assigned", pod("bound", OWNED, &on("n"), ""), pod("go", OWNED, "", "")),
        ("not ready before ready", pod("ready", OWNED, &on("n"), ready), pod("go", OWNED, &on("m"), r#""phase":"Running""#)),
        ("cheap before dear", pod("dear", OWNED, &on("n"), ready), pod("go", &cheap, &on("m"), ready)),
    ];
    for (why, stays, goes) in pairs {
        assert_eq!(gone(&[stays, goes]).as_deref(), Some("go"), "{why}");
    }
}

#[test]
fn a_refused_creation_is_told_and_tried_once() {
    let failure = Failure { code: 403, reason: "Forbidden".into(), message: "exceeded quota".into(), resource: PODS };
    let cx = Context { failure: Some(&failure), ..context() };
    let world = World::new().with(&set(5));
    let plan = ReplicaSetController.reconcile(&Key::new("a", "web"), world.view(), &cx, &mut ());
    assert_eq!(count(&plan).0, 1);
    assert!(plan.events.iter().any(|event| event.reason == "FailedCreate" && event.message == "Error creating: exceeded quota"));
    let Operation::Update { object, subresource: "status", .. } = &plan.operations[0] else { panic!("{plan:?}") };
    assert_eq!(object["status"]["conditions"][0]["type"], "ReplicaFailure");
}

#[test]
fn availability_by_waiting_is_looked_at_in_time() {
    let patient = set(1).replace(r#""replicas":1"#, r#""replicas":1,"minReadySeconds":3600"#);
    let ready = r#""phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]"#;
    let plan = plan(&World::new().with(&patient).with(&pod("p", OWNED, "", ready)));
    assert_eq!(plan.requeue_at, Some(NOW.plus(std::time::Duration::from_secs(3000))));
    let Operation::Update { object, .. } = &plan.operations[0] else { panic!("{plan:?}") };
    assert_eq!((object["status"]["readyReplicas"].clone(), object["status"]["availableReplicas"].clone()), (json!(1), Value::Null));
}
