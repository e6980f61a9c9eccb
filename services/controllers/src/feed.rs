//! Keeps a [`View`] of the cluster at the leader: the store's events, decoded once, in revision order.
//!
//! ```text
//! snapshot -> every record -> View (revision R)
//! watch after R -> changes -> View -> published, then every consumer is told, in order
//! ```
//!
//! A consumer is told of every change, so it needs no resync; a feed that loses its place (a compacted watch) loads the snapshot again and
//! tells of the difference.

use std::sync::Arc;

use tokio::sync::watch;
use tracing::{error, warn};
use wheelhouse_client::resources::Resources;
use wheelhouse_kinds::view::{Key, ObjectChange, ObjectRef, Record, ResourceName, View};
use wheelhouse_mvcc::{EventKind, KeyRange, KeyValue, Snapshot};
use wheelhouse_store::{Store, WatchError};

/// Where API objects live in the store.
pub const REGISTRY_PREFIX: &str = "/registry/";

const DEFINITIONS: ResourceName = ResourceName::new("apiextensions.k8s.io", "customresourcedefinitions");
const DEFINITIONS_PREFIX: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// Told of every change after the view that holds it is published. Must not block: it notes keys and returns.
pub trait Consumer: Send + Sync + 'static {
    fn changed(&self, view: &View, changes: &[ObjectChange]);
}

/// Reads the store of one replica while it leads.
pub struct Feed {
    store: Arc<dyn Store>,
    resources: Arc<Resources>,
    consumers: Vec<Arc<dyn Consumer>>,
    published: watch::Sender<Arc<View>>,
    view: View,
}

impl Feed {
    pub fn new(store: Arc<dyn Store>, resources: Arc<Resources>, consumers: Vec<Arc<dyn Consumer>>) -> Self {
        Self { store, resources, consumers, published: watch::Sender::new(Arc::new(View::default())), view: View::default() }
    }

    /// The newest view. Its revision is 0 until the first load.
    pub fn subscribe(&self) -> watch::Receiver<Arc<View>> {
        self.published.subscribe()
    }

    /// Runs until the store stops.
    pub async fn run(mut self) {
        loop {
            let snapshot = self.store.snapshot();
            self.load(&snapshot);
            match self.follow(snapshot.revision()).await {
                WatchError::Stopped => return,
                error => warn!(%error, "the view lost its place in the event history and loads the state again"),
            }
        }
    }

    /// Makes the view equal to the snapshot and tells of every difference.
    fn load(&mut self, snapshot: &Snapshot) {
        let mut changes = Vec::new();
        let mut gone: Vec<ObjectRef> = Vec::new();
        for resource in self.view.resources().cloned().collect::<Vec<_>>() {
            gone.extend(self.view.records(&resource, None).map(|record| record.reference()));
        }
        gone.retain(|reference| snapshot.get(store_key(reference).as_bytes()).is_none());
        changes.extend(gone.into_iter().map(|reference| self.view.apply(reference, None)));
        // Definitions first: without them their objects' keys name nothing.
        let end = wheelhouse_mvcc::command::prefix_end(DEFINITIONS_PREFIX.as_bytes());
        for kv in snapshot.range(DEFINITIONS_PREFIX.as_bytes(), Some(&end)) {
            self.record(kv);
        }
        let end = wheelhouse_mvcc::command::prefix_end(REGISTRY_PREFIX.as_bytes());
        for kv in snapshot.range(REGISTRY_PREFIX.as_bytes(), Some(&end)) {
            let Some(record) = self.record(kv) else { continue };
            let known = self.view.find(&record.reference()).is_some_and(|old| old.revision == record.revision);
            if !known {
                changes.push(self.view.apply(record.reference(), Some(record)));
            }
        }
        self.view.advance(snapshot.revision());
        self.publish(&changes);
    }

