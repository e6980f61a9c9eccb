use super::*;
use crate::reconciler::testing::{NOW, World, context};

fn node(name: &str, ready: &str, more: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}","uid":"u-{name}","creationTimestamp":"2026-01-01T00:00:00Z"}},
        "spec":{{{more}}},"status":{{"conditions":[{{"type":"Ready","status":"{ready}","reason":"KubeletReady",
        "lastHeartbeatTime":"2026-01-01T00:09:00Z","lastTransitionTime":"2026-01-01T00:01:00Z"}}]}}}}"#
    )
}

fn lease(name: &str, renewed: &str) -> String {
    format!(
        r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{name}","namespace":"kube-node-lease","uid":"l-{name}"}},
        "spec":{{"renewTime":"2026-01-01T{renewed}.000000Z"}}}}"#
    )
}

fn at(world: &World, name: &str, seconds: u64, memory: &mut Memory) -> Plan {
    let cx = Context { now: NOW.plus(Duration::from_secs(seconds)), ..context() };
    NodeLifecycleController.reconcile(&Key::cluster(name), world.view(), &cx, memory)
}

/// Carries out what a plan does to nodes.
fn carried_out(mut world: World, plan: &Plan) -> World {
    for operation in &plan.operations {
        match operation {
            Operation::Update { object, .. } => world.put(object.clone()),
            Operation::Patch { resource, key, patch, .. } if *resource == NODES => {
                let mut object = world.view().record(&NODES, key).unwrap().value();
                if let Some(taints) = patch["spec"].get("taints") {
                    object["spec"]["taints"] = taints.clone();
                }
                for (label, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
                    object["metadata"]["labels"][label] = value.clone();
                }
                world.put(object);
            }
            other => panic!("not carried out here: {other:?}"),
        }
    }
    world
}

fn step(world: World, name: &str, seconds: u64, memory: &mut Memory) -> World {
    let plan = at(&world, name, seconds, memory);
    carried_out(world, &plan)
}

/// `key:effect` of the node's taints.
fn taints_of(world: &World, name: &str) -> Vec<String> {
    let node = world.view().get::<Node>("", name).unwrap();
    taints::all(&node).iter().map(|taint| format!("{}:{}", taint.key.trim_start_matches("node.kubernetes.io/"), taint.effect)).collect()
}

fn with_neighbour(world: World) -> World {
    world.with(&node("well", "True", ""))
}

#[test]
fn a_silent_node_is_told_of_step_by_step() {
    let mut memory = Memory::default();
    let world = with_neighbour(World::new()).with(&node("n", "True", "")).with(&lease("n", "00:09:55"));
    let first = at(&world, "n", 0, &mut memory);
    assert_eq!((first.operations.len(), first.events[0].reason.as_str()), (0, "RegisteredNode"));
    assert_eq!(first.requeue_at, Some(NOW.plus(Duration::from_micros(50_000_001))));

    let world = world.with(&lease("n", "00:10:05"));
    assert!(at(&world, "n", 10, &mut memory).operations.is_empty());
    assert!(at(&world, "n", 60, &mut memory).operations.is_empty(), "the renewal counts from when it was seen");
    let silent = at(&world, "n", 61, &mut memory);
    let [Operation::Update { subresource: "status", object, .. }] = &silent.operations[..] else { panic!("{silent:?}") };
    let told: Vec<_> =
        object["status"]["conditions"].as_array().unwrap().iter().map(|c| (c["type"].clone(), c["status"].clone(), c["reason"].clone())).collect();
    assert_eq!(told[0], (json!("Ready"), json!("Unknown"), json!("NodeStatusUnknown")));
    assert_eq!(told[3], (json!("PIDPressure"), json!("Unknown"), json!("NodeStatusNeverUpdated")));
    assert_eq!(object["status"]["conditions"][0]["message"], "Kubelet stopped posting node status.");
    assert_eq!(silent.events[0].message, "Node n status is now: NodeNotReady");

    let world = carried_out(world, &silent);
    let world = step(world, "n", 61, &mut memory);
    assert_eq!(taints_of(&world, "n"), ["unreachable:NoSchedule"]);
    let world = step(world, "n", 66, &mut memory);
    assert_eq!(taints_of(&world, "n"), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    let settled = at(&world, "n", 70, &mut memory);
    assert!(settled.operations.is_empty() && settled.events.is_empty(), "{settled:?}");

    let back = node("n", "True", r#""taints":[{"key":"mine","effect":"NoExecute"},{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]"#)
        .replace("00:09:00Z", "00:11:30Z");
    let world = world.with(&back);
    let world = step(world, "n", 91, &mut memory);
    assert_eq!(taints_of(&world, "n"), ["mine:NoExecute"]);
    assert!(at(&world, "n", 92, &mut memory).operations.is_empty());
}

#[test]
fn an_empty_memory_grants_a_full_grace_period() {
    let stale = with_neighbour(World::new()).with(&node("n", "True", "")).with(&lease("n", "00:00:00"));
    let mut memory = Memory::default();
    assert!(at(&stale, "n", 0, &mut memory).operations.is_empty());
    assert!(at(&stale, "n", 50, &mut memory).operations.is_empty());
    assert_eq!(at(&stale, "n", 51, &mut memory).operations.len(), 1);
}

#[test]
fn a_node_that_never_spoke_has_from_its_creation() {
    let mute = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"n","creationTimestamp":"2026-01-01T00:09:30Z"}}"#;
    let world = with_neighbour(World::new()).with(mute);
    let mut memory = Memory::default();
    assert!(at(&world, "n", 30, &mut memory).operations.is_empty());
    let silent = at(&world, "n", 31, &mut memory);
    let world = carried_out(world, &silent);
    let again = at(&world, "n", 32, &mut memory);
    assert!(!again.operations.iter().any(|operation| matches!(operation, Operation::Update { .. })), "{again:?}");
}

