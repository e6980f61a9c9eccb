//! Recording who owns what after a create, an update or a patch.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};
use wheelhouse_schema::Schema;

use super::compare::{Comparison, compare};
use super::conflict::Conflicts;
use super::managed::{Managed, ManagerId, Operation, Owned, is_reset};
use super::manager::{Manager, Versions};
use super::set::Set;
use crate::object::Object;
use crate::time;

/// Metadata that the server sets, which nobody owns.
pub(super) static UNOWNED: LazyLock<Set> = LazyLock::new(|| {
    Set::from_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// Records in `new` who owns what after a create, update or patch. `live` is what is stored; for a create, the kind's empty object in
/// canonical form.
///
/// The managers that `new` brings win over the stored ones, so that a client can drop some; `[{}]` drops all. A stored object without
/// any manager stays without, until an apply.
pub fn update(live: &Value, mut new: Value, manager: &Manager<'_>, versions: &dyn Versions) -> Value {
    let sent = new.as_object_mut().and_then(|o| o.get_mut("metadata")).and_then(Value::as_object_mut);
    let sent = sent.and_then(|m| m.remove("managedFields"));
    let stored_entries = live.metadata().and_then(|m| m.get("managedFields"));
    let stored = || Managed::decode(live.meta_list("managedFields")).unwrap_or_default();
    // Nobody's ownership changes with nothing: the entries stay as they are, byte for byte.
    if sent.as_ref().is_none_or(|sent| Some(sent) == stored_entries) && is_same(live, &new) {
        if let Some(entries) = stored_entries {
            new.metadata_mut().insert("managedFields".to_owned(), entries.clone());
        }
        return new;
    }
    let managed = if !manager.subresource.is_empty() {
        stored()
    } else if is_reset(sent.as_ref()) {
        Managed::default()
    } else {
        match sent.as_ref().and_then(Value::as_array).map(|entries| Managed::decode(entries)) {
            Some(Ok(managed)) if !managed.is_empty() => managed,
            _ => stored(),
        }
    };
    // An object that exists untracked stays so: whoever cleared its managers meant it.
    if managed.is_empty() && !live.uid().is_empty() {
        return new;
    }
    let managed = match versions.schema(manager.api_version) {
        Some(schema) => record_update(live, &new, managed, manager, schema, versions),
        None => managed,
    };
    set_managed_fields(&mut new, &managed);
    new
}

pub(super) fn set_managed_fields(object: &mut Value, managed: &Managed) {
    let metadata = object.metadata_mut();
    if managed.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(managed.encode()));
    }
}

pub(super) fn record_update(live: &Value, new: &Value, managed: Managed, manager: &Manager<'_>, schema: &Schema, versions: &dyn Versions) -> Managed {
    let mut managed = reconcile(managed, versions);
    let comparison = compare(live, new, schema).without(&Set::from_fields(manager.reset_fields));
    let mut changes = Changes::new(comparison, manager, (live, new), versions);
    changes.take_from(&mut managed, None);

    let mut set = changes.into_changed();
    set.subtract(&UNOWNED);
    if !set.is_empty() {
        let id = ManagerId::new(manager.name, Operation::Update, manager.api_version, manager.subresource);
        let owned = managed.owners.entry(id).or_insert_with(|| Owned { set: Set::new(), api_version: manager.api_version.to_owned(), time: None });
        owned.set.extend(set);
        owned.api_version = manager.api_version.to_owned();
        owned.time = Some(time::rfc3339(manager.now));
    }
    managed.drop_empty();
    managed.cap();
    managed
}

/// Sets recorded under versions that are gone are dropped; parts of what has become atomic are joined.
pub(super) fn reconcile(mut managed: Managed, versions: &dyn Versions) -> Managed {
    managed.owners.retain(|_, owned| {
        let schema = versions.schema(&owned.api_version);
        if let Some(schema) = schema {
            owned.set.reconcile_with(schema);
        }
        schema.is_some()
    });
    managed
}

/// What a write changed, in the version of each manager.
pub(super) struct Changes<'a> {
    manager: &'a Manager<'a>,
    /// Before and after, in the version of the write.
    objects: (&'a Value, &'a Value),
    versions: &'a dyn Versions,
    own: Change,
    /// `None` where there is no conversion any more.
    others: BTreeMap<String, Option<Change>>,
}

/// The paths changed or added, and the paths removed.
struct Change {
    changed: Set,
    removed: Set,
}

impl From<Comparison> for Change {
    fn from(comparison: Comparison) -> Self {
        let mut changed = comparison.added;
        changed.extend(comparison.modified);
        Self { changed, removed: comparison.removed }
    }
}

impl<'a> Changes<'a> {
    /// `comparison` is that of the objects, without reset fields.
    pub(super) fn new(comparison: Comparison, manager: &'a Manager<'a>, objects: (&'a Value, &'a Value), versions: &'a dyn Versions) -> Self {
        Self { manager, objects, versions, own: comparison.into(), others: BTreeMap::new() }
    }

    /// The same change seen in another version.
    fn in_version(&mut self, api_version: &str) -> Option<&Change> {
        if api_version == self.manager.api_version {
            return Some(&self.own);
        }
        if !self.others.contains_key(api_version) {
            let change = self.convert(api_version);
            self.others.insert(api_version.to_owned(), change);
        }
        self.others.get(api_version)?.as_ref()
    }

    fn convert(&self, api_version: &str) -> Option<Change> {
        let schema = self.versions.schema(api_version)?;
        let old = self.versions.convert(self.objects.0, api_version)?;
        let new = self.versions.convert(self.objects.1, api_version)?;
        Some(compare(&old, &new, schema).without(&Set::from_fields(self.manager.reset_fields)).into())
    }

    /// What of the change belongs to others than `exempt`.
    pub(super) fn conflicts(&mut self, managed: &Managed, exempt: &ManagerId) -> Conflicts {
        let mut conflicts = Conflicts::default();
        for (id, owned) in managed.owners.iter().filter(|(id, _)| *id != exempt) {
            let Some(change) = self.in_version(&owned.api_version) else { continue };
            let set = owned.set.intersection(&change.changed);
            if !set.is_empty() {
                conflicts.0.insert(id.clone(), set);
            }
        }
        conflicts
    }

    /// Takes what changed and what is gone from all managers but `exempt`. Those whose version is gone lose everything.
    pub(super) fn take_from(&mut self, managed: &mut Managed, exempt: Option<&ManagerId>) {
        managed.owners.retain(|id, owned| {
            if Some(id) == exempt {
                return true;
            }
            let Some(change) = self.in_version(&owned.api_version) else { return false };
            owned.set.subtract(&change.changed);
            owned.set.subtract(&change.removed);
            !owned.set.is_empty()
        });
    }

    /// The paths changed or added, in the version of the write.
    pub(super) fn into_changed(self) -> Set {
        self.own.changed
    }
}

/// Whether two objects are equal but for managed fields.
pub(super) fn is_same(a: &Value, b: &Value) -> bool {
    fn except<'v>(map: Option<&'v Map<String, Value>>, left_out: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
        map.into_iter().flatten().filter(move |(key, _)| *key != left_out)
    }
    except(a.as_object(), "metadata").eq(except(b.as_object(), "metadata"))
        && except(a.metadata(), "managedFields").eq(except(b.metadata(), "managedFields"))
}
