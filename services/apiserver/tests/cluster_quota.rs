//! A tenant has no more Clusters than it may, however many are asked for at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test binary uses its part of the harness")]
mod common;

use common::Harness;
use serde_json::json;
use wheelhouse_apiserver::Limits;
use wheelhouse_kinds::fleet::system_registry;

#[tokio::test(flavor = "multi_thread")]
async fn creations_at_once_do_not_exceed_it() {
    let harness = Harness::with(Limits::default(), system_registry()).await;
    for (path, object) in [
        ("/api/v1/namespaces", json!({"metadata": {"name": "tenant-t"}})),
        (
            "/apis/fleet.wheelhouse.dev/v1/tenants",
            json!({"metadata": {"name": "t"}, "spec": {"displayName": "T", "email": "t@example.com", "quota": {"clusters": 3}}}),
        ),
    ] {
        let made = harness.post(path, &object).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }
    let path = "/apis/fleet.wheelhouse.dev/v1/namespaces/tenant-t/clusters";
    let objects: Vec<_> = (0..12).map(|n| json!({"metadata": {"name": format!("c{n}")}, "spec": {"replicas": 3}})).collect();
    let answers = futures::future::join_all(objects.iter().map(|object| harness.post(path, object))).await;
    let made: Vec<_> = answers.iter().filter(|answer| answer.code == 201).collect();
    assert_eq!(made.len(), 3, "{:?}", answers.iter().map(|answer| answer.code).collect::<Vec<_>>());
    let refused = answers.iter().find(|answer| answer.code != 201).unwrap();
    assert_eq!(refused.code, 403);
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.ends_with("exceeded quota: used clusters=3, limited clusters=3"), "{message}");

    let name = made[0].body["metadata"]["name"].as_str().unwrap();
    assert_eq!(harness.delete(&format!("{path}/{name}")).await.code, 200);
    let another = |name: &str| json!({"metadata": {"name": name}, "spec": {"replicas": 3}});
    assert_eq!(harness.post(path, &another("in-its-place")).await.code, 201);
    assert_eq!(harness.post(path, &another("one-too-many")).await.code, 403);
}
