//! The API's lists and watches over a map in memory, for tests of a node's parts: no server to build, no sockets.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use wheelhouse_client::{Client, ResponseBody, Transport, TransportError, full_body};

/// What a watch sends: the collection, the object's name, and the event's line.
#[derive(Clone)]
struct Event {
    revision: u64,
    collection: String,
    name: String,
    line: Bytes,
}

#[derive(Default)]
struct State {
    revision: u64,
    /// By collection (`/api/v1/services`), namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    events: Vec<Event>,
    watchers: Vec<mpsc::UnboundedSender<Event>>,
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<State>>);

pub struct Api {
    pub client: Client,
    memory: Memory,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn collection(object: &Value) -> String {
    let kind = text(&object["kind"]).to_lowercase();
    let plural = if kind.ends_with('y') { format!("{}ies", &kind[..kind.len() - 1]) } else { format!("{kind}s") };
    let version = text(&object["apiVersion"]);
    if version.contains('/') { format!("/apis/{version}/{plural}") } else { format!("/api/{version}/{plural}") }
}

impl Api {
    pub fn start() -> Self {
        let memory = Memory::default();
        Self { client: Client::new(Arc::new(memory.clone())), memory }
    }

    /// Creates or replaces an object, given as YAML.
    pub fn put(&self, yaml: &str) {
        let mut object: Value = serde_norway::from_str(yaml).unwrap();
        let mut state = self.memory.0.lock();
        state.revision += 1;
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        let key = (collection(&object), text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let kind = if state.objects.contains_key(&key) { "MODIFIED" } else { "ADDED" };
        state.publish(kind, &object);
        state.objects.insert(key, object);
    }

    /// `collection` is the resource's path, as in `/api/v1/services`.
    #[allow(dead_code, reason = "each test uses its part")]
    pub fn delete(&self, collection: &str, namespace: &str, name: &str) {
        let mut state = self.memory.0.lock();
        state.revision += 1;
        let mut object = state.objects.remove(&(collection.to_owned(), namespace.to_owned(), name.to_owned())).unwrap();
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        state.publish("DELETED", &object);
    }
}

impl State {
    fn publish(&mut self, kind: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": object})));
        let event = Event { revision: self.revision, collection: collection(object), name: text(&object["metadata"]["name"]), line };
        self.events.push(event.clone());
        self.watchers.retain(|watcher| watcher.send(event.clone()).is_ok());
    }
}

#[async_trait::async_trait]
impl Transport for Memory {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().replace("%3D", "=");
        let parameter = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('=').map(str::to_owned));
        let only = parameter("fieldSelector").and_then(|selector| selector.strip_prefix("metadata.name=").map(str::to_owned));
        let mut state = self.0.lock();
        if parameter("watch").is_none() {
            let wanted =
                state.objects.iter().filter(|((collection, _, name), _)| *collection == path && only.as_ref().is_none_or(|only| only == name));
            let items: Vec<&Value> = wanted.map(|(_, object)| object).collect();
            let list = json!({"metadata": {"resourceVersion": state.revision.to_string()}, "items": items});
            return Ok(Response::new(full_body(list.to_string())));
        }
        let after: u64 = parameter("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let (sender, receiver) = mpsc::unbounded_channel();
        for event in state.events.iter().filter(|event| event.revision > after) {
            let _ = sender.send(event.clone());
        }
        state.watchers.push(sender);
        let lines = stream::unfold((receiver, path, only), |(mut receiver, path, only)| async move {
            loop {
                let event: Event = receiver.recv().await?;
                if event.collection == path && only.as_ref().is_none_or(|only| *only == event.name) {
                    return Some((Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Frame::data(event.line)), (receiver, path, only)));
                }
            }
        });
        Ok(Response::new(StreamBody::new(lines).boxed_unsync()))
    }
}
