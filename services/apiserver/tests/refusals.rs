//! A refusal is heard, however the request was sent.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

#[allow(dead_code, reason = "each test binary uses its part of the harness")]
mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::Harness;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use wheelhouse_apiserver::{ConnectionInfo, serve_connection};

/// One request over HTTP/2: its code, or why there was no answer.
async fn post(h: &Harness, body: usize) -> Result<(u16, usize), hyper::Error> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let info = ConnectionInfo::new(([192, 0, 2, 1], 1).into(), Vec::new());
    tokio::spawn(serve_connection(Arc::clone(&h.server), far, info));
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await?;
    tokio::spawn(connection);
    let request = Request::post("http://x/api/v1/namespaces/default/configmaps")
        .header("authorization", "Bearer nonsense")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(vec![b' '; body])))
        .unwrap();
    let answer = client.send_request(request).await?;
    let code = answer.status().as_u16();
    Ok((code, answer.into_body().collect().await?.to_bytes().len()))
}

#[tokio::test]
async fn a_body_that_nobody_reads_does_not_cut_the_answer_off() {
    let h = Harness::start().await;
    for body in [0, 100, 200 * 1024] {
        let (code, length) = post(&h, body).await.unwrap();
        assert_eq!(code, 401, "{body}");
        assert!(length > 0, "{body}");
    }
}

#[tokio::test]
async fn answers_name_the_flow_that_they_belong_to() {
    let h = Harness::start().await;
    let answer = h.anonymous("/version").await;
    assert!(answer.headers().contains_key("x-kubernetes-pf-flowschema-uid") && answer.headers().contains_key("x-kubernetes-pf-prioritylevel-uid"));
    let text = String::from_utf8(h.get("/metrics").await.text).unwrap();
    assert!(text.contains("apiserver_flowcontrol_dispatched_requests_total{flow_schema="), "{text}");
}
