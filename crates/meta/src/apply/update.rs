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
    let taken = Taken::find(&mut managed, None, &comparison, manager, (live, new), versions);
    taken.take(&mut managed);

    let mut set = comparison.changed();
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

/// What a change from one object to another takes from other managers.
pub(super) struct Taken {
    /// The paths it changed, of those each manager owns.
    pub(super) conflicts: Conflicts,
    /// The paths it removed, in each version that a manager uses.
    removed: BTreeMap<String, Set>,
    exempt: Option<ManagerId>,
}

impl Taken {
    /// Looks through all managers but `exempt`. Those of versions that can not be converted to any more are dropped.
    pub(super) fn find(
        managed: &mut Managed,
        exempt: Option<ManagerId>,
        comparison: &Comparison,
        manager: &Manager<'_>,
        objects: (&Value, &Value),
        versions: &dyn Versions,
    ) -> Self {
        let mut taken = Self { conflicts: Conflicts::default(), removed: BTreeMap::new(), exempt };
        // The changed paths by version; `None` where there is no conversion.
        let mut changed: BTreeMap<String, Option<Set>> = BTreeMap::new();
        changed.insert(manager.api_version.to_owned(), Some(comparison.changed()));
        taken.removed.insert(manager.api_version.to_owned(), comparison.removed.clone());
        managed.owners.retain(|id, owned| {
            if Some(id) == taken.exempt.as_ref() {
                return true;
            }
            let changed = changed.entry(owned.api_version.clone()).or_insert_with(|| {
                let schema = versions.schema(&owned.api_version)?;
                let old = versions.convert(objects.0, &owned.api_version)?;
                let new = versions.convert(objects.1, &owned.api_version)?;
                let comparison = compare(&old, &new, schema).without(&Set::from_fields(manager.reset_fields));
                taken.removed.insert(owned.api_version.clone(), comparison.removed.clone());
                Some(comparison.changed())
            });
            let Some(changed) = changed else { return false };
            let conflicts = owned.set.intersection(changed);
            if !conflicts.is_empty() {
                taken.conflicts.0.insert(id.clone(), conflicts);
            }
            true
        });
        taken
    }

    pub(super) fn take(&self, managed: &mut Managed) {
        for (id, owned) in managed.owners.iter_mut().filter(|(id, _)| Some(*id) != self.exempt.as_ref()) {
            if let Some(conflicts) = self.conflicts.0.get(id) {
                owned.set.subtract(conflicts);
            }
            if let Some(removed) = self.removed.get(&owned.api_version) {
                owned.set.subtract(removed);
            }
        }
        managed.drop_empty();
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