    async fn follow(&mut self, after: u64) -> WatchError {
        let mut watch = match self.store.watch(KeyRange::prefix(REGISTRY_PREFIX.as_bytes()), after) {
            Ok(watch) => watch,
            Err(error) => return error,
        };
        loop {
            let batch = match watch.next().await {
                Ok(batch) => batch,
                Err(error) => return error,
            };
            let mut changes = Vec::with_capacity(batch.events.len());
            for event in &batch.events {
                let Some((resource, key)) = parse_key(&self.resources, &event.kv.key) else { continue };
                let record = match event.kind {
                    EventKind::Delete => {
                        if resource == DEFINITIONS {
                            self.resources.forget(&key.name);
                        }
                        None
                    }
                    EventKind::Put => match self.record(&event.kv) {
                        Some(record) => Some(record),
                        None => continue,
                    },
                };
                changes.push(self.view.apply(ObjectRef { resource, key }, record));
            }
            self.view.advance(batch.revision);
            self.publish(&changes);
        }
    }

    fn publish(&self, changes: &[ObjectChange]) {
        self.published.send_replace(Arc::new(self.view.clone()));
        for consumer in &self.consumers {
            consumer.changed(&self.view, changes);
        }
    }

    /// An object that does not decode is left out: one damaged object must not stop every controller of the cluster.
    fn record(&self, kv: &KeyValue) -> Option<Arc<Record>> {
        let (resource, key) = parse_key(&self.resources, &kv.key)?;
        let place = self.resources.find(&resource)?;
        let api_version = if resource.group.is_empty() { place.stored_version } else { format!("{}/{}", resource.group, place.stored_version) };
        let is_definition = resource == DEFINITIONS;
        match Record::parse(resource, key, api_version, place.kind, kv.mod_revision, kv.value.clone()) {
            Ok(record) => {
                if is_definition {
                    self.resources.define(&record.value());
                }
                Some(Arc::new(record))
            }
            Err(error) => {
                error!(error = &error as &dyn std::error::Error, "a stored object is left out of the controllers' view");
                None
            }
        }
    }
}

/// `/registry/<group or core>/<resource>/[<namespace>/]<name>`, for resources that the cluster stores.
pub fn parse_key(resources: &Resources, key: &[u8]) -> Option<(ResourceName, Key)> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(REGISTRY_PREFIX)?;
    let mut parts = rest.splitn(4, '/');
    let (group, plural, first, second) = (parts.next()?, parts.next()?, parts.next()?, parts.next());
    let group = if group == "core" { "" } else { group };
    let resource = resources.name(group, plural)?;
    let key = match second {
        Some(name) => Key::new(first, name),
        None => Key::cluster(first),
    };
    Some((resource, key))
}

/// The store's key of an object.
pub fn store_key(reference: &ObjectRef) -> String {
    let group = if reference.resource.group.is_empty() { "core" } else { &reference.resource.group };
    let (plural, key) = (&reference.resource.plural, &reference.key);
    if key.namespace.is_empty() {
        format!("{REGISTRY_PREFIX}{group}/{plural}/{}", key.name)
    } else {
        format!("{REGISTRY_PREFIX}{group}/{plural}/{}/{}", key.namespace, key.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_kinds::registry::{Profile, Registry};

    #[test]
    fn keys_parse_back() {
        let registry = Resources::new(Arc::new(Registry::new(Profile::Tenant)));
        for key in ["/registry/core/configmaps/a/b", "/registry/core/namespaces/kube-system"] {
            let (resource, object) = parse_key(&registry, key.as_bytes()).unwrap();
            assert_eq!(store_key(&ObjectRef { resource, key: object }), key);
        }
        assert!(parse_key(&registry, b"/registry/ranges/serviceips/10.96.0.1").is_none(), "allocations are no objects");
        assert!(parse_key(&registry, b"/registry/core/configmaps").is_none());
        assert!(parse_key(&registry, b"/elsewhere/\xff").is_none());
    }
}
