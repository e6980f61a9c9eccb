use super::*;
use crate::reconciler::Failure;
use crate::reconciler::testing::{World, context};

fn service(spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"web","namespace":"a","uid":"s","labels":{{"team":"x"}},
        "creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"selector":{{"app":"web"}},"clusterIP":"10.96.0.7","ipFamilies":["IPv4"],
        "ports":[{{"name":"http","port":80,"protocol":"TCP","targetPort":8080}},{{"name":"dns","port":53,"protocol":"UDP","targetPort":53}}]{spec}}}}}"#
    )
}

fn pod(name: &str, ip: &str, ready: bool) -> String {
    let ready = if ready { "True" } else { "False" };
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","labels":{{"app":"web"}}}},
        "spec":{{"nodeName":"n","containers":[]}},"status":{{"phase":"Running","podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],
        "conditions":[{{"type":"Ready","status":"{ready}","lastTransitionTime":"2026-01-01T00:01:00Z"}}]}}}}"#
    )
}

fn plan(world: &World) -> Plan {
    EndpointsController.reconcile(&Key::new("a", "web"), world.view(), &context(), &mut TriggerTimes::default())
}

fn written(plan: &Plan) -> Value {
    match &plan.operations[..] {
        [Operation::Create { object, .. } | Operation::Update { object, .. }] => {
            let mut object = object.clone();
            object["metadata"]["uid"] = json!("e");
            object
        }
        other => panic!("one write expected: {other:?}"),
    }
}

#[test]
fn pods_become_addresses_and_a_right_object_stays() {
    let mut world = World::new().with(&service("")).with(&pod("p2", "10.0.0.2", false)).with(&pod("p1", "10.0.0.1", true));
    let object = written(&plan(&world));
    assert_eq!(object["metadata"]["labels"], json!({"team": "x", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}));
    assert_eq!(object["metadata"]["annotations"], json!({trigger_time::ANNOTATION: "2026-01-01T00:00:00Z"}));
    let address = |name: &str, ip: &str| json!({"ip": ip, "nodeName": "n", "targetRef": {"kind": "Pod", "namespace": "a", "name": name, "uid": format!("u-{name}")}});
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "http", "port": 8080, "protocol": "TCP"}]);
    let subset = json!({"addresses": [address("p1", "10.0.0.1")], "notReadyAddresses": [address("p2", "10.0.0.2")], "ports": ports});
    assert_eq!(object["subsets"], json!([subset]));
    world.put(object);
    assert!(plan(&world).is_empty());
    let mut world = world.with(&pod("p2", "10.0.0.2", true));
    let object = written(&plan(&world));
    assert_eq!(object["subsets"][0]["addresses"].as_array().unwrap().len(), 2);
    world.put(object);
    assert!(plan(&world).is_empty());
}

#[test]
fn a_cut_is_told() {
    let mut world = World::new().with(&service(""));
    for number in 0..1001 {
        world = world.with(&pod(&format!("p{number:04}"), &format!("10.0.{}.{}", number / 250, number % 250), true));
    }
    let object = written(&plan(&world));
    assert_eq!(object["metadata"]["annotations"][OVER_CAPACITY], "truncated");
    assert_eq!(object["subsets"][0]["addresses"].as_array().unwrap().len(), 1000);
    world.put(object);
    assert!(plan(&world).is_empty());
}

#[test]
fn headless_services_may_have_no_ports() {
    let headless = service("").replace("10.96.0.7", "None").replace(r#""ports":["#, r#""ignored":["#);
    let object = written(&plan(&World::new().with(&headless).with(&pod("p", "10.0.0.1", true))));
    assert_eq!(object["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    assert_eq!(object["subsets"][0]["addresses"][0]["ip"], "10.0.0.1");
    assert_eq!(object["subsets"][0]["ports"], Value::Null);
}

#[test]
fn endpoints_go_with_their_service_but_elections_stay() {
    let endpoints = |meta: &str| format!(r#"{{"apiVersion":"v1","kind":"Endpoints","metadata":{{"name":"web","namespace":"a","uid":"e"{meta}}}}}"#);
    assert!(matches!(&plan(&World::new().with(&endpoints(""))).operations[..], [Operation::Delete { .. }]));
    let lock = endpoints(r#","annotations":{"control-plane.alpha.kubernetes.io/leader":"{}"}"#);
    assert!(plan(&World::new().with(&lock)).is_empty());
    let users = World::new().with(&service("").replace(r#""selector":{"app":"web"},"#, "")).with(&endpoints(""));
    assert!(plan(&users).is_empty(), "without a selector they are the user's");
}

#[test]
fn a_refusal_is_told() {
    let failure = Failure { code: 403, reason: "Forbidden".into(), message: "no".into(), resource: ENDPOINTS };
    let cx = Context { failure: Some(&failure), ..context() };
    let world = World::new().with(&service(""));
    let plan = EndpointsController.reconcile(&Key::new("a", "web"), world.view(), &cx, &mut TriggerTimes::default());
    assert_eq!(plan.events[0].message, "Failed to create endpoint for service a/web: no");
}
