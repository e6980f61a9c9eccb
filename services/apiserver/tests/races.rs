//! Writers that meet: every one of them is answered truthfully, and no resource is given twice.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

#[allow(dead_code, reason = "each test binary uses its part of the harness")]
mod common;

use std::collections::HashSet;

use common::Harness;
use futures::future::join_all;
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/default";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_of_one_object_all_take_effect() {
    let h = Harness::start().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}});
    let path = format!("{NAMESPACE}/configmaps/shared");
    assert_eq!(h.post(&format!("{NAMESPACE}/configmaps"), &map).await.code, 201);
    let patches: Vec<Value> = (0..16).map(|i| json!({"data": {format!("k{i}"): "v"}})).collect();
    let answers = join_all(patches.iter().map(|patch| h.merge(&path, patch))).await;
    assert!(answers.iter().all(|answer| answer.code == 200));
    assert_eq!(h.get(&path).await.body["data"].as_object().unwrap().len(), 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_creators_wins() {
    let h = Harness::start().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "once"}});
    let path = format!("{NAMESPACE}/configmaps");
    let answers = join_all((0..8).map(|_| h.post(&path, &map))).await;
    assert_eq!(answers.iter().filter(|answer| answer.code == 201).count(), 1);
    assert!(answers.iter().filter(|answer| answer.code != 201).all(|answer| answer.body["reason"] == "AlreadyExists"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_share_no_address_and_no_port() {
    let h = Harness::start().await;
    let path = format!("{NAMESPACE}/services");
    let services: Vec<Value> = (0..16)
        .map(|i| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{i}")}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}))
        .collect();
    let answers = join_all(services.iter().map(|service| h.post(&path, service))).await;
    let addresses: HashSet<&str> = answers.iter().map(|a| a.body["spec"]["clusterIP"].as_str().unwrap()).collect();
    let ports: HashSet<u64> = answers.iter().map(|a| a.body["spec"]["ports"][0]["nodePort"].as_u64().unwrap()).collect();
    assert_eq!((addresses.len(), ports.len()), (16, 16));
    for i in 0..16 {
        assert_eq!(h.delete(&format!("{path}/s{i}")).await.code, 200);
    }
    let left = h.store.snapshot().range(b"/registry/ranges/", Some(b"/registry/ranges0")).count();
    assert_eq!(left, 1, "only default/kubernetes holds an address");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evictions_spend_no_more_than_the_budget() {
    let h = Harness::start().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    assert_eq!(h.post(&format!("{NAMESPACE}/serviceaccounts"), &account).await.code, 201);
    for name in ["a", "b", "c"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(h.post(&format!("{NAMESPACE}/pods"), &pod).await.code, 201);
        let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(h.merge(&format!("{NAMESPACE}/pods/{name}/status"), &running).await.code, 200);
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "x"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "x"}}}});
    assert_eq!(h.post(budgets, &budget).await.code, 201);
    let observed = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}});
    assert_eq!(h.merge(&format!("{budgets}/x/status"), &observed).await.code, 200);

    let evict = |name: &'static str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let (h, path) = (&h, format!("{NAMESPACE}/pods/{name}/eviction"));
        async move { h.post(&path, &body).await }
    };
    let answers = join_all(["a", "b", "c"].map(evict)).await;
    let mut codes: Vec<u16> = answers.iter().map(|answer| answer.code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [201, 429, 429]);
    let after = h.get(&format!("{budgets}/x")).await;
    assert_eq!(after.body["status"]["disruptedPods"].as_object().unwrap().len(), 1);
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn quota(name: &str, hard: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}})
}

#[tokio::test]
async fn as_many_as_fit_are_made_and_a_deletion_makes_room() {
    let h = Harness::start().await;
    assert_eq!(h.post(MAPS, &map("before")).await.code, 201);
    assert_eq!(h.post(QUOTAS, &quota("q", json!({"count/configmaps": "4"}))).await.code, 201);
    let codes = join_all((0..10).map(|n| {
        let h = &h;
        async move { h.post(MAPS, &map(&format!("m{n}"))).await.code }
    }))
    .await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 3, "{codes:?}");
    let refused = h.post(MAPS, &map("more")).await;
    assert_eq!(refused.code, 403);
    let expected =
        "configmaps \"more\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=4, limited: count/configmaps=4";
    assert_eq!(refused.body["message"], expected);
    assert_eq!(h.delete(&format!("{MAPS}/before")).await.code, 200);
    assert_eq!(h.post(MAPS, &map("more")).await.code, 201);
    assert_eq!(h.post(MAPS, &map("most")).await.code, 403);
}

#[tokio::test]
async fn several_quotas_and_a_changed_one_are_all_kept() {
    let h = Harness::start().await;
    assert_eq!(h.post(QUOTAS, &quota("wide", json!({"count/configmaps": "9"}))).await.code, 201);
    assert_eq!(h.post(QUOTAS, &quota("narrow", json!({"configmaps": "1", "services": "5"}))).await.code, 201);
    assert_eq!(h.post(MAPS, &map("a")).await.code, 201);
    let refused = h.post(MAPS, &map("b")).await;
    assert!(refused.body["message"].as_str().unwrap().contains("exceeded quota: narrow"), "{}", refused.body);
    // The other limits of a quota that was changed are counted anew.
    assert_eq!(h.delete(&format!("{QUOTAS}/narrow")).await.code, 200);
    assert_eq!(h.post(QUOTAS, &quota("narrow", json!({"configmaps": "2"}))).await.code, 201);
    assert_eq!(h.post(MAPS, &map("b")).await.code, 201);
    assert_eq!(h.post(MAPS, &map("c")).await.code, 403);
}
