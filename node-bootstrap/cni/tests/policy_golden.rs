//! A world of policies and the rules that follow. `GOLDEN_UPDATE=1` writes `testdata/policies.nft` anew; the diff is the review.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_norway::Value;
use wheelhouse_cni::policy::{PodFacts, World, plan};

#[test]
fn policies_become_these_rules() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/policies.yaml");
    let objects: Vec<Value> = serde_norway::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind).cloned();
    let pods: Vec<PodFacts> = of("Pod").filter_map(|object| PodFacts::of(&serde_norway::from_value::<Pod>(object).unwrap())).collect();
    let policies: Vec<NetworkPolicy> = of("NetworkPolicy").map(|object| serde_norway::from_value(object).unwrap()).collect();
    let namespaces: BTreeMap<_, _> = of("Namespace")
        .map(|object| serde_norway::from_value::<Namespace>(object).unwrap().metadata)
        .map(|meta| (meta.name.unwrap_or_default(), meta.labels))
        .collect();
    let dns = ["10.96.0.10".parse().unwrap()];
    let world = World { policies: policies.iter().collect(), pods: pods.iter().collect(), namespaces: &namespaces, node: "n1", dns: &dns };
    let text: String = plan(&world).iter().map(wheelhouse_net::Ruleset::render).collect();
    let expected = path.with_extension("nft");
    if std::env::var("GOLDEN_UPDATE").is_ok() {
        std::fs::write(&expected, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(expected).unwrap_or_default());
}
