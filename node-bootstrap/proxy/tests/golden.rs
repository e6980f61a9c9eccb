//! Worlds and the rules that follow: `testdata/NAME.yaml` holds steps of objects, `testdata/NAME.nft` the tables after the first step and the
//! transaction of every further one. `GOLDEN_UPDATE=1` writes the files anew; the diff is the review.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

use std::fmt::Write as _;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_norway::Value;
use wheelhouse_proxy::{NodeFacts, Planner, ServiceFacts, SliceFacts};

fn apply(planner: &mut Planner, object: Value) {
    let is_deleted = object.get("deleted").is_some();
    match object["kind"].as_str().unwrap() {
        "Service" => {
            let service: Service = serde_norway::from_value(object).unwrap();
            planner.set_service(ServiceFacts::name_of(&service), ServiceFacts::of(&service).filter(|_| !is_deleted));
        }
        "EndpointSlice" => {
            let slice: EndpointSlice = serde_norway::from_value(object).unwrap();
            let name = slice.metadata.name.clone().unwrap();
            planner.set_slice(SliceFacts::service_of(&slice).unwrap(), name, Some(SliceFacts::of(&slice)).filter(|_| !is_deleted));
        }
        other => panic!("{other} in a world"),
    }
}

/// The part of a table that services put there.
fn contributed(planner: &Planner, pods: &[String]) -> String {
    let node = NodeFacts { name: "n1".into(), zone: None };
    let empty = Planner::new(node, pods, Default::default()).rulesets();
    planner.rulesets().iter().zip(&empty).map(|(full, empty)| full.diff(empty).render()).collect()
}

fn run(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let world: Value = serde_norway::from_str(&std::fs::read_to_string(path.with_extension("yaml")).unwrap()).unwrap();
    let pods = ["10.244.0.0/16".to_owned(), "fd00:244::/56".to_owned()];
    let node = NodeFacts { name: "n1".into(), zone: Some("a".into()) };
    let mut planner = Planner::new(node, &pods, ["10.96.0.10".parse().unwrap()].into());
    let mut out = String::new();
    for (number, step) in world["steps"].as_sequence().unwrap().iter().enumerate() {
        for object in step["objects"].as_sequence().unwrap() {
            apply(&mut planner, object.clone());
        }
        let commit = planner.commit();
        writeln!(out, "# {}", step["what"].as_str().unwrap()).unwrap();
        match number {
            0 => out.push_str(&contributed(&planner, &pods)),
            _ => out.extend(commit.patches.iter().map(wheelhouse_net::Patch::render)),
        }
        for flow in &commit.stale_flows {
            writeln!(out, "# stale: {flow:?}").unwrap();
        }
    }
    let expected = path.with_extension("nft");
    if std::env::var("GOLDEN_UPDATE").is_ok() {
        std::fs::write(&expected, &out).unwrap();
    }
    assert_eq!(out, std::fs::read_to_string(expected).unwrap_or_default(), "rules of {name} differ");
}

#[test]
fn cluster_ips_and_their_changes() {
    run("cluster-ip");
}

#[test]
fn every_way_in_from_outside() {
    run("external");
}

#[test]
fn session_affinity() {
    run("affinity");
}
