//! The two operations: recording an update, and applying.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_schema::{Schema, normalise};

use super::compare::{Comparison, compare};
use super::conflict::Conflicts;
use super::managers::{Managed, ManagerId, Operation, Owned, is_reset};
use super::merge::merge;
use super::remove::remove_items;
use super::set::Set;
use super::typed::{field_set, validate};
use crate::gvk::GroupVersionKind;
use crate::object::Object;
use crate::status::Status;
use crate::time;
use crate::validation::TOTAL_ANNOTATION_SIZE_MAX;

/// Where `kubectl apply` without server-side apply keeps what it last sent.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager of what an object held before anybody's managed fields were recorded.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The field manager under which `kubectl` applies; it alone may migrate from client-side apply.
const KUBECTL: &str = "kubectl";

/// Metadata that the server sets, which nobody owns.
static UNOWNED: LazyLock<Set> = LazyLock::new(|| {
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

/// Who writes, where, and when.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// The `fieldManager` of the request, or what stands in for it (the start of the user agent). Empty is `unknown`.
    pub name: &'a str,
    /// The version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// `status`, `scale`; empty for the object itself.
    pub subresource: &'a str,
    /// What a write here cannot change, so nobody owns it through here: `[["status"]]` for an object with a status subresource,
    /// `[["spec"]]`, `[["metadata"]]` for the subresource itself.
    pub reset_fields: &'a [&'a [&'a str]],
    pub now: Timestamp,
}

/// The versions of a kind.
pub trait Versions {
    /// `None` if the version is not served any more: its managers lose what they own.
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// The object in another version. `None` as for [`Versions::schema`].
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// A kind with one version.
#[derive(Clone, Copy, Debug)]
pub struct SingleVersion<'a> {
    pub api_version: &'a str,
    pub schema: &'a Schema,
}

impl Versions for SingleVersion<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == self.api_version).then_some(self.schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        (api_version == self.api_version).then(|| object.clone())
    }
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// The body is of another type than the request.
    #[error("invalid object type: {0}")]
    WrongType(GroupVersionKind),
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsSent,
    #[error("failed to decode managed fields: {0}")]
    LiveManagedFields(#[source] super::ManagedError),
    #[error("failed to create typed patch object ({object}): {errors}")]
    Typed { object: String, errors: String },
    #[error("conflicts with other managers")]
    Conflicts(Conflicts),
    /// The request's version has no schema.
    #[error("no schema for {0}")]
    NoSchema(String),
}

impl ApplyError {
    pub fn into_status(self) -> Status {
        match self {
            Self::ManagedFieldsSent | Self::WrongType(_) => Status::bad_request(self.to_string()),
            Self::Conflicts(conflicts) => conflicts.to_status(),
            other => Status::plain(other.to_string()),
        }
    }
}

impl From<ApplyError> for Status {
    fn from(error: ApplyError) -> Self {
        error.into_status()
    }
}

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

/// Refuses a body whose type is not the request's.
pub fn check_type(applied: &Value, expected: &GroupVersionKind) -> Result<(), ApplyError> {
    let found = applied.group_version_kind().unwrap_or_default();
    if found == *expected { Ok(()) } else { Err(ApplyError::WrongType(found)) }
}

/// Merges an applied object into the live one. `live` is what is stored; for a create, the kind's empty object in canonical form.
pub fn apply(
    live: &Value,
    applied: &Value,
    manager: &Manager<'_>,
    force: bool,
    versions: &dyn Versions,
) -> Result<Value, ApplyError> {
    if applied.metadata().and_then(|m| m.get("managedFields")).is_some_and(|f| !f.is_null()) {
        return Err(ApplyError::ManagedFieldsSent);
    }
    let schema = versions.schema(manager.api_version).ok_or_else(|| ApplyError::NoSchema(manager.api_version.to_owned()))?;
    let mut managed = Managed::decode(live.meta_list("managedFields")).map_err(ApplyError::LiveManagedFields)?;
    if managed.is_empty() {
        let before = Manager { name: BEFORE_FIRST_APPLY, ..*manager };
        managed = record_update(&empty_object(applied, schema), live, managed, &before, schema, versions);
    }
    validate(applied, schema).map_err(|errors| ApplyError::Typed { object: describe(applied), errors })?;

    let operands = Operands { live, applied, manager, schema, versions };
    let outcome = if manager.name == KUBECTL {
        operands.run(managed.clone(), force).or_else(|conflicts| operands.migrate(managed, conflicts))
    } else {
        operands.run(managed, force)
    };
    let (mut merged, managed) = outcome.map_err(ApplyError::Conflicts)?;
    if manager.name == KUBECTL {
        refresh_last_applied(&mut merged, applied);
    }
    set_managed_fields(&mut merged, &managed);
    Ok(merged)
}

/// An object of this type as the server would make it: what a type always writes is there, and nobody set it.
fn empty_object(applied: &Value, schema: &Schema) -> Value {
    let mut empty = json!({"apiVersion": applied.api_version(), "kind": applied.kind()});
    normalise(&mut empty, schema);
    empty
}

/// `namespace/name; group/version, Kind=kind`, from the object's own metadata.
fn describe(object: &Value) -> String {
    let kind = object.group_version_kind().unwrap_or_default();
    format!("{}/{}; {kind}", object.namespace(), object.name())
}

fn set_managed_fields(object: &mut Value, managed: &Managed) {
    let metadata = object.metadata_mut();
    if managed.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(managed.encode()));
    }
}

