//! Kinds that a cluster defines for itself, from their definition to its end.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

#[allow(dead_code, reason = "each test binary uses its part of the harness")]
mod common;

use common::{Harness, Options};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/k.example.com/v1/namespaces/default/things";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.k.example.com"},
        "spec": {"group": "k.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "required": ["size"], "properties": {
                    "size": {"type": "integer", "maximum": 9.0}, "color": {"type": "string", "default": "red"}}},
                "status": {"type": "object", "properties": {"ready": {"type": "boolean"}, "size": {"type": "integer"}}},
            }}},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        }]},
    })
}

/// What the controllers do to a definition whose names are free.
async fn establish(h: &Harness) {
    let mut made = h.post(DEFINITIONS, &definition()).await.body;
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]), "{made}");
    assert_eq!(h.get(THINGS).await.code, 404, "nothing is served before the names are accepted");
    made["status"]["acceptedNames"] = made["spec"]["names"].clone();
    made["status"]["conditions"] = json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]);
    let put = h.put(&format!("{DEFINITIONS}/things.k.example.com/status"), &made).await;
    assert_eq!(put.code, 200, "{}", put.body);
}

fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "k.example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn objects_are_pruned_defaulted_and_validated() {
    let h = Harness::start().await;
    establish(&h).await;
    let made = h.post(THINGS, &thing("a", json!({"size": 2.0, "junk": 1}))).await;
    assert_eq!((made.code, &made.body["spec"]), (201, &json!({"size": 2, "color": "red"})));
    assert_eq!(made.headers["warning"], "299 - \"unknown field \\\"spec.junk\\\"\"");
    let bad = h.post(THINGS, &thing("b", json!({"size": 10}))).await;
    let expected = "Thing.k.example.com \"b\" is invalid: spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9";
    assert_eq!((bad.code, bad.body["message"].as_str()), (422, Some(expected)));
    let patched = h.merge(&format!("{THINGS}/a"), &json!({"spec": {"size": 3}, "status": {"ready": true}})).await;
    assert_eq!((&patched.body["metadata"]["generation"], patched.body.get("status")), (&json!(2), None), "status has a path of its own");
    let status = h.merge(&format!("{THINGS}/a/status"), &json!({"spec": {"size": 4}, "status": {"ready": true}})).await;
    assert_eq!((&status.body["spec"]["size"], &status.body["status"]["ready"]), (&json!(3), &json!(true)));
    let strategic = Options { content_type: "application/strategic-merge-patch+json", body: b"{}", ..Options::default() };
    assert_eq!(h.call("PATCH", &format!("{THINGS}/a"), strategic).await.code, 415);
}

#[tokio::test]
async fn scale_selectors_and_tables_follow_the_definition() {
    let h = Harness::start().await;
    establish(&h).await;
    h.post(THINGS, &thing("a", json!({"size": 2}))).await;
    h.post(THINGS, &thing("b", json!({"size": 3, "color": "blue"}))).await;
    let scaled = h.merge(&format!("{THINGS}/a/scale"), &json!({"spec": {"replicas": 7}})).await;
    assert_eq!((scaled.code, &scaled.body["spec"]["replicas"]), (200, &json!(7)), "{}", scaled.body);
    assert_eq!(h.get(&format!("{THINGS}/a")).await.body["spec"]["size"], 7);
    let blue = h.get(&format!("{THINGS}?fieldSelector=spec.color%3Dblue")).await.body;
    let names: Vec<&Value> = blue["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!((names, &blue["items"][0]["kind"]), (vec![&json!("b")], &json!("Thing")));
    let table = Options { accept: "application/json;as=Table;v=v1;g=meta.k8s.io", ..Options::default() };
    let table = h.call("GET", THINGS, table).await.body;
    assert_eq!((&table["columnDefinitions"][1]["name"], &table["rows"][0]["cells"]), (&json!("Size"), &json!(["a", 7])));
}

#[tokio::test]
async fn discovery_and_documents_know_custom_kinds() {
    let h = Harness::start().await;
    establish(&h).await;
    let list = h.get("/apis/k.example.com/v1").await.body;
    let names: Vec<&str> = list["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["things", "things/status", "things/scale"]);
    let groups = h.get("/apis").await.body;
    assert!(groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == "k.example.com"));
    let index = h.get("/openapi/v3").await.body;
    let address = index["paths"]["apis/k.example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = h.get(address).await.body;
    let size = &document["components"]["schemas"]["com.example.k.v1.Thing"]["properties"]["spec"]["properties"]["size"];
    assert_eq!(size, &json!({"type": "integer", "maximum": 9}));
}

#[tokio::test]
async fn a_deleted_definition_waits_for_its_finalizer() {
    let h = Harness::start().await;
    establish(&h).await;
    h.post(THINGS, &thing("a", json!({"size": 2}))).await;
    let path = format!("{DEFINITIONS}/things.k.example.com");
    let going = h.delete(&path).await.body;
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(h.post(THINGS, &thing("b", json!({"size": 2}))).await.code, 405, "no new objects come");
    assert_eq!(h.delete(&format!("{THINGS}/a")).await.code, 200);
    assert_eq!(h.merge(&path, &json!({"metadata": {"finalizers": null}})).await.code, 200);
    assert_eq!((h.get(&path).await.code, h.get(THINGS).await.code), (404, 404));
}
