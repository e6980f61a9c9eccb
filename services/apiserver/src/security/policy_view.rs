//! The RBAC policy of one cluster, as new as the newest applied write.
//!
//! ```text
//! decision --> store.snapshot().revision()  newer than the view?  --yes--> drain the watch of the RBAC prefix, without waiting
//!                        |no                                                   |
//!                        v                                                     v
//!                 read the shared Policy <------------ publish a new Policy ---'
//! ```
//!
//! Nothing runs in the background and nothing polls: whoever decides first after a write brings the view up to date. If the watch cannot
//! say that it has seen everything up to the snapshot (it was compacted, or lags behind the published state), the view is compared with
//! the snapshot key by key, which is always right and costs a walk over the policy objects only.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use parking_lot::{Mutex, RwLock};
use wheelhouse_access::rbac::{Policy, PolicyKind};
use wheelhouse_base::Revision;
use wheelhouse_mvcc::{EventKind, KeyRange, KeyValue, Snapshot};
use wheelhouse_store::{Store, Watch};

use super::lookups::decode;

const PREFIX: &str = "/registry/rbac.authorization.k8s.io/";

pub(super) struct PolicyView {
    published: RwLock<Published>,
    feed: Mutex<Feed>,
}

#[derive(Clone, Default)]
struct Published {
    /// Everything up to here is in the policy.
    revision: Revision,
    policy: Arc<Policy>,
}

/// Where the view's news come from. Locked while somebody brings it up to date.
#[derive(Default)]
struct Feed {
    watch: Option<Box<dyn Watch>>,
    /// Modification revision of each policy object that is in the view.
    known: HashMap<Bytes, Revision>,
}

impl PolicyView {
    /// An empty view: the first decision fills it.
    pub(super) fn new() -> Self {
        Self { published: RwLock::default(), feed: Mutex::default() }
    }

    /// The policy at or after the newest state this replica has applied.
    pub(super) fn current(&self, store: &dyn Store) -> Arc<Policy> {
        let snapshot = store.snapshot();
        {
            let published = self.published.read();
            if published.revision >= snapshot.revision() {
                return published.policy.clone();
            }
        }
        self.catch_up(store, &snapshot)
    }

    /// What a compaction or a lagging ring does to a watch.
    #[cfg(test)]
    pub(super) fn lose_watch(&self) {
        self.feed.lock().watch = None;
    }

    fn catch_up(&self, store: &dyn Store, snapshot: &Snapshot) -> Arc<Policy> {
        let mut feed = self.feed.lock();
        let mut next = self.published.read().clone();
        // Somebody else may have done it meanwhile.
        if next.revision >= snapshot.revision() {
            return next.policy;
        }
        let reached = feed.drain(&mut next.policy);
        if reached.is_none_or(|revision| revision < snapshot.revision()) {
            feed.compare(snapshot, &mut next.policy);
            if reached.is_none() {
                feed.watch = store.watch(KeyRange::prefix(PREFIX.as_bytes()), snapshot.revision()).ok();
            }
        }
        next.revision = reached.unwrap_or(0).max(snapshot.revision());
        let policy = next.policy.clone();
        *self.published.write() = next;
        policy
    }
}

impl Feed {
    /// Takes in every event that is ready. Answers up to which revision the view is complete; `None` if there is no watch any more.
    fn drain(&mut self, policy: &mut Arc<Policy>) -> Option<Revision> {
        loop {
            let watch = self.watch.as_mut()?;
            match watch.next().now_or_never() {
                None => return Some(watch.position()),
                Some(Ok(changes)) => {
                    for event in &changes.events {
                        match event.kind {
                            EventKind::Put => self.put(&event.kv, policy),
                            EventKind::Delete => self.delete(&event.kv.key, event.kv.mod_revision, policy),
                        }
                    }
                }
                Some(Err(_)) => self.watch = None,
            }
        }
    }

    /// Makes the view equal to the snapshot.
    fn compare(&mut self, snapshot: &Snapshot, policy: &mut Arc<Policy>) {
        let end = wheelhouse_mvcc::command::prefix_end(PREFIX.as_bytes());
        let mut gone: HashMap<Bytes, Revision> = self.known.clone();
        for kv in snapshot.range(PREFIX.as_bytes(), Some(&end)) {
            gone.remove(&kv.key);
            self.put(kv, policy);
        }
        for (key, revision) in gone {
            // What the watch brought from beyond the snapshot is newer, not gone.
            if revision <= snapshot.revision() {
                self.delete(&key, snapshot.revision(), policy);
            }
        }
    }

    fn put(&mut self, kv: &KeyValue, policy: &mut Arc<Policy>) {
        if self.known.get(&kv.key).is_some_and(|known| *known >= kv.mod_revision) {
            return;
        }
        self.known.insert(kv.key.clone(), kv.mod_revision);
        let Some((kind, namespace, name)) = split_key(&kv.key) else { return };
        let policy = Arc::make_mut(policy);
        let read = decode(kv).map(|object| policy.upsert(kind, namespace, name, &object));
        if !matches!(read, Some(Ok(()))) {
            // What cannot be read grants nothing.
            policy.remove(kind, namespace, name);
            tracing::error!(?kind, namespace, name, "a stored policy object cannot be read");
        }
    }

    fn delete(&mut self, key: &Bytes, revision: Revision, policy: &mut Arc<Policy>) {
        if self.known.get(key).is_none_or(|known| *known > revision) {
            return;
        }
        self.known.remove(key);
        if let Some((kind, namespace, name)) = split_key(key) {
            Arc::make_mut(policy).remove(kind, namespace, name);
        }
    }
}

/// `/registry/rbac.authorization.k8s.io/<resource>/[<namespace>/]<name>`
fn split_key(key: &[u8]) -> Option<(PolicyKind, &str, &str)> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?;
    let (resource, rest) = rest.split_once('/')?;
    let kind = PolicyKind::from_resource(resource)?;
    match kind {
        PolicyKind::ClusterRole | PolicyKind::ClusterRoleBinding => Some((kind, "", rest)),
        PolicyKind::Role | PolicyKind::RoleBinding => {
            let (namespace, name) = rest.split_once('/')?;
            Some((kind, namespace, name))
        }
    }
}
