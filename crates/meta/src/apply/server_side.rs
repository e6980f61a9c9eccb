//! Server-side apply itself: merge, prune, and settle who owns what.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wheelhouse_schema::{Schema, normalise};

use super::compare::compare;
use super::conflict::Conflicts;
use super::last_applied;
use super::managed::{Managed, ManagedError, ManagerId, Operation, Owned};
use super::manager::{Manager, Versions};
use super::merge::merge;
use super::remove::remove_items;
use super::set::Set;
use super::typed::{field_set, validate};
use super::update::{Changes, UNOWNED, is_same, reconcile, record_update, set_managed_fields};
use crate::gvk::GroupVersionKind;
use crate::object::Object;
use crate::status::Status;
use crate::time;

/// The manager of what an object held before anybody's managed fields were recorded.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The field manager under which `kubectl` applies; it alone may migrate from client-side apply.
const KUBECTL: &str = "kubectl";

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// The body is of another type than the request.
    #[error("invalid object type: {0}")]
    WrongType(GroupVersionKind),
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsSent,
    #[error("failed to decode managed fields: {0}")]
    LiveManagedFields(#[source] ManagedError),
    #[error("failed to create typed patch object ({object}): {errors}")]
    Typed { object: String, errors: String },
    /// The object does not fit the version in which this manager applied before.
    #[error("{0}")]
    Undeclared(String),
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

/// Refuses a body whose type is not the request's.
pub fn check_type(applied: &Value, expected: &GroupVersionKind) -> Result<(), ApplyError> {
    let found = applied.group_version_kind().unwrap_or_default();
    if found == *expected { Ok(()) } else { Err(ApplyError::WrongType(found)) }
}

/// Merges an applied object into the live one. `live` is what is stored; for a create, the kind's empty object in canonical form.
pub fn apply(live: &Value, applied: &Value, manager: &Manager<'_>, force: bool, versions: &dyn Versions) -> Result<Value, ApplyError> {
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
    let (mut merged, managed) = match operands.run(managed.clone(), force) {
        Err(ApplyError::Conflicts(conflicts)) if manager.name == KUBECTL => operands.migrate(managed, conflicts)?,
        outcome => outcome?,
    };
    if manager.name == KUBECTL {
        last_applied::refresh(&mut merged, applied);
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

/// One apply's operands.
struct Operands<'a> {
    live: &'a Value,
    applied: &'a Value,
    manager: &'a Manager<'a>,
    schema: &'a Schema,
    versions: &'a dyn Versions,
}

impl Operands<'_> {
    fn run(&self, managed: Managed, force: bool) -> Result<(Value, Managed), ApplyError> {
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

        let merged = self.prune(merged, &managed, &id, last.as_ref())?;
        let comparison = compare(self.live, &merged, self.schema).without(&reset);
        let mut changes = Changes::new(comparison, self.manager, (self.live, &merged), self.versions);
        if !force {
            let conflicts = changes.conflicts(&managed, &id);
            if !conflicts.0.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
        }
        changes.take_from(&mut managed, Some(&id));

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
    fn prune(&self, merged: Value, managed: &Managed, id: &ManagerId, last: Option<&Owned>) -> Result<Value, ApplyError> {
        let Some(last) = last.filter(|l| !l.set.is_empty()) else {
            return Ok(merged);
        };
        // Nothing was given up, which is the rule.
        let now = managed.owners.get(id);
        if now.is_some_and(|now| now.api_version == last.api_version && last.set.is_subset(&now.set)) {
            return Ok(merged);
        }
        let Some(schema) = self.versions.schema(&last.api_version) else {
            return Ok(merged);
        };
        let Some(converted) = self.to_version(&merged, &last.api_version) else {
            return Ok(merged);
        };
        // A version that lacks a field cannot say who owned it. Only custom resources, whose versions are not converted, come to this.
        if last.api_version != self.manager.api_version {
            validate(&converted, schema).map_err(ApplyError::Undeclared)?;
        }
        let pruned = remove_items(&converted, &last.set.with_named_fields(schema), schema);
        let pruned = self.add_back_owned(&converted, pruned, &last.api_version, managed);
        let pruned = add_back_dangling(&converted, &pruned, &last.set, schema);
        Ok(self.to_version(&pruned, self.manager.api_version).unwrap_or(merged))
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
    fn migrate(&self, managed: Managed, conflicts: Conflicts) -> Result<(Value, Managed), ApplyError> {
        let Some(allowed) = last_applied::unchanged(self.live, self.manager, self.schema) else {
            return Err(ApplyError::Conflicts(conflicts));
        };
        if !conflicts.all().difference(&allowed).is_empty() {
            return Err(ApplyError::Conflicts(conflicts.outside(&allowed)));
        }
        self.run(managed, true)
    }
}

/// Puts back what the last apply did not own either: fields that fell with a removed parent.
fn add_back_dangling(merged: &Value, pruned: &Value, last: &Set, schema: &Schema) -> Value {
    let all = field_set(merged, schema).with_named_fields(schema);
    let kept = field_set(pruned, schema).with_named_fields(schema);
    remove_items(merged, &all.difference(&kept).intersection(&last.with_named_fields(schema)), schema)
}