fn record_update(
    live: &Value,
    new: &Value,
    managed: Managed,
    manager: &Manager<'_>,
    schema: &Schema,
    versions: &dyn Versions,
) -> Managed {
    let mut managed = reconcile(managed, versions);
    let comparison = compare(live, new, schema).without(&Set::from_fields(manager.reset_fields));
    let taken = Taken::find(&mut managed, None, &comparison, manager, (live, new), versions);
    taken.take(&mut managed);

    let mut set = comparison.changed();
    set.subtract(&UNOWNED);
    if !set.is_empty() {
        let id = ManagerId::new(manager.name, Operation::Update, manager.api_version, manager.subresource);
        let owned = managed.owners.entry(id).or_insert_with(|| Owned {
            set: Set::new(),
            api_version: manager.api_version.to_owned(),
            time: None,
        });
        owned.set.extend(set);
        owned.api_version = manager.api_version.to_owned();
        owned.time = Some(time::rfc3339(manager.now));
    }
    managed.drop_empty();
    managed.cap();
    managed
}

/// Sets recorded under versions that are gone are dropped; parts of what has become atomic are joined.
fn reconcile(mut managed: Managed, versions: &dyn Versions) -> Managed {
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
struct Taken {
    /// The paths it changed, of those each manager owns.
    conflicts: Conflicts,
    /// The paths it removed, in each version that a manager uses.
    removed: BTreeMap<String, Set>,
    exempt: Option<ManagerId>,
}

impl Taken {
    /// Looks through all managers but `exempt`. Those of versions that can not be converted to any more are dropped.
    fn find(
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

    fn take(&self, managed: &mut Managed) {
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

/// One apply's operands.
struct Operands<'a> {
    live: &'a Value,
    applied: &'a Value,
    manager: &'a Manager<'a>,
    schema: &'a Schema,
    versions: &'a dyn Versions,
}

impl Operands<'_> {
    fn run(&self, managed: Managed, force: bool) -> Result<(Value, Managed), Conflicts> {
        let mut managed = reconcile(managed, self.versions);
        let mut merged = merge(Some(self.live), Some(self.applied), self.schema).unwrap_or(Value::Null);
        merged.metadata_mut().remove("managedFields");
        let reset = Set::from_fields(self.manager.reset_fields);
        let mut set = field_set(self.applied, self.schema);
        set.subtract_below(&reset);
        let id = ManagerId::new(self.manager.name, Operation::Apply, self.manager.api_version, self.manager.subresource);
        let last = managed.owners.remove(&id);
        let time = last.as_ref().and_then(|l| l.time.clone());
        managed.owners.insert(id.clone(), Owned { set, api_version: self.manager.api_version.to_owned(), time });

        let merged = self.prune(merged, &managed, &id, last.as_ref());
        let comparison = compare(self.live, &merged, self.schema).without(&reset);
        let objects = (self.live, &merged);
        let taken = Taken::find(&mut managed, Some(id.clone()), &comparison, self.manager, objects, self.versions);
        if !force && !taken.conflicts.0.is_empty() {
            return Err(taken.conflicts);
        }
        taken.take(&mut managed);

        if let Some(owned) = managed.owners.get_mut(&id) {
            owned.set.subtract(&UNOWNED);
            if !is_same(self.live, &merged) {
                owned.time = Some(time::rfc3339(self.manager.now));
            }
        }
        managed.drop_empty();
        Ok((merged, managed))
    }

    /// Takes out what this manager applied last time and now does not, unless somebody else owns it too.
    fn prune(&self, merged: Value, managed: &Managed, id: &ManagerId, last: Option<&Owned>) -> Value {
        let Some(last) = last.filter(|l| !l.set.is_empty()) else {
            return merged;
        };
        // Nothing was given up, which is the rule.
        let now = managed.owners.get(id);
        if now.is_some_and(|now| now.api_version == last.api_version && last.set.is_subset(&now.set)) {
            return merged;
        }
        let Some(schema) = self.versions.schema(&last.api_version) else {
            return merged;
        };
        let Some(converted) = self.to_version(&merged, &last.api_version) else {
            return merged;
        };
        let pruned = remove_items(&converted, &last.set.with_named_fields(schema), schema);
        let pruned = self.add_back_owned(&converted, pruned, &last.api_version, managed);
        let pruned = add_back_dangling(&converted, &pruned, &last.set, schema);
        self.to_version(&pruned, self.manager.api_version).unwrap_or(merged)
    }

    fn to_version(&self, object: &Value, api_version: &str) -> Option<Value> {
        if object.api_version() == api_version {
            return Some(object.clone());
        }
        self.versions.convert(object, api_version)
    }

    /// Puts back what any manager owns, one version after another, the pruned one first.
    fn add_back_owned(&self, merged: &Value, pruned: Value, pruned_version: &str, managed: &Managed) -> Value {
        let mut by_version: BTreeMap<&str, Set> = BTreeMap::new();
        for owned in managed.owners.values() {
            by_version.entry(&owned.api_version).or_default().extend(owned.set.clone());
        }
        let first = by_version.remove_entry(pruned_version);
        let mut current = pruned;
        for (version, owned) in first.into_iter().chain(by_version) {
            let step = || {
                let schema = self.versions.schema(version)?;
                let merged = self.to_version(merged, version)?;
                let pruned = self.to_version(&current, version)?;
                let all = field_set(&merged, schema).with_named_fields(schema);
                let kept = field_set(&pruned, schema).with_named_fields(schema).union(&owned.with_named_fields(schema));
                self.to_version(&remove_items(&merged, &all.difference(&kept), schema), pruned_version)
            };
            if let Some(next) = step() {
                current = next;
            }
        }
        current
    }

    /// A conflict with what client-side apply set is none: `kubectl` owns it under another name. Only fields that still are as last
    /// applied count.
    fn migrate(&self, managed: Managed, conflicts: Conflicts) -> Result<(Value, Managed), Conflicts> {
        let Some(allowed) = self.unchanged_since_last_applied() else {
            return Err(conflicts);
        };
        if !conflicts.all().difference(&allowed).is_empty() {
            return Err(conflicts.outside(&allowed));
        }
        self.run(managed, true)
    }

    fn unchanged_since_last_applied(&self) -> Option<Set> {
        let last: Value = serde_json::from_str(self.live.annotation(LAST_APPLIED).filter(|a| !a.is_empty())?).ok()?;
        if last.api_version() != self.manager.api_version || validate(&last, self.schema).is_err() {
            return None;
        }
        let comparison = compare(&last, self.live, self.schema);
        let set = field_set(&last, self.schema);
        Some(set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
    }
}

/// Whether two objects are equal but for managed fields.
fn is_same(a: &Value, b: &Value) -> bool {
    fn except<'v>(map: Option<&'v Map<String, Value>>, left_out: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
        map.into_iter().flatten().filter(move |(key, _)| *key != left_out)
    }
    except(a.as_object(), "metadata").eq(except(b.as_object(), "metadata"))
        && except(a.metadata(), "managedFields").eq(except(b.metadata(), "managedFields"))
}

/// Puts back what the last apply did not own either: fields that fell with a removed parent.
fn add_back_dangling(merged: &Value, pruned: &Value, last: &Set, schema: &Schema) -> Value {
    let all = field_set(merged, schema).with_named_fields(schema);
    let kept = field_set(pruned, schema).with_named_fields(schema);
    remove_items(merged, &all.difference(&kept).intersection(&last.with_named_fields(schema)), schema)
}

/// Keeps the annotation of client-side apply in step, so that a client can go back to it.
fn refresh_last_applied(merged: &mut Value, applied: &Value) {
    if merged.annotation(LAST_APPLIED).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    let metadata = applied.metadata_mut();
    match metadata.get_mut("annotations") {
        Some(Value::Object(annotations)) => drop(annotations.remove(LAST_APPLIED)),
        _ => drop(metadata.remove("annotations")),
    }
    let text = format!("{}\n", crate::gotext::json(&applied));
    let Some(annotations) = merged.metadata_mut().get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.insert(LAST_APPLIED.to_owned(), Value::from(text));
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > TOTAL_ANNOTATION_SIZE_MAX {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_schema::catalog;

    const NOW: Timestamp = Timestamp::from_secs(0);
    const LATER: Timestamp = Timestamp::from_secs(60);

    struct World {
        live: Value,
    }

    impl World {
        fn config_map(data: Value) -> Self {
            let live = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "uid": "u"}, "data": data});
            Self { live }
        }

        fn versions() -> SingleVersion<'static> {
            let kind = catalog().kind("", "v1", "ConfigMap").expect("config maps are in the table");
            SingleVersion { api_version: "v1", schema: &kind.schema }
        }

        fn manager(name: &str, now: Timestamp) -> Manager<'_> {
            Manager { name, api_version: "v1", subresource: "", reset_fields: &[], now }
        }

        fn apply(&mut self, name: &str, data: Value, annotations: Value, force: bool) -> Result<(), ApplyError> {
            let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
            if !annotations.is_null() {
                body["metadata"]["annotations"] = annotations;
            }
            self.live = apply(&self.live, &body, &Self::manager(name, NOW), force, &Self::versions())?;
            Ok(())
        }

        fn owners(&self) -> Vec<String> {
            let entries = self.live.meta_list("managedFields");
            entries.iter().map(|e| format!("{} {} {}", e["manager"].as_str().unwrap_or(""), e["operation"], e["fieldsV1"])).collect()
        }
    }

    #[test]
    fn the_first_apply_attributes_what_was_there() {
        let mut world = World::config_map(json!({"a": "1"}));
        world.apply("me", json!({"b": "2"}), Value::Null, false).unwrap();
        assert_eq!(world.live["data"], json!({"a": "1", "b": "2"}));
        assert_eq!(
            world.owners(),
            [
                "me \"Apply\" {\"f:data\":{\"f:b\":{}}}",
                "before-first-apply \"Update\" {\"f:data\":{\".\":{},\"f:a\":{}}}"
            ]
        );
        world.apply("me", json!({}), Value::Null, false).unwrap();
        assert_eq!(world.live["data"], json!({"a": "1"}), "what is not applied any more goes");
    }

    #[test]
    fn kubectl_takes_over_from_client_side_apply() {
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}}).to_string();
        let mut world = World::config_map(json!({"a": "1"}));
        world.live["metadata"]["annotations"] = json!({LAST_APPLIED: last});
        let refused = world.apply("other", json!({"a": "2"}), Value::Null, false).unwrap_err();
        assert_eq!(
            Status::from(refused).message,
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
        );
        world.apply("kubectl", json!({"a": "2"}), Value::Null, false).unwrap();
        assert_eq!(world.live["data"], json!({"a": "2"}));
        let annotation = world.live.annotation(LAST_APPLIED).unwrap_or_default();
        assert!(annotation.ends_with("\"data\":{\"a\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"m\"}}\n"), "{annotation}");
    }

    #[test]
    fn updates_move_ownership_and_time_only_with_changes() {
        let world = World::config_map(json!({"a": "1"}));
        let mut live = world.live.clone();
        live["metadata"].as_object_mut().unwrap().remove("uid");
        let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
        let created = update(&empty, live, &World::manager("", NOW), &World::versions());
        let entry = &created.meta_list("managedFields")[0];
        assert_eq!((entry["manager"].as_str(), entry["time"].as_str()), (Some("unknown"), Some("1970-01-01T00:00:00Z")));
        let mut stored = created.clone();
        stored["metadata"]["uid"] = "u".into();

        let same = update(&stored, stored.clone(), &World::manager("w", LATER), &World::versions());
        assert_eq!(same, stored);

        let mut new = stored.clone();
        new["data"]["b"] = "2".into();
        let changed = update(&stored, new.clone(), &World::manager("w", LATER), &World::versions());
        let entries = changed.meta_list("managedFields");
        assert_eq!((entries.len(), &entries[1]["fieldsV1"], &entries[1]["time"]), (2, &json!({"f:data": {"f:b": {}}}), &json!("1970-01-01T00:01:00Z")));

        new["metadata"]["managedFields"] = json!([{}]);
        let cleared = update(&stored, new, &World::manager("w", LATER), &World::versions());
        assert!(cleared.meta_list("managedFields").is_empty());
        let mut again = cleared.clone();
        again["data"]["c"] = "3".into();
        let untracked = update(&cleared, again, &World::manager("w", LATER), &World::versions());
        assert!(untracked.meta_list("managedFields").is_empty(), "stays untracked until an apply");
    }

    #[test]
    fn bodies_are_checked() {
        let mut world = World::config_map(json!({}));
        let message = |e: ApplyError| Status::from(e).message;
        assert_eq!(
            message(world.apply("me", json!({"a": 5}), Value::Null, false).unwrap_err()),
            "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:5}"
        );
        assert_eq!(
            message(world.apply("me", json!([]), json!("x"), false).unwrap_err()),
            "failed to create typed patch object (/m; /v1, Kind=ConfigMap): errors:\n  .data: expected map, got &{[]}\n  \
             .metadata.annotations: expected map, got &{x}"
        );
        let expected = GroupVersionKind::new("", "v1", "ConfigMap");
        assert_eq!(message(check_type(&json!({}), &expected).unwrap_err()), "invalid object type: /, Kind=");
        assert_eq!(check_type(&world.live, &expected), Ok(()));
    }
}
