use super::*;
use crate::reconciler::testing::{World, context};

fn service(spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"web","namespace":"a","uid":"s","labels":{{"team":"x"}},
        "creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"selector":{{"app":"web"}},"clusterIP":"10.96.0.7","ipFamilies":["IPv4"],
        "ports":[{{"name":"http","port":80,"protocol":"TCP","targetPort":"web"}}]{spec}}}}}"#
    )
}

fn pod(name: &str, ip: &str, ready: bool, more_meta: &str) -> String {
    let ready = if ready { "True" } else { "False" };
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","labels":{{"app":"web"}}{more_meta}}},
        "spec":{{"nodeName":"n","containers":[{{"name":"c","ports":[{{"name":"web","containerPort":8080,"protocol":"TCP"}}]}}]}},
        "status":{{"phase":"Running","podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],
        "conditions":[{{"type":"Ready","status":"{ready}","lastTransitionTime":"2026-01-01T00:01:00Z"}}]}}}}"#
    )
}

const NODE: &str = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"n","labels":{"topology.kubernetes.io/zone":"z1"}}}"#;

fn plan(world: &World) -> Plan {
    EndpointSliceController.reconcile(&Key::new("a", "web"), world.view(), &context(), &mut TriggerTimes::default())
}

/// Carries out what a plan writes; uids follow from names.
fn carried_out(mut world: World, plan: &Plan) -> World {
    for operation in &plan.operations {
        match operation {
            Operation::Create { object, .. } | Operation::Update { object, .. } => {
                let mut object = object.clone();
                object["metadata"]["uid"] = object["metadata"]["name"].clone();
                world.put(object);
            }
            other => panic!("not carried out here: {other:?}"),
        }
    }
    world
}

fn written(plan: &Plan) -> &Value {
    match &plan.operations[..] {
        [Operation::Create { object, .. } | Operation::Update { object, .. }] => object,
        other => panic!("one write expected: {other:?}"),
    }
}

