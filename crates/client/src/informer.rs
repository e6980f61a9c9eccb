//! A list followed by watches: what a part of a node, or any program outside the control plane, knows of one resource.
//!
//! ```text
//! list (in pages) -> Listed(all) -> watch after the list's resourceVersion -> Stored / Deleted … -> the stream ends -> watch from the last one
//!      ^------------------------------------------------------------------------------------- 410 Gone, or the watch is refused
//! ```
//!
//! Changes go into a bounded channel, so a slow receiver slows the watch down instead of growing a queue. The informer keeps no objects: the
//! receiver keeps what it needs of them. Edges may be lost only together with the watch, and then a new list repeats the whole.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{Client, ClientError, ListOptions, WatchEvent};

/// Objects per page of a list: what upstream's clients ask for.
const PAGE: u32 = 500;

/// Wait after the first failure; doubles up to [`MAX_WAIT`].
const MIN_WAIT: Duration = Duration::from_millis(200);

/// Nodes keep working without the control plane, so an absent one is not asked more often than this.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// One resource of the API, over all namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// Everything there is; what was known before and is not in here is gone.
    Listed(Vec<T>),
    Stored(T),
    /// The object as it was last.
    Deleted(T),
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    continue_token: String,
}

/// Why following a resource was interrupted.
enum Interruption {
    /// The receiver is gone.
    Unwanted,
    Failed(ClientError),
}

impl From<ClientError> for Interruption {
    fn from(error: ClientError) -> Self {
        Interruption::Failed(error)
    }
}

/// Follows `resource` until the receiver is dropped. `narrow` carries selectors only. An object that does not decode is logged and left out.
pub async fn follow<T: DeserializeOwned>(client: Client, resource: Resource, narrow: ListOptions, changes: mpsc::Sender<Change<T>>) {
    // Whatever is under way, a request that nobody answers too, ends with the receiver.
    let receiver = changes.clone();
    tokio::select! {
        () = receiver.closed() => {}
        () = follow_on(&client, resource, &narrow, &changes) => {}
    }
}

async fn follow_on<T: DeserializeOwned>(client: &Client, resource: Resource, narrow: &ListOptions, changes: &mpsc::Sender<Change<T>>) {
    let mut wait = MIN_WAIT;
    loop {
        match list_and_watch(client, resource, narrow, changes, &mut wait).await {
            Err(Interruption::Unwanted) => return,
            Err(Interruption::Failed(error)) if error.is_gone() => {}
            Err(Interruption::Failed(error)) => {
                tracing::warn!(resource = resource.plural, %error, "cannot follow a resource; trying again in {wait:?}");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(MAX_WAIT);
            }
            Ok(()) => {}
        }
    }
}

async fn list_and_watch<T: DeserializeOwned>(
    client: &Client,
    resource: Resource,
    narrow: &ListOptions,
    changes: &mpsc::Sender<Change<T>>,
    wait: &mut Duration,
) -> Result<(), Interruption> {
    let api = client.api(resource.group, resource.version, resource.plural, "");
    let mut options = ListOptions { limit: PAGE, resource_version: String::new(), continue_token: String::new(), ..narrow.clone() };
    let mut items = Vec::new();
    let version = loop {
        let page: Page = api.list(&options).await?;
        items.extend(page.items.into_iter().filter_map(|value| decode(resource, value)));
        if page.metadata.continue_token.is_empty() {
            break page.metadata.resource_version;
        }
        options.continue_token = page.metadata.continue_token;
    };
    send(changes, Change::Listed(items)).await?;
    *wait = MIN_WAIT;
    let mut options = ListOptions { resource_version: version, limit: 0, continue_token: String::new(), ..narrow.clone() };
    loop {
        let began = tokio::time::Instant::now();
        let mut watcher = api.watch(&options).await?;
        while let Some(event) = watcher.next().await {
            let event = match event {
                Ok(event) => event,
                // The connection broke: what was seen so far still holds.
                Err(error) if error.code() == 0 => {
                    tracing::debug!(resource = resource.plural, %error, "a watch broke");
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            match event {
                WatchEvent::Bookmark(version) => options.resource_version = version,
                WatchEvent::Added(value) | WatchEvent::Modified(value) => {
                    options.resource_version = version_of(&value);
                    if let Some(object) = decode(resource, value) {
                        send(changes, Change::Stored(object)).await?;
                    }
                }
                WatchEvent::Deleted(value) => {
                    options.resource_version = version_of(&value);
                    if let Some(object) = decode(resource, value) {
                        send(changes, Change::Deleted(object)).await?;
                    }
                }
            }
        }
        // A server that ends watches at once is not asked in a circle.
        tokio::time::sleep_until(began + MIN_WAIT).await;
    }
}

fn version_of(value: &Value) -> String {
    value["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

fn decode<T: DeserializeOwned>(resource: Resource, value: Value) -> Option<T> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    serde_json::from_value(value)
        .inspect_err(|error| tracing::warn!(resource = resource.plural, name, %error, "left out an object that does not decode"))
        .ok()
}

async fn send<T>(changes: &mpsc::Sender<Change<T>>, change: Change<T>) -> Result<(), Interruption> {
    changes.send(change).await.map_err(|_| Interruption::Unwanted)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use http::{Request, Response};
    use parking_lot::Mutex;

    use super::*;
    use crate::{ResponseBody, Transport, TransportError, full_body};

    /// Answers requests from a script, and remembers their paths.
    struct Script {
        answers: Mutex<std::vec::IntoIter<(u16, &'static str)>>,
        asked: Mutex<Vec<String>>,
    }

    #[async_trait::async_trait]
    impl Transport for Script {
        async fn send(&self, request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
            self.asked.lock().push(request.uri().to_string());
            let Some((code, text)) = self.answers.lock().next() else { std::future::pending().await };
            Ok(Response::builder().status(code).body(full_body(text)).unwrap())
        }
    }

    #[tokio::test]
    async fn lists_in_pages_and_watches_on_and_lists_again_when_history_is_gone() {
        let answers = vec![
            (200, r#"{"metadata":{"resourceVersion":"5","continue":"x"},"items":[{"metadata":{"name":"a"}}]}"#),
            (200, r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"b"}}]}"#),
            (200, "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"c\",\"resourceVersion\":\"7\"}}}\n"),
            (410, r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}"#),
            (200, r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#),
        ];
        let script = Arc::new(Script { answers: Mutex::new(answers.into_iter()), asked: Mutex::default() });
        let (sender, mut receiver) = mpsc::channel(8);
        let resource = Resource { group: "", version: "v1", plural: "services" };
        let task = tokio::spawn(follow::<Value>(Client::new(script.clone()), resource, ListOptions::default(), sender));
        let names = |change: Option<Change<Value>>| match change.unwrap() {
            Change::Listed(items) => items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
            Change::Stored(item) => vec![format!("+{}", item["metadata"]["name"].as_str().unwrap())],
            Change::Deleted(_) => vec![],
        };
        assert_eq!(names(receiver.recv().await), ["a", "b"]);
        assert_eq!(names(receiver.recv().await), ["+c"]);
        assert_eq!(names(receiver.recv().await), [] as [&str; 0]);
        drop(receiver);
        task.await.unwrap();
        let watch = "/api/v1/services?resourceVersion=7&watch=true&allowWatchBookmarks=true";
        assert_eq!(script.asked.lock()[3], watch);
    }
}