#[test]
fn conditions_and_cordons_become_taints() {
    let pressed = node("n", "False", r#""unschedulable":true"#)
        .replace("\"conditions\":[", r#""conditions":[{"type":"DiskPressure","status":"True"},{"type":"MemoryPressure","status":"False"},"#)
        .replace(r#""uid":"u-n""#, r#""uid":"u-n","labels":{"kubernetes.io/os":"linux"}"#);
    let world = with_neighbour(World::new()).with(&pressed);
    let mut memory = Memory::default();
    let world = step(world, "n", 0, &mut memory);
    assert_eq!(taints_of(&world, "n"), ["not-ready:NoSchedule", "disk-pressure:NoSchedule", "unschedulable:NoSchedule", "not-ready:NoExecute"]);
    let labels = world.view().get::<Node>("", "n").unwrap().metadata.labels.clone().unwrap();
    assert_eq!(labels.get("beta.kubernetes.io/os").map(String::as_str), Some("linux"));
    assert!(at(&world, "n", 1, &mut memory).operations.is_empty());
}

#[test]
fn pods_of_an_unreachable_node_are_not_ready() {
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a","uid":"p"},"spec":{"nodeName":"n","containers":[]},
        "status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    let world = with_neighbour(World::new()).with(&node("n", "Unknown", "")).with(pod);
    let plan = at(&world, "n", 0, &mut Memory::default());
    let patch = plan.operations.iter().find_map(|operation| match operation {
        Operation::Patch { resource, patch, .. } if *resource == PODS => Some(patch.clone()),
        _ => None,
    });
    assert_eq!(patch.unwrap()["status"]["conditions"][0]["status"], "False");
    assert!(plan.events.iter().any(|event| event.kind == "Pod" && event.reason == "NodeNotReady"));
}

#[test]
fn zones_are_tainted_at_their_pace() {
    let mut world = World::new();
    for name in ["w1", "w2", "w3", "w4"] {
        world = world.with(&node(name, "True", ""));
    }
    let world = world.with(&node("a", "False", "")).with(&node("b", "False", ""));
    let mut memory = Memory::default();
    let evicting = |plan: &Plan| format!("{:?}", plan.operations).contains("NoExecute");
    assert!(evicting(&at(&world, "a", 0, &mut memory)));
    assert!(!evicting(&at(&world, "b", 1, &mut memory)));
    assert!(evicting(&at(&world, "a", 2, &mut memory)), "a write that failed costs no second turn");
    assert!(evicting(&at(&world, "b", 10, &mut memory)));
}

#[test]
fn with_every_node_down_nothing_is_evicted() {
    let mut memory = Memory::default();
    let tainted = r#""taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"}]"#;
    let world = World::new().with(&node("a", "False", tainted)).with(&node("b", "False", ""));
    let world = step(world, "a", 0, &mut memory);
    assert_eq!(taints_of(&world, "a"), ["not-ready:NoSchedule"]);
    at(&world, "b", 0, &mut memory);
    let world = world.with(&node("b", "True", ""));
    at(&world, "b", 100, &mut memory);
    assert_eq!(memory.grace_from, Some(NOW.plus(Duration::from_secs(100))), "everybody has a full grace period again");
}

#[test]
fn a_node_that_goes_is_forgotten() {
    let mut memory = Memory::default();
    at(&World::new().with(&node("n", "True", "")), "n", 0, &mut memory);
    let gone = at(&World::new(), "n", 1, &mut memory);
    assert_eq!((gone.events[0].reason.as_str(), gone.events[0].uid.as_str()), ("RemovingNode", "u-n"));
    assert!(at(&World::new(), "n", 2, &mut memory).is_empty());
}
