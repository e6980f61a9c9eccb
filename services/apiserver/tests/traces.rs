//! A request's spans belong to the trace that its client, or the endpoint before it, began.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

#[allow(dead_code, reason = "each test binary uses its part of the harness")]
mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::Harness;
use http::Request;
use http_body_util::Full;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing_subscriber::layer::SubscriberExt;
use wheelhouse_apiserver::{ConnectionInfo, Origin};
use wheelhouse_client::Identity;

const AT_THE_ENDPOINT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const AT_THE_CLIENT: &str = "00-11111111111111111111111111111111-2222222222222222-01";

/// Keeps what would be exported.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

fn request(traceparent: Option<&str>) -> Request<Full<Bytes>> {
    let mut request = Request::get("/api/v1/namespaces/default/configmaps");
    if let Some(parent) = traceparent {
        request = request.header("traceparent", parent);
    }
    request.body(Full::default()).unwrap()
}

#[tokio::test]
async fn spans_continue_the_endpoints_and_the_clients() {
    let h = Harness::start().await;
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));

    let origin = || {
        let connection = ConnectionInfo::new(([192, 0, 2, 1], 1).into(), Vec::new()).traced(Some(AT_THE_ENDPOINT.to_owned()));
        Origin::Network(Arc::new(connection))
    };
    h.server.handle(origin(), request(None)).await;
    h.server.handle(origin(), request(Some(AT_THE_CLIENT))).await;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"traced"}}"#;
    let mut write =
        Request::post("/api/v1/namespaces/default/configmaps").header("traceparent", AT_THE_CLIENT).header("content-type", "application/json");
    write.extensions_mut().unwrap().insert(Identity::loopback());
    assert_eq!(h.server.handle(Origin::InProcess, write.body(Full::new(Bytes::from(body))).unwrap()).await.status(), 201);

    let spans = kept.0.lock().unwrap();
    let of = |trace: &str| spans.iter().filter(|span| span.span_context.trace_id().to_string() == trace).collect::<Vec<_>>();
    let endpoint = of("4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(
        endpoint.iter().map(|span| (&*span.name, span.parent_span_id.to_string())).collect::<Vec<_>>(),
        [("request", "00f067aa0ba902b7".to_owned())]
    );
    let client = of("11111111111111111111111111111111");
    let names: HashMap<String, &str> = client.iter().map(|span| (span.span_context.span_id().to_string(), &*span.name)).collect();
    let commit = client.iter().find(|span| span.name == "commit").unwrap();
    assert_eq!(names[&commit.parent_span_id.to_string()], "request");
}
