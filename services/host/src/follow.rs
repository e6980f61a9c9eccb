//! One resource of the system API, held up to date by list and watch.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use wheelhouse_client::{Client, ClientError, ListOptions, WatchEvent};
use wheelhouse_runtime::Stop;

/// Between attempts while the system API does not answer: short, since a new leader is there within a second.
const RETRY: Duration = Duration::from_millis(500);

/// What to follow.
#[derive(Clone)]
pub struct Resource {
    pub client: Client,
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    /// Empty for cluster-scoped resources.
    pub namespace: &'static str,
    pub field_selector: String,
}

/// Calls `changed` with everything there is, by name, after each complete list and each change. Until the API has answered once it is not called:
/// an unknown state is not an empty one. Runs until stopped.
pub async fn follow<T: DeserializeOwned>(resource: Resource, mut stop: Stop, mut changed: impl FnMut(&BTreeMap<String, T>)) {
    let mut last_error = String::new();
    loop {
        let mut ended = stop.or(list_and_watch(&resource, &mut changed)).await;
        match ended.take() {
            None => return,
            Some(Ok(())) => last_error.clear(),
            Some(Err(error)) => {
                // The system API may be away for a while; one line says so.
                let text = error.to_string();
                if text != last_error {
                    tracing::info!(resource = resource.plural, error = %text, "the system API cannot be followed now");
                    last_error = text;
                }
            }
        }
        if stop.or(tokio::time::sleep(RETRY)).await.is_none() {
            return;
        }
    }
}

async fn list_and_watch<T: DeserializeOwned>(resource: &Resource, changed: &mut impl FnMut(&BTreeMap<String, T>)) -> Result<(), ClientError> {
    let api = resource.client.api(resource.group, resource.version, resource.plural, resource.namespace);
    let mut options = ListOptions { field_selector: resource.field_selector.clone(), ..ListOptions::default() };
    let list: Value = api.list(&options).await?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let mut objects: BTreeMap<String, T> = items.into_iter().filter_map(read).collect();
    changed(&objects);
    options.resource_version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    loop {
        tracing::debug!(resource = resource.plural, version = %options.resource_version, "watching");
        let mut watch = api.watch(&options).await?;
        while let Some(event) = watch.next().await {
            tracing::debug!(resource = resource.plural, version = %options.resource_version, "an event");
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    options.resource_version = version(&object);
                    objects.extend(read(object));
                    changed(&objects);
                }
                WatchEvent::Deleted(object) => {
                    options.resource_version = version(&object);
                    if let Some(name) = object["metadata"]["name"].as_str() {
                        objects.remove(name);
                    }
                    changed(&objects);
                }
                WatchEvent::Bookmark(version) => options.resource_version = version,
            }
        }
    }
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// An object that does not decode is left out and named: one bad object must not stop a host.
fn read<T: DeserializeOwned>(object: Value) -> Option<(String, T)> {
    let name = object["metadata"]["name"].as_str()?.to_owned();
    match serde_json::from_value(object) {
        Ok(typed) => Some((name, typed)),
        Err(error) => {
            tracing::warn!(%name, %error, "an object of the system API does not decode");
            None
        }
    }
}
