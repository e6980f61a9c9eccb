//! What decisions look up, read straight from a snapshot.

use serde_json::Value;
use wheelhouse_access::{Identity, Lookups};
use wheelhouse_mvcc::{KeyValue, Snapshot};

use crate::stored::Meta;

/// One consistent state of the cluster. Cheap to make and to drop: a snapshot is a reference.
pub struct SnapshotLookups(pub Snapshot);

/// `/registry/<group or core>/<resource>/`
pub(super) fn resource_prefix(group: &str, resource: &str) -> String {
    let folder = if group.is_empty() { "core" } else { group };
    format!("/registry/{folder}/{resource}/")
}

pub(super) fn object_key(group: &str, resource: &str, namespace: &str, name: &str) -> String {
    let prefix = resource_prefix(group, resource);
    if namespace.is_empty() { format!("{prefix}{name}") } else { format!("{prefix}{namespace}/{name}") }
}

/// Reads a stored value, which begins right after `"metadata":{`, and gives it its resource version. An unreadable value is as good as
/// none here; whoever asks for the object itself is told.
pub(super) fn decode(kv: &KeyValue) -> Option<Value> {
    let mut text = Vec::with_capacity(kv.value.len() + 16);
    text.extend_from_slice(b"{\"metadata\":{");
    text.extend_from_slice(&kv.value);
    let mut object: Value = serde_json::from_slice(&text).ok()?;
    object["metadata"]["resourceVersion"] = kv.mod_revision.to_string().into();
    Some(object)
}

impl SnapshotLookups {
    fn record(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<&KeyValue> {
        // A name that would leave its folder names nothing.
        if name.is_empty() || name.contains('/') || namespace.contains('/') {
            return None;
        }
        self.0.get(object_key(group, resource, namespace, name).as_bytes()).map(|kv| &**kv)
    }
}

impl Lookups for SnapshotLookups {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        decode(self.record(group, resource, namespace, name)?)
    }

    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value> {
        let mut prefix = resource_prefix(group, resource);
        if !namespace.is_empty() {
            prefix.push_str(namespace);
            prefix.push('/');
        }
        let end = wheelhouse_mvcc::command::prefix_end(prefix.as_bytes());
        self.0.range(prefix.as_bytes(), Some(&end)).filter_map(|kv| decode(kv)).collect()
    }

    fn identity(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Identity> {
        let kv = self.record(group, resource, namespace, name)?;
        let meta = Meta::read(&kv.value).ok()?;
        Some(Identity { uid: meta.uid, deletion_timestamp: meta.deletion_timestamp })
    }
}
