//! Verbs on resources. Objects are `serde_json::Value` or any struct that deserialises.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wheelhouse_kinds::plan::DeleteOptions;
use wheelhouse_meta::Status;

use crate::watch::Watcher;
use crate::{ClientError, Identity, ResponseBody, Transport, TransportError};

/// How much of an answer that is not a `Status` is quoted in an error: enough to recognise a proxy's page.
const QUOTED_TEXT: usize = 200;

/// A client with an identity of its own. Cloning is cheap.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    user_agent: HeaderValue,
    extensions: http::Extensions,
    /// Sent with every request: credentials, impersonation.
    headers: HeaderMap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    fn content_type(self) -> &'static str {
        match self {
            PatchKind::Json => "application/json-patch+json",
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Strategic => "application/strategic-merge-patch+json",
            PatchKind::Apply => "application/apply-patch+yaml",
        }
    }
}

/// What narrows a list or a watch. Empty strings and zero mean "not set".
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub resource_version: String,
    pub limit: u32,
    pub continue_token: String,
}

impl Client {
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, user_agent: HeaderValue::from_static("wheelhouse"), extensions: http::Extensions::new(), headers: HeaderMap::new() }
    }

    pub fn user_agent(mut self, name: &'static str) -> Self {
        self.user_agent = HeaderValue::from_static(name);
        self
    }

    /// Acts as `identity` on an in-process transport.
    pub fn identity(self, identity: Identity) -> Self {
        self.extension(identity)
    }

    /// Attaches a value to every request; only an in-process transport carries it.
    pub fn extension<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(value);
        self
    }

    /// Sends `Authorization: Bearer`. `None` for a token that no header can carry.
    pub fn bearer(mut self, token: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Some(self)
    }

    /// Acts as somebody else, whom the server lets this client impersonate. `None` for a name that no header can carry.
    pub fn impersonating(mut self, user: &str, groups: &[&str]) -> Option<Self> {
        self.headers.insert("impersonate-user", HeaderValue::from_str(user).ok()?);
        for group in groups {
            self.headers.append("impersonate-group", HeaderValue::from_str(group).ok()?);
        }
        Some(self)
    }

    /// A resource in one namespace (empty: cluster-scoped, or a list over all namespaces).
    pub fn api(&self, group: &str, version: &str, plural: &str, namespace: &str) -> Api<'_> {
        let mut path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if !namespace.is_empty() {
            let _ = write!(path, "/namespaces/{}", escape(namespace));
        }
        let _ = write!(path, "/{plural}");
        Api { client: self, path }
    }

    /// Sends a request as it is and answers with the streaming response, whatever its status.
    pub async fn send(&self, method: Method, path: &str, content_type: Option<&str>, body: Bytes) -> Result<Response<ResponseBody>, ClientError> {
        let mut request = Request::builder().method(method).uri(path).header(USER_AGENT, &self.user_agent).header(ACCEPT, "application/json");
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let mut request = request.body(body).map_err(ClientError::Request)?;
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        request.extensions_mut().extend(self.extensions.clone());
        Ok(self.transport.send(request).await?)
    }

    /// GETs what lies at a path that no kind of the registry stands for.
    pub async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.request(Method::GET, path, None, Bytes::new()).await
    }

    /// Sends another client's request under this one's credential.
    pub(crate) async fn forward(&self, mut request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        self.transport.send(request).await
    }

    /// Sends a request and reads the JSON answer; a failure status becomes an error.
    pub async fn request<T: DeserializeOwned>(&self, method: Method, path: &str, content_type: Option<&str>, body: Bytes) -> Result<T, ClientError> {
        let response = self.send(method.clone(), path, content_type, body).await?;
        let code = response.status();
        let bytes = response.into_body().collect().await.map_err(ClientError::Body)?.to_bytes();
        if !code.is_success() {
            return Err(refusal(method, path, code.as_u16(), &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|source| ClientError::Decode { method, path: path.to_owned(), source })
    }
}

/// The error that a failed answer stands for.
pub(crate) fn refusal(method: Method, path: &str, code: u16, bytes: &[u8]) -> ClientError {
    match serde_json::from_slice::<Status>(bytes) {
        Ok(status) if status.kind == "Status" => ClientError::Status(Box::new(status)),
        _ => {
            let text = String::from_utf8_lossy(bytes).chars().take(QUOTED_TEXT).collect();
            ClientError::Foreign { method, path: path.to_owned(), code, text }
        }
    }
}

/// One resource of one namespace.
pub struct Api<'a> {
    client: &'a Client,
    path: String,
}

