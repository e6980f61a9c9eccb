//! Requests and their answers, without sockets.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

#[allow(dead_code, reason = "each test binary uses its part of the harness")]
mod common;

use common::{Harness, Options};
use serde_json::{Value, json};
use wheelhouse_apiserver::Limits;
use wheelhouse_client::Identity;
use wheelhouse_mvcc::Command;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"l": data}}, "data": {"k": data}})
}

#[tokio::test]
async fn an_object_lives_and_dies() {
    let h = Harness::start().await;
    let made = h.post(MAPS, &map("a", "1")).await;
    assert_eq!((made.code, &made.body["kind"]), (201, &json!("ConfigMap")));
    assert_eq!(h.post(MAPS, &map("a", "1")).await.body["reason"], "AlreadyExists");

    let path = format!("{MAPS}/a");
    let got = h.get(&path).await;
    assert_eq!(got.body, made.body, "what is read is what was answered");

    // An update that changes nothing keeps the version; one that is based on an old version is refused.
    assert_eq!(h.put(&path, &got.body).await.body["metadata"]["resourceVersion"], got.body["metadata"]["resourceVersion"]);
    let mut changed = got.body.clone();
    changed["data"]["k"] = json!("2");
    let put = h.put(&path, &changed).await;
    assert_eq!(put.code, 200);
    assert_ne!(put.body["metadata"]["resourceVersion"], got.body["metadata"]["resourceVersion"]);
    assert_eq!(h.put(&path, &changed).await.body["reason"], "Conflict");

    let patched = h.merge(&path, &json!({"data": {"k": null, "m": "3"}})).await;
    assert_eq!(patched.body["data"], json!({"m": "3"}));

    let gone = h.delete(&path).await;
    assert_eq!((gone.code, &gone.body["status"], &gone.body["details"]["uid"]), (200, &json!("Success"), &made.body["metadata"]["uid"]));
    assert_eq!(h.get(&path).await.code, 404);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let h = Harness::start().await;
    let mut object = map("held", "1");
    object["metadata"]["finalizers"] = json!(["x.example.com/hold"]);
    h.post(MAPS, &object).await;
    let path = format!("{MAPS}/held");
    let marked = h.delete(&path).await;
    assert!(marked.body["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(h.get(&path).await.code, 200);
    let more = h.merge(&path, &json!({"metadata": {"finalizers": ["x.example.com/hold", "y.example.com/more"]}})).await;
    assert_eq!(more.code, 422);
    assert_eq!(h.merge(&path, &json!({"metadata": {"finalizers": null}})).await.code, 200);
    assert_eq!(h.get(&path).await.code, 404);
}

#[tokio::test]
async fn dry_runs_and_generated_names() {
    let h = Harness::start().await;
    let dry = h.post(&format!("{MAPS}?dryRun=All"), &map("dry", "1")).await;
    assert_eq!((dry.code, dry.body["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(h.get(&format!("{MAPS}/dry")).await.code, 404);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}});
    let (one, two) = (h.post(MAPS, &body).await, h.post(MAPS, &body).await);
    let name = |answer: &common::Answer| answer.body["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name(&one).starts_with("g-") && name(&one) != name(&two));
}

#[tokio::test]
async fn pages_show_one_revision_and_expire() {
    let h = Harness::start().await;
    for name in ["a", "b", "c", "d"] {
        h.post("/api/v1/namespaces/kube-public/configmaps", &map(name, "1")).await;
    }
    let path = "/api/v1/namespaces/kube-public/configmaps?limit=2";
    let first = h.get(path).await;
    assert_eq!((first.body["items"].as_array().unwrap().len(), &first.body["metadata"]["remainingItemCount"]), (2, &json!(2)));
    let token = first.body["metadata"]["continue"].as_str().unwrap().to_owned();
    h.delete("/api/v1/namespaces/kube-public/configmaps/c").await;
    let second = h.get(&format!("{path}&continue={token}")).await;
    let names: Vec<&str> = second.body["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["c", "d"], "later pages show the first page's revision");
    assert_eq!(second.body["metadata"]["resourceVersion"], first.body["metadata"]["resourceVersion"]);

    // A token whose revision is gone is answered with one that goes on at the newest.
    h.store.commit(Command::Compact { revision: h.store.snapshot().revision() }).await.unwrap();
    let old = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0";
    let expired = h.get(&format!("{path}&continue={old}")).await;
    assert_eq!((expired.code, &expired.body["reason"]), (410, &json!("Expired")));
    let fresh = expired.body["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = h.get(&format!("{path}&continue={fresh}")).await;
    assert_eq!(rest.body["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn watches_follow_objects_into_and_out_of_a_selection() {
    let h = Harness::start().await;
    h.post(MAPS, &map("a", "in")).await;
    let mut events = h
        .watch(&format!("{MAPS}?watch=1&labelSelector=l%3Din&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"))
        .await;
    assert_eq!(events.summary().await, ("ADDED".into(), "a".into()));
    let mark = events.next().await.unwrap();
    assert_eq!((&mark["type"], &mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"]), (&json!("BOOKMARK"), &json!("true")));
    h.post(MAPS, &map("b", "out")).await;
    h.merge(&format!("{MAPS}/b"), &json!({"metadata": {"labels": {"l": "in"}}})).await;
    h.merge(&format!("{MAPS}/b"), &json!({"data": {"k": "2"}})).await;
    h.merge(&format!("{MAPS}/b"), &json!({"metadata": {"labels": {"l": "out"}}})).await;
    h.delete(&format!("{MAPS}/a")).await;
    for expected in [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b"), ("DELETED", "a")] {
        let (kind, name) = events.summary().await;
        assert_eq!((kind.as_str(), name.as_str()), expected);
    }
    h.server.drain();
    assert_eq!(events.next().await, None, "a watch ends when the server drains");
}

#[tokio::test]
async fn a_watch_from_lost_history_says_so() {
    let h = Harness::start().await;
    h.store.commit(Command::Compact { revision: h.store.snapshot().revision() }).await.unwrap();
    let mut events = h.watch(&format!("{MAPS}?watch=1&resourceVersion=1")).await;
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn two_services_never_hold_one_address() {
    let h = Harness::start().await;
    let path = "/api/v1/namespaces/default/services";
    let service = |name: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"clusterIP": "10.96.5.5", "ports": [{"port": 80}]}});
    assert_eq!(h.post(path, &service("one")).await.code, 201);
    let refused = h.post(path, &service("two")).await;
    assert_eq!(refused.code, 422);
    assert!(refused.body["message"].as_str().unwrap().contains("provided IP is already allocated"), "{}", refused.body["message"]);
    assert_eq!(h.delete(&format!("{path}/one")).await.code, 200);
    assert_eq!(h.post(path, &service("two")).await.code, 201, "a deleted Service gives its address back");
}

#[tokio::test]
async fn users_are_held_to_their_rights_and_to_the_limits() {
    let h = Harness::with_limits(Limits { in_flight: 0, ..Limits::default() }).await;
    let nobody = || Some(Identity::component("nobody"));
    let refused = h.call("GET", MAPS, Options { user: nobody(), ..Options::default() }).await;
    assert_eq!((refused.code, &refused.body["reason"]), (403, &json!("Forbidden")));
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(h.post(path, &review).await.body["status"]["allowed"], true);
    // Time passes at once while nothing happens, so the wait in a queue is over.
    tokio::time::pause();
    let busy = h.anonymous("/version").await;
    tokio::time::resume();
    assert_eq!((busy.status().as_u16(), busy.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    assert_eq!(h.get("/version").await.code, 200, "the control plane's own calls get through");
}

#[tokio::test]
async fn documents_are_served_to_clients_that_do_not_have_them() {
    let h = Harness::start().await;
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/apis/rbac.authorization.k8s.io/v1",
        "/version",
        "/openapi/v3",
        "/openapi/v3/api/v1",
        "/",
        "/metrics",
        "/openid/v1/jwks",
    ] {
        assert_eq!(h.get(path).await.code, 200, "{path}");
    }
    assert_eq!(h.get("/readyz?verbose").await.text.split(|b| *b == b'\n').next(), Some(&b"[+]ping ok"[..]));
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let first = h.call("GET", "/apis", Options { accept, ..Options::default() }).await;
    assert_eq!((&first.body["kind"], first.headers.contains_key("etag")), (&json!("APIGroupDiscoveryList"), true));
    assert_eq!(h.get("/nowhere").await.text, b"404 page not found\n");
}
