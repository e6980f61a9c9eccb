//! What is derived from stored objects, as new as the newest applied write: the RBAC policy, the graph of nodes and their pods' needs, and the
//! cluster's own kinds.
//!
//! ```text
//! decision --> store.snapshot().revision()  newer than the view?  --yes--> drain the watch of the view's prefix, without waiting
//!                        |no                                                   |
//!                        v                                                     v
//!                 read under a shared lock <------ change in place, under the exclusive lock
//! ```
//!
//! Nothing runs in the background and nothing polls: whoever decides first after a write brings the view up to date. If the watch cannot
//! say that it has seen everything up to the snapshot (it was compacted, or lags behind the published state), the view is compared with
//! the snapshot key by key, which is always right and costs a walk over the view's own objects only. A view that nobody asks is empty.

use std::collections::HashMap;
use std::ops::Deref;

use bytes::Bytes;
use futures::FutureExt;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use serde_json::Value;
use wheelhouse_access::authorizer::node::NodeGraph;
use wheelhouse_access::rbac::{Policy, PolicyKind};
use wheelhouse_base::Revision;
use wheelhouse_mvcc::{EventKind, KeyRange, KeyValue, Snapshot};
use wheelhouse_store::{Store, Watch};

use super::lookups::decode;

/// Something that follows from the objects under a prefix. Keys are given without it.
pub(crate) trait Derived: Default + Send + Sync {
    const PREFIX: &'static str;

    /// `None` for an object that cannot be read.
    fn put(&mut self, key: &str, object: Option<Value>);

    fn delete(&mut self, key: &str);
}

impl Derived for Policy {
    const PREFIX: &'static str = "/registry/rbac.authorization.k8s.io/";

    fn put(&mut self, key: &str, object: Option<Value>) {
        let Some((kind, namespace, name)) = policy_key(key) else { return };
        let read = object.map(|object| self.upsert(kind, namespace, name, &object));
        if !matches!(read, Some(Ok(()))) {
            // What cannot be read grants nothing.
            self.remove(kind, namespace, name);
            tracing::error!(?kind, namespace, name, "a stored policy object cannot be read");
        }
    }

    fn delete(&mut self, key: &str) {
        if let Some((kind, namespace, name)) = policy_key(key) {
            self.remove(kind, namespace, name);
        }
    }
}

/// `<resource>/[<namespace>/]<name>`
fn policy_key(key: &str) -> Option<(PolicyKind, &str, &str)> {
    let (resource, rest) = key.split_once('/')?;
    let kind = PolicyKind::from_resource(resource)?;
    match kind {
        PolicyKind::ClusterRole | PolicyKind::ClusterRoleBinding => Some((kind, "", rest)),
        PolicyKind::Role | PolicyKind::RoleBinding => {
            let (namespace, name) = rest.split_once('/')?;
            Some((kind, namespace, name))
        }
    }
}

impl Derived for NodeGraph {
    const PREFIX: &'static str = "/registry/core/pods/";

    fn put(&mut self, key: &str, object: Option<Value>) {
        let Some((namespace, name)) = key.split_once('/') else { return };
        match object {
            Some(pod) => self.upsert(namespace, name, &pod),
            None => self.remove(namespace, name),
        }
    }

    fn delete(&mut self, key: &str) {
        if let Some((namespace, name)) = key.split_once('/') {
            self.remove(namespace, name);
        }
    }
}

/// A derived value that keeps itself current.
pub(crate) struct View<D>(RwLock<State<D>>);

#[derive(Default)]
struct State<D> {
    /// Everything up to here is in the value.
    revision: Revision,
    derived: D,
    /// Where news come from. The lock is never contended: it only makes the state shareable.
    watch: Mutex<Option<Box<dyn Watch>>>,
    /// Modification revision of each object that is in the value.
    known: HashMap<Bytes, Revision>,
}

/// The value, read-locked. Not to be held across an await.
pub(crate) struct Current<'a, D>(RwLockReadGuard<'a, State<D>>);

impl<D> Deref for Current<'_, D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.0.derived
    }
}

impl<D: Derived> View<D> {
    /// An empty view: the first reader fills it.
    pub(crate) fn new() -> Self {
        Self(RwLock::default())
    }

    /// The value at or after the newest state this replica has applied.
    pub(crate) fn current(&self, store: &dyn Store) -> Current<'_, D> {
        let snapshot = store.snapshot();
        let state = self.0.read();
        if state.revision >= snapshot.revision() {
            return Current(state);
        }
        drop(state);
        self.0.write().catch_up(store, &snapshot);
        Current(self.0.read())
    }

    /// What a compaction or a lagging ring does to a watch.
    #[cfg(test)]
    pub(super) fn lose_watch(&self) {
        *self.0.write().watch.lock() = None;
    }
}

impl<D: Derived> State<D> {
    fn catch_up(&mut self, store: &dyn Store, snapshot: &Snapshot) {
        // Somebody else may have done it meanwhile.
        if self.revision >= snapshot.revision() {
            return;
        }
        let reached = self.drain();
        if reached.is_none_or(|revision| revision < snapshot.revision()) {
            self.compare(snapshot);
            if reached.is_none() {
                *self.watch.get_mut() = store.watch(KeyRange::prefix(D::PREFIX.as_bytes()), snapshot.revision()).ok();
            }
        }
        self.revision = reached.unwrap_or(0).max(snapshot.revision());
    }

    /// Takes in every event that is ready. Answers up to which revision the value is complete; `None` if there is no watch any more.
    fn drain(&mut self) -> Option<Revision> {
        loop {
            let watch = self.watch.get_mut().as_mut()?;
            match watch.next().now_or_never() {
                None => return Some(watch.position()),
                Some(Ok(changes)) => {
                    for event in &changes.events {
                        match event.kind {
                            EventKind::Put => self.put(&event.kv),
                            EventKind::Delete => self.delete(&event.kv.key, event.kv.mod_revision),
                        }
                    }
                }
                Some(Err(_)) => *self.watch.get_mut() = None,
            }
        }
    }

    /// Makes the value equal to the snapshot.
    fn compare(&mut self, snapshot: &Snapshot) {
        let end = wheelhouse_mvcc::command::prefix_end(D::PREFIX.as_bytes());
        let mut gone: HashMap<Bytes, Revision> = self.known.clone();
        for kv in snapshot.range(D::PREFIX.as_bytes(), Some(&end)) {
            gone.remove(&kv.key);
            self.put(kv);
        }
        for (key, revision) in gone {
            // What the watch brought from beyond the snapshot is newer, not gone.
            if revision <= snapshot.revision() {
                self.delete(&key, snapshot.revision());
            }
        }
    }

    fn put(&mut self, kv: &KeyValue) {
        if self.known.get(&kv.key).is_some_and(|known| *known >= kv.mod_revision) {
            return;
        }
        self.known.insert(kv.key.clone(), kv.mod_revision);
        if let Some(key) = rest::<D>(&kv.key) {
            self.derived.put(key, decode(kv));
        }
    }

    fn delete(&mut self, key: &Bytes, revision: Revision) {
        if self.known.get(key).is_none_or(|known| *known > revision) {
            return;
        }
        self.known.remove(key);
        if let Some(key) = rest::<D>(key) {
            self.derived.delete(key);
        }
    }
}

fn rest<D: Derived>(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key).ok()?.strip_prefix(D::PREFIX)
}
