//! The two operations: recording an update, and applying.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_schema::{Schema, normalise};

use super::compare::{Comparison, compare};
use super::conflict::Conflicts;
use super::managers::{Managed, ManagerId, Operation, Owned, is_reset};
use super::merge::merge;
use super::remove::remove_items;
use super::set::Set;
use super::typed::{field_set, validate};
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
const UNOWNED: [&[&str]; 12] = [
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
];

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
            Self::ManagedFieldsSent => Status::bad_request(self.to_string()),
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
pub fn update(live: &Value, new: Value, manager: &Manager<'_>, versions: &dyn Versions) -> Value {
    let (live, live_entries) = without_managed_fields(live);
    let mut new = new;
    let sent = new.as_object_mut().and_then(|o| o.get_mut("metadata")).and_then(Value::as_object_mut);
    let sent = sent.and_then(|m| m.remove("managedFields"));
    let stored = || Managed::decode(&live_entries).unwrap_or_default();
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
        Some(schema) => record_update(&live, &new, managed, manager, schema, versions),
        None => managed,
    };
    set_managed_fields(&mut new, &managed);
    new
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
    let (live, live_entries) = without_managed_fields(live);
    let mut managed = Managed::decode(&live_entries).map_err(ApplyError::LiveManagedFields)?;
    if managed.is_empty() {
        let before = Manager { name: BEFORE_FIRST_APPLY, ..*manager };
        managed = record_update(&empty_object(applied, schema), &live, managed, &before, schema, versions);
    }
    validate(applied, schema).map_err(|errors| ApplyError::Typed { object: describe(applied), errors })?;

    let mut operation = Operands { live: &live, applied, manager, schema, versions };
    let outcome = match operation.run(managed.clone(), force) {
        Err(conflicts) if manager.name == KUBECTL => operation.migrate(managed, conflicts),
        outcome => outcome,
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

fn without_managed_fields(object: &Value) -> (Value, Vec<Value>) {
    let mut object = object.clone();
    let metadata = object.as_object_mut().and_then(|o| o.get_mut("metadata")).and_then(Value::as_object_mut);
    match metadata.and_then(|m| m.remove("managedFields")) {
        Some(Value::Array(entries)) => (object, entries),
        _ => (object, Vec::new()),
    }
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
    let reset = Set::from_fields(manager.reset_fields);
    let comparison = compare(live, new, schema).without(&reset);
    let taken = disown(&mut managed, None, &comparison, manager, (live, new), versions);
    take(&mut managed, &taken);

    let set = comparison.changed().difference(&Set::from_fields(&UNOWNED));
    if !set.is_empty() {
        let id = ManagerId::new(manager.name, Operation::Update, manager.api_version, manager.subresource);
        let owned = managed.owners.entry(id).or_insert_with(|| Owned {
            set: Set::new(),
            api_version: manager.api_version.to_owned(),
            time: None,
        });
        owned.set = owned.set.union(&set);
        owned.api_version = manager.api_version.to_owned();
        owned.time = Some(time::rfc3339(manager.now));
    }
    managed.drop_empty();
    managed.cap();
    managed
}

/// Sets recorded under versions that are gone are dropped; parts of what has become atomic are joined.
fn reconcile(managed: Managed, versions: &dyn Versions) -> Managed {
    let owners = managed.owners.into_iter().filter_map(|(id, owned)| {
        let schema = versions.schema(&owned.api_version)?;
        let set = owned.set.reconciled_with(schema);
        Some((id, Owned { set, ..owned }))
    });
    Managed { owners: owners.collect() }
}

/// What a change from one object to another takes from each manager but `exempt`: the paths it changed, and the paths it removed.
struct Taken {
    conflicts: Conflicts,
    removed: BTreeMap<ManagerId, Set>,
}

fn disown(
    managed: &mut Managed,
    exempt: Option<&ManagerId>,
    comparison: &Comparison,
    manager: &Manager<'_>,
    objects: (&Value, &Value),
    versions: &dyn Versions,
) -> Taken {
    let mut by_version: BTreeMap<String, Option<Comparison>> = BTreeMap::new();
    by_version.insert(manager.api_version.to_owned(), Some(comparison.clone()));
    let mut taken = Taken { conflicts: Conflicts::default(), removed: BTreeMap::new() };
    let mut gone = Vec::new();
    for (id, owned) in managed.owners.iter().filter(|(id, _)| Some(*id) != exempt) {
        let comparison = by_version.entry(owned.api_version.clone()).or_insert_with(|| {
            let schema = versions.schema(&owned.api_version)?;
            let old = versions.convert(objects.0, &owned.api_version)?;
            let new = versions.convert(objects.1, &owned.api_version)?;
            Some(compare(&old, &new, schema).without(&Set::from_fields(manager.reset_fields)))
        });
        let Some(comparison) = comparison else {
            gone.push(id.clone());
            continue;
        };
        let conflicts = owned.set.intersection(&comparison.changed());
        if !conflicts.is_empty() {
            taken.conflicts.0.insert(id.clone(), conflicts);
        }
        if !comparison.removed.is_empty() {
            taken.removed.insert(id.clone(), comparison.removed.clone());
        }
    }
    for id in gone {
        managed.owners.remove(&id);
    }
    taken
}

fn take(managed: &mut Managed, taken: &Taken) {
    for (id, set) in taken.conflicts.0.iter().chain(&taken.removed) {
        if let Some(owned) = managed.owners.get_mut(id) {
            owned.set = owned.set.difference(set);
        }
    }
    managed.drop_empty();
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
    fn run(&mut self, managed: Managed, force: bool) -> Result<(Value, Managed), Conflicts> {
        let mut managed = reconcile(managed, self.versions);
        let merged = merge(Some(self.live), Some(self.applied), self.schema).unwrap_or(Value::Null);
        let reset = Set::from_fields(self.manager.reset_fields);
        let set = field_set(self.applied, self.schema).recursive_difference(&reset);
        let id = ManagerId::new(self.manager.name, Operation::Apply, self.manager.api_version, self.manager.subresource);
        let last = managed.owners.remove(&id);
        let time = last.as_ref().and_then(|l| l.time.clone());
        managed.owners.insert(id.clone(), Owned { set, api_version: self.manager.api_version.to_owned(), time });

        let merged = self.prune(merged, &managed, last.as_ref());
        let comparison = compare(self.live, &merged, self.schema).without(&reset);
        let objects = (self.live, &merged);
        let taken = disown(&mut managed, Some(&id), &comparison, self.manager, objects, self.versions);
        if !force && !taken.conflicts.0.is_empty() {
            return Err(taken.conflicts);
        }
        take(&mut managed, &taken);

        if let Some(owned) = managed.owners.get_mut(&id) {
            owned.set = owned.set.difference(&Set::from_fields(&UNOWNED));
            if merged != *self.live {
                owned.time = Some(time::rfc3339(self.manager.now));
            }
        }
        managed.drop_empty();
        Ok((merged, managed))
    }

    /// Takes out what this manager applied last time and now does not, unless somebody else owns it too.
    fn prune(&self, merged: Value, managed: &Managed, last: Option<&Owned>) -> Value {
        let Some(last) = last.filter(|l| !l.set.is_empty()) else {
            return merged;
        };
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
            let set = by_version.entry(&owned.api_version).or_default();
            *set = set.union(&owned.set);
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
    fn migrate(&mut self, managed: Managed, conflicts: Conflicts) -> Result<(Value, Managed), Conflicts> {
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
    let annotations = applied.as_object_mut().and_then(|o| o.get_mut("metadata")).and_then(|m| m.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    let text = format!("{}\n", crate::gotext::json(&applied));
    let Some(annotations) = merged.metadata_mut().get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.insert(LAST_APPLIED.to_owned(), Value::from(text));
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > TOTAL_ANNOTATION_SIZE_MAX {
        annotations.remove(LAST_APPLIED);
    }
}
