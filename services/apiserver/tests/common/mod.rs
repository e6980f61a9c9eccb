//! An API server over a store in memory, called without sockets.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, BodyStream, Full};
use serde_json::Value;
use wheelhouse_access::token::{Issuer, SigningKey};
use wheelhouse_apiserver::body::Body;
use wheelhouse_apiserver::{ApiServer, Catalogue, Config, ConnectionInfo, Credentials, Limits, Origin, Security, Shared, bootstrap};
use wheelhouse_base::SystemClock;
use wheelhouse_client::Identity;
use wheelhouse_kinds::registry::{Profile, Registry};
use wheelhouse_pki::EcKey;
use wheelhouse_store::{MemoryStore, Store};

pub struct Harness {
    pub server: Arc<ApiServer>,
    pub store: Arc<dyn Store>,
}

pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub text: Vec<u8>,
    /// Null if the answer is not JSON.
    pub body: Value,
}

/// A request's parts beside method and path.
#[derive(Default)]
pub struct Options<'a> {
    pub content_type: &'a str,
    pub accept: &'a str,
    pub body: &'a [u8],
    /// The administrator unless set.
    pub user: Option<Identity>,
}

impl Harness {
    pub async fn start() -> Self {
        Self::with_limits(Limits::default()).await
    }

    pub async fn with_limits(limits: Limits) -> Self {
        Self::with(limits, Registry::new(Profile::Tenant)).await
    }

    pub async fn with(limits: Limits, registry: Registry) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let issuer = Issuer {
            url: "https://kubernetes.default.svc".into(),
            audiences: vec!["https://kubernetes.default.svc".into()],
            signing: SigningKey::from_pem(EcKey::generate().unwrap().to_pem().as_bytes()).unwrap(),
            retired: Vec::new(),
        };
        let security = Security::new(store.clone(), Arc::new(SystemClock), Credentials::new(Vec::new(), issuer));
        let shared = Shared::new(Catalogue::new(registry));
        let server = ApiServer::new(Config { limits, ..Config::default() }, store.clone(), shared, security);
        bootstrap::run(&server).await.unwrap();
        Self { server, store }
    }

    pub async fn send(&self, method: &str, path: &str, options: Options<'_>) -> http::Response<Body> {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
        if !options.content_type.is_empty() {
            request = request.header("content-type", options.content_type);
        }
        if !options.accept.is_empty() {
            request = request.header("accept", options.accept);
        }
        let request = request.extension(options.user.unwrap_or_else(Identity::loopback));
        let request = request.body(Full::new(Bytes::copy_from_slice(options.body))).unwrap();
        self.server.handle(Origin::InProcess, request).await
    }

    /// A request from the network without credentials.
    pub async fn anonymous(&self, path: &str) -> http::Response<Body> {
        let connection = ConnectionInfo::new(([192, 0, 2, 1], 1).into(), Vec::new());
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        self.server.handle(Origin::Network(Arc::new(connection)), request).await
    }

    pub async fn call(&self, method: &str, path: &str, options: Options<'_>) -> Answer {
        let (parts, body) = self.send(method, path, options).await.into_parts();
        let text = body.collect().await.unwrap().to_bytes().to_vec();
        let body = serde_json::from_slice(&text).unwrap_or(Value::Null);
        Answer { code: parts.status.as_u16(), headers: parts.headers, text, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Options::default()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, Options { content_type: "application/json", body: body.to_string().as_bytes(), ..Options::default() }).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path, Options { content_type: "application/json", body: body.to_string().as_bytes(), ..Options::default() }).await
    }

    pub async fn merge(&self, path: &str, body: &Value) -> Answer {
        let content_type = "application/merge-patch+json";
        self.call("PATCH", path, Options { content_type, body: body.to_string().as_bytes(), ..Options::default() }).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, Options::default()).await
    }

    /// A watch's events as they come.
    pub async fn watch(&self, path: &str) -> Events {
        let response = self.send("GET", path, Options::default()).await;
        assert_eq!(response.status(), 200);
        Events { body: BodyStream::new(response.into_body()), buffer: Vec::new() }
    }
}

pub struct Events {
    body: BodyStream<Body>,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event; `None` at the end of the watch.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.next().await?.unwrap();
            self.buffer.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Type and name of the next event.
    pub async fn summary(&mut self) -> (String, String) {
        let event = self.next().await.expect("the watch goes on");
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}
