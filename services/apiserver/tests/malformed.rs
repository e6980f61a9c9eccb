//! Whatever a client sends, it gets an answer from 200 to 504 and never one that says that the server itself broke.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

#[allow(dead_code, reason = "each test binary uses its part of the harness")]
mod common;

use common::{Harness, Options};

const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"];

const PATHS: &[&str] = &[
    "/",
    "//",
    "/api",
    "/api/v1/",
    "/api/v1/namespaces",
    "/api/v1/namespaces//",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
    "/api/v1/namespaces/default/configmaps/..",
    "/api/v1/namespaces/default/configmaps/a%2Fb",
    "/api/v1/namespaces/default/configmaps/%ff%00",
    "/api/v1/namespaces/default/configmaps/a/b/c/d",
    "/api/v1/namespaces/%2e%2e/secrets/x",
    "/api/v1/namespaces/default/pods/p/exec?command=a&command=b",
    "/api/v1/namespaces/default/pods/p/eviction",
    "/api/v1/namespaces/default/pods/p/binding",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/api/v1/watch/namespaces",
    "/api/v1/watch",
    "/api/v1/configmaps?limit=-1&continue=%00&resourceVersion=-1",
    "/api/v1/configmaps?labelSelector=%21%21%28%29,,&fieldSelector=%5C",
    "/api/v1/configmaps?limit=99999999999999999999",
    "/api/v1/configmaps?timeout=banana",
    "/api/v1/configmaps?watch=1&timeoutSeconds=9223372036854775807&resourceVersion=x",
    "/api/v1/configmaps?resourceVersionMatch=Odd",
    "/api/v1/configmaps?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OSwic3RhcnQiOiIuLi8uLi94In0",
    "/apis/apps/v1/namespaces/default/deployments/d/scale",
    "/apis/absent/v1/things",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/openapi/v3/%2e%2e/x",
    "/healthz/nothing",
];

const BODIES: &[&[u8]] = &[
    b"",
    b"{",
    b"null",
    b"[]",
    b"\"x\"",
    b"{}",
    b"{\"metadata\":null}",
    b"{\"metadata\":[]}",
    b"{\"metadata\":{\"name\":5,\"labels\":[1]}}",
    b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"\\u0000/../x\"}}",
    b"{\"apiVersion\":\"a/b/c\",\"kind\":\"ConfigMap\"}",
    b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"18446744073709551616\"}}",
    b"{\"spec\":{\"replicas\":-5,\"ports\":[{\"nodePort\":\"x\"}]},\"target\":{},\"deleteOptions\":{\"gracePeriodSeconds\":-9223372036854775808}}",
    b"[{\"op\":\"replace\",\"path\":\"/metadata\",\"value\":3}]",
    b"[{\"op\":\"copy\",\"from\":\"\",\"path\":\"/data/a\"}]",
    b"{\"$patch\":\"delete\"}",
    b"{\"preconditions\":{\"uid\":7},\"propagationPolicy\":[]}",
    b"a: [b\n",
    b"a: &a [*a]\n",
    b"k8s\x00",
    b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x51\x0a\x22",
    b"\xff\xfe\x00\x01",
];

const TYPES: &[&str] = &[
    "",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "text/plain; charset=\"",
];

const ACCEPTS: &[&str] =
    &["", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf", "application/yaml", ";;;,,q=x", "*/*;q=nan"];

#[tokio::test]
async fn nothing_breaks_the_server() {
    let h = Harness::start().await;
    for (at, path) in PATHS.iter().enumerate() {
        for method in METHODS {
            for (number, body) in BODIES.iter().enumerate() {
                // Every pair of path and body with a changing type and form; the whole product would only be slower.
                let content_type = TYPES[(at + number) % TYPES.len()];
                let accept = ACCEPTS[(at + 2 * number) % ACCEPTS.len()];
                check(&h, method, path, content_type, accept, body).await;
                if *method == "PATCH" {
                    for content_type in TYPES {
                        check(&h, method, path, content_type, "", body).await;
                    }
                }
            }
        }
    }
    // It still works.
    assert_eq!(h.get("/api/v1/namespaces/default").await.code, 200);
}

async fn check(h: &Harness, method: &str, path: &str, content_type: &str, accept: &str, body: &[u8]) {
    // A watch that begins well would not end.
    if path.contains("/watch/") && method == "GET" {
        return;
    }
    let answer = h.call(method, path, Options { content_type, accept, body, user: None }).await;
    let text = String::from_utf8_lossy(&answer.text);
    let what = format!("{method} {path} {content_type} {:?}: {} {text}", String::from_utf8_lossy(body), answer.code);
    assert!((200..=504).contains(&answer.code), "{what}");
    assert!(!text.contains("the request could not be served"), "{what}");
}

#[tokio::test]
async fn deep_and_large_bodies_are_refused() {
    let h = Harness::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let deep = format!("{}{}", "{\"a\":".repeat(50_000), "}".repeat(50_000));
    for content_type in TYPES {
        for method in ["POST", "PATCH", "PUT"] {
            let path = if method == "POST" { path.to_owned() } else { format!("{path}/x?fieldManager=m") };
            let answer = h.call(method, &path, Options { content_type, body: deep.as_bytes(), ..Options::default() }).await;
            assert!((400..500).contains(&answer.code), "{method} {content_type}: {}", answer.code);
        }
    }
    let large = vec![b' '; 3 * 1024 * 1024 + 1];
    let answer = h.call("POST", path, Options { content_type: "application/json", body: &large, ..Options::default() }).await;
    assert_eq!((answer.code, answer.body["message"].as_str()), (413, Some("Request entity too large: limit is 3145728")));
}