#[test]
fn pods_become_endpoints_of_one_slice() {
    let ending = r#","deletionTimestamp":"2026-01-01T00:05:00Z""#;
    let world = World::new()
        .with(NODE)
        .with(&service(""))
        .with(&pod("p1", "10.0.0.1", true, ""))
        .with(&pod("p2", "10.0.0.2", false, ""))
        .with(&pod("p3", "10.0.0.3", true, ending))
        .with(&pod("done", "10.0.0.4", true, "").replace("Running", "Succeeded"))
        .with(&pod("lost", "10.0.0.5", true, "").replace(r#""nodeName":"n""#, r#""nodeName":"gone""#))
        .with(&pod("other", "10.0.0.6", true, "").replace(r#""app":"web""#, r#""app":"db""#));
    let first = plan(&world);
    let slice = written(&first).clone();
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"team": "x", "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "s");
    assert_eq!(slice["metadata"]["annotations"][trigger_time::ANNOTATION], "2026-01-01T00:00:00Z");
    assert_eq!(slice["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    let states: Vec<_> = slice["endpoints"].as_array().unwrap().iter().map(|e| (e["addresses"][0].clone(), e["conditions"].clone())).collect();
    let conditions = |ready: bool, serving: bool, terminating: bool| json!({"ready": ready, "serving": serving, "terminating": terminating});
    assert_eq!(
        states,
        [
            (json!("10.0.0.1"), conditions(true, true, false)),
            (json!("10.0.0.2"), conditions(false, false, false)),
            (json!("10.0.0.3"), conditions(false, true, true)),
        ]
    );
    assert_eq!(slice["endpoints"][0]["zone"], "z1");
    assert_eq!(slice["endpoints"][0]["nodeName"], "n");
    assert_eq!(slice["endpoints"][0]["targetRef"], json!({"kind": "Pod", "namespace": "a", "name": "p1", "uid": "u-p1"}));

    let world = carried_out(world, &first);
    assert!(plan(&world).is_empty(), "what is right stays");
    let world = world.with(&pod("p2", "10.0.0.2", true, ""));
    let second = plan(&world);
    let slice = written(&second);
    assert_eq!(slice["endpoints"][1]["conditions"]["ready"], true);
    assert!(slice["metadata"]["resourceVersion"].is_string());
    assert!(plan(&carried_out(world, &second)).is_empty());
}

#[test]
fn a_service_without_pods_has_a_placeholder_that_is_then_filled() {
    let world = World::new().with(NODE).with(&service(""));
    let first = plan(&world);
    let name = written(&first)["metadata"]["name"].clone();
    assert_eq!(written(&first)["endpoints"], json!([]));
    let world = carried_out(world, &first);
    assert!(plan(&world).is_empty());
    let world = world.with(&pod("p", "10.0.0.1", true, ""));
    let second = plan(&world);
    assert_eq!(written(&second)["metadata"]["name"], name, "one write, no new slice");
    assert_eq!(written(&second)["ports"][0]["port"], 8080);
    let world = carried_out(world, &second).with(&pod("p", "10.0.0.1", true, "").replace("Running", "Failed"));
    let third = plan(&world);
    assert_eq!((&written(&third)["metadata"]["name"], &written(&third)["endpoints"]), (&name, &json!([])));
    assert!(plan(&carried_out(world, &third)).is_empty());
}

#[test]
fn large_services_have_several_slices() {
    let mut world = World::new().with(NODE).with(&service(""));
    for number in 0..205 {
        world = world.with(&pod(&format!("p{number:03}"), &format!("10.0.1.{number}"), true, ""));
    }
    let first = plan(&world);
    let sizes = |plan: &Plan| -> Vec<usize> {
        let slices = plan.operations.iter().map(|operation| match operation {
            Operation::Create { object, .. } => object["endpoints"].as_array().map_or(0, Vec::len),
            other => panic!("{other:?}"),
        });
        slices.collect()
    };
    assert_eq!(sizes(&first), [100, 100, 5]);
    assert!(plan(&carried_out(world, &first)).is_empty());
}

#[test]
fn each_family_has_slices_of_its_own() {
    let both = service("").replace(r#"["IPv4"]"#, r#"["IPv4","IPv6"]"#);
    let dual = pod("p", "10.0.0.1", true, "").replace(r#"[{"ip":"10.0.0.1"}]"#, r#"[{"ip":"10.0.0.1"},{"ip":"fd00:0::1"}]"#);
    let world = World::new().with(NODE).with(&both).with(&dual);
    let first = plan(&world);
    let families = first.operations.iter().map(|operation| match operation {
        Operation::Create { object, .. } => (object["addressType"].clone(), object["endpoints"][0]["addresses"].clone()),
        other => panic!("{other:?}"),
    });
    assert_eq!(families.collect::<Vec<_>>(), [(json!("IPv4"), json!(["10.0.0.1"])), (json!("IPv6"), json!(["fd00::1"]))]);
    let single = carried_out(world, &first).with(&service(""));
    assert!(matches!(&plan(&single).operations[..], [Operation::Delete { .. }]), "slices of a dropped family go");
}

#[test]
fn headless_services_are_labelled_and_need_no_ports() {
    let headless = service(r#","publishNotReadyAddresses":true"#)
        .replace(r#""clusterIP":"10.96.0.7""#, r#""clusterIP":"None""#)
        .replace(r#"[{"name":"http","port":80,"protocol":"TCP","targetPort":"web"}]"#, "[]");
    let named = pod("p", "10.0.0.1", false, "").replace(r#""nodeName":"n""#, r#""nodeName":"n","hostname":"h","subdomain":"web""#);
    let plan = plan(&World::new().with(NODE).with(&headless).with(&named));
    let slice = written(&plan);
    assert_eq!(slice["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    assert_eq!(slice["ports"], json!([]));
    assert_eq!(slice["endpoints"][0]["hostname"], "h");
    assert_eq!(slice["endpoints"][0]["conditions"], json!({"ready": true, "serving": false, "terminating": false}));
}

#[test]
fn hints_follow_the_traffic_distribution() {
    let hints = |service: &str| {
        let plan = plan(&World::new().with(NODE).with(service).with(&pod("p", "10.0.0.1", true, "")));
        written(&plan)["endpoints"][0]["hints"].clone()
    };
    assert_eq!(hints(&service("")), Value::Null);
    assert_eq!(hints(&service(r#","trafficDistribution":"PreferSameZone""#)), json!({"forZones": [{"name": "z1"}]}));
    let by_node = json!({"forNodes": [{"name": "n"}], "forZones": [{"name": "z1"}]});
    assert_eq!(hints(&service(r#","trafficDistribution":"PreferSameNode""#)), by_node);
}

#[test]
fn services_of_others_are_left_alone() {
    for untouched in [service("").replace(r#""selector":{"app":"web"},"#, ""), service(r#","type":"ExternalName""#)] {
        assert!(plan(&World::new().with(&untouched)).is_empty());
    }
    let ending = service("").replace(r#""uid":"s""#, r#""uid":"s","deletionTimestamp":"2026-01-01T00:00:00Z""#);
    assert!(plan(&World::new().with(&ending)).is_empty(), "nothing is made for a service that goes");
}