impl Api<'_> {
    fn object_path(&self, name: &str, subresource: &str) -> String {
        let mut path = format!("{}/{}", self.path, escape(name));
        if !subresource.is_empty() {
            path.push('/');
            path.push_str(subresource);
        }
        path
    }

    pub async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.client.request(Method::GET, &self.object_path(name, ""), None, Bytes::new()).await
    }

    /// Absence as `None` instead of an error.
    pub async fn find<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ClientError> {
        match self.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The list object, `items` included.
    pub async fn list<T: DeserializeOwned>(&self, options: &ListOptions) -> Result<T, ClientError> {
        let path = format!("{}{}", self.path, options.query(&[]));
        self.client.request(Method::GET, &path, None, Bytes::new()).await
    }

    pub async fn create<T: DeserializeOwned>(&self, object: &impl Serialize) -> Result<T, ClientError> {
        self.client.request(Method::POST, &self.path, Some("application/json"), encode(object)).await
    }

    /// POST to a subresource.
    pub async fn post<T: DeserializeOwned>(&self, name: &str, subresource: &str, object: &impl Serialize) -> Result<T, ClientError> {
        self.client.request(Method::POST, &self.object_path(name, subresource), Some("application/json"), encode(object)).await
    }

    pub async fn update<T: DeserializeOwned>(&self, name: &str, subresource: &str, object: &impl Serialize) -> Result<T, ClientError> {
        self.client.request(Method::PUT, &self.object_path(name, subresource), Some("application/json"), encode(object)).await
    }

    /// `manager` is the field manager; an apply must name one, and is forced.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        name: &str,
        subresource: &str,
        kind: PatchKind,
        manager: &str,
        patch: &impl Serialize,
    ) -> Result<T, ClientError> {
        let mut path = self.object_path(name, subresource);
        if !manager.is_empty() {
            let _ = write!(path, "?fieldManager={}", escape(manager));
            if kind == PatchKind::Apply {
                path.push_str("&force=true");
            }
        }
        self.client.request(Method::PATCH, &path, Some(kind.content_type()), encode(patch)).await
    }

    /// Answers the deleted object or a `Status`, as the API does.
    pub async fn delete(&self, name: &str, options: &DeleteOptions) -> Result<Value, ClientError> {
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if options.uid.is_some() || options.resource_version.is_some() {
            body["preconditions"] = json!({});
            if let Some(uid) = &options.uid {
                body["preconditions"]["uid"] = json!(uid);
            }
            if let Some(version) = &options.resource_version {
                body["preconditions"]["resourceVersion"] = json!(version);
            }
        }
        if let Some(seconds) = options.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(propagation) = options.propagation {
            body["propagationPolicy"] = json!(propagation.as_str());
        }
        self.client.request(Method::DELETE, &self.object_path(name, ""), Some("application/json"), encode(&body)).await
    }

    /// Starts a watch after `options.resource_version`.
    pub async fn watch(&self, options: &ListOptions) -> Result<Watcher, ClientError> {
        let path = format!("{}{}", self.path, options.query(&[("watch", "true"), ("allowWatchBookmarks", "true")]));
        let response = self.client.send(Method::GET, &path, None, Bytes::new()).await?;
        let code = response.status();
        if !code.is_success() {
            let bytes = response.into_body().collect().await.map_err(ClientError::Body)?.to_bytes();
            return Err(refusal(Method::GET, &path, code.as_u16(), &bytes));
        }
        Ok(Watcher::new(path, response.into_body()))
    }
}

fn encode(object: &impl Serialize) -> Bytes {
    serde_json::to_vec(object).expect("API objects have string keys and serialise").into()
}

impl ListOptions {
    fn query(&self, more: &[(&str, &str)]) -> String {
        let limit = if self.limit == 0 { String::new() } else { self.limit.to_string() };
        let own = [
            ("labelSelector", self.label_selector.as_str()),
            ("fieldSelector", &self.field_selector),
            ("resourceVersion", &self.resource_version),
            ("limit", &limit),
            ("continue", &self.continue_token),
        ];
        let mut query = String::new();
        for (name, value) in own.iter().chain(more).filter(|(_, value)| !value.is_empty()) {
            query.push(if query.is_empty() { '?' } else { '&' });
            let _ = write!(query, "{name}={}", escape(value));
        }
        query
    }
}

/// Percent-encodes everything that is not unreserved (RFC 3986, section 2.3).
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_hold_only_what_is_set() {
        assert_eq!(ListOptions::default().query(&[]), "");
        let options = ListOptions { label_selector: "a in (b,c)".into(), limit: 5, ..ListOptions::default() };
        assert_eq!(options.query(&[("watch", "true")]), "?labelSelector=a%20in%20%28b%2Cc%29&limit=5&watch=true");
    }

    #[test]
    fn an_answer_from_something_else_is_quoted_in_short() {
        let page = "<html>".repeat(100);
        let ClientError::Foreign { code, text, .. } = refusal(Method::GET, "/api", 502, page.as_bytes()) else { panic!("not foreign") };
        assert_eq!((code, text.len()), (502, QUOTED_TEXT));
    }
}
