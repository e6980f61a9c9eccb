//! One resource of the API, held up to date by list and watch.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use wheelhouse_client::{Client, ClientError, ListOptions, WatchEvent};
use wheelhouse_runtime::Stop;

/// Between attempts while the API does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// What to follow.
#[derive(Clone)]
pub struct Followed {
    pub client: Client,
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub field_selector: String,
}

/// Calls `changed` with everything there is, by namespace and name, after each complete list and each change, and never before the API has answered
/// once: an unknown state is not an empty one. Runs until stopped.
pub async fn follow<T: DeserializeOwned>(what: Followed, mut stop: Stop, mut changed: impl FnMut(&BTreeMap<(String, String), T>)) {
    let mut last_error = String::new();
    loop {
        match stop.or(list_and_watch(&what, &mut changed)).await {
            None => return,
            Some(Ok(())) => last_error.clear(),
            Some(Err(error)) => {
                let text = error.to_string();
                if text != last_error {
                    tracing::info!(resource = what.plural, error = &error as &dyn std::error::Error, "the API cannot be followed now");
                    last_error = text;
                }
            }
        }
        if stop.or(tokio::time::sleep(RETRY)).await.is_none() {
            return;
        }
    }
}

async fn list_and_watch<T: DeserializeOwned>(what: &Followed, changed: &mut impl FnMut(&BTreeMap<(String, String), T>)) -> Result<(), ClientError> {
    let api = what.client.api(what.group, what.version, what.plural, "");
    let mut options = ListOptions { field_selector: what.field_selector.clone(), ..ListOptions::default() };
    let mut list: Value = api.list(&options).await?;
    let (kind, api_version) = (item_kind(&list), list["apiVersion"].clone());
    options.resource_version = version(&list);
    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let typed = items.into_iter().map(|mut item| {
        // Items of a list carry no type header; the typed structs want one.
        item["kind"] = kind.clone();
        item["apiVersion"] = api_version.clone();
        item
    });
    let mut objects: BTreeMap<(String, String), T> = typed.filter_map(read).collect();
    changed(&objects);
    loop {
        let mut watch = api.watch(&options).await?;
        let mut any = false;
        while let Some(event) = watch.next().await {
            any = true;
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    options.resource_version = version(&object);
                    objects.extend(read(object));
                    changed(&objects);
                }
                WatchEvent::Deleted(object) => {
                    options.resource_version = version(&object);
                    objects.remove(&key(&object));
                    changed(&objects);
                }
                WatchEvent::Bookmark(version) => options.resource_version = version,
            }
        }
        if !any {
            // A server that ends watches at once is not to be asked in a spin.
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// `PodList` is of `Pod`s.
fn item_kind(list: &Value) -> Value {
    list["kind"].as_str().map(|kind| kind.trim_end_matches("List").into()).unwrap_or_default()
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

fn key(object: &Value) -> (String, String) {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// An object that does not decode is left out and named: one bad object must not stop a node.
fn read<T: DeserializeOwned>(object: Value) -> Option<((String, String), T)> {
    let key = key(&object);
    match serde_json::from_value(object) {
        Ok(typed) => Some((key, typed)),
        Err(error) => {
            tracing::warn!(name = key.1, %error, "an object does not decode");
            None
        }
    }
}
