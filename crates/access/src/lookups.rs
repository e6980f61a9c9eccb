//! What a decision may look up: stored objects of the same cluster, as one snapshot holds them.

use serde_json::Value;
use wheelhouse_meta::Status;

/// A pure function's answer, or the Status that refuses the request. Boxed because a Status is large and rare.
pub type Answer<T> = Result<T, Box<Status>>;

/// Read access to one consistent state of the cluster.
pub trait Lookups {
    /// The object, with its metadata. `namespace` is empty for cluster-scoped resources.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// All objects of a resource in a namespace; with an empty namespace those of the whole cluster. In key order.
    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value>;

    /// Whether the object is there and which one it is. Cheaper than [`Lookups::get`] where the store can read the metadata alone.
    fn identity(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Identity> {
        self.get(group, resource, namespace, name).map(|object| Identity::of(&object))
    }
}

/// The part of an object's metadata that tells one life of a name from the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub uid: String,
    /// RFC 3339, as stored.
    pub deletion_timestamp: Option<String>,
}

impl Identity {
    pub fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().map(str::to_owned);
        Self { uid: text("uid").unwrap_or_default(), deletion_timestamp: text("deletionTimestamp") }
    }
}

/// Objects held in memory, for tests and simulations.
#[derive(Clone, Debug, Default)]
pub struct MemoryLookups {
    objects: std::collections::BTreeMap<(String, String, String, String), Value>,
}

impl MemoryLookups {
    /// Adds an object under its own name and namespace.
    #[must_use]
    pub fn with(mut self, group: &str, resource: &str, object: Value) -> Self {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        self.objects.insert((group.into(), resource.into(), text("namespace"), text("name")), object);
        self
    }
}

impl Lookups for MemoryLookups {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.objects.get(&(group.into(), resource.into(), namespace.into(), name.into())).cloned()
    }

    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value> {
        let wanted = |key: &(String, String, String, String)| key.0 == group && key.1 == resource && (namespace.is_empty() || key.2 == namespace);
        self.objects.iter().filter(|(key, _)| wanted(key)).map(|(_, object)| object.clone()).collect()
    }
}
