//! What the generic registry asks of a kind.
//!
//! ```text
//! request body -> decode, prune -> default -> admission (mutating) -> prepare_create | prepare_update -> admission (validating) -> store
//! stored object -> row, selectable_fields
//! ```
//!
//! The registry works on `serde_json::Value`; a built-in kind works on its typed struct. [`TypedKind`] is what a built-in kind's folder
//! implements, [`Typed`] adapts it to [`Kind`], and a custom resource implements [`Kind`] directly.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};
use wheelhouse_schema::{Schema, catalog, normalise};

use crate::apiextensions::customresource::ScalePaths;

/// Names and shape: all that discovery, routing and storage need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindInfo {
    /// Empty for the core group.
    pub group: &'static str,
    /// The version that is stored and preferred.
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    /// `all` puts it into `kubectl get all`.
    pub categories: &'static [&'static str],
    pub scope: Scope,
    /// As discovery lists them; upstream's order is alphabetical.
    pub verbs: &'static [Verb],
    pub subresources: &'static [Subresource],
    /// Whether `metadata.generation` is kept: set to 1 at creation, raised when the spec changes.
    pub generation: bool,
    /// Whether a PUT or an apply of a missing object creates it (`AllowCreateOnUpdate`).
    pub create_on_update: bool,
    /// Whether a PUT without `metadata.resourceVersion` is accepted (`AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
}

impl KindInfo {
    /// A namespaced kind with every verb, no subresources, no generation, and the usual rules of updates. To be refined by struct update.
    pub const fn namespaced(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str, singular: &'static str) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
            singular,
            short_names: &[],
            categories: &[],
            scope: Scope::Namespaced,
            verbs: Verb::ALL,
            subresources: &[],
            generation: false,
            create_on_update: false,
            unconditional_update: true,
        }
    }

    /// The same for a cluster-scoped kind.
    pub const fn cluster(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str, singular: &'static str) -> Self {
        Self { scope: Scope::Cluster, ..Self::namespaced(group, version, kind, plural, singular) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    /// Every verb, in discovery's order.
    pub const ALL: &'static [Verb] =
        &[Verb::Create, Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];

    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }
}

/// A path below an object. What it does beyond storing is declared from this closed list and executed by the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// Group, version and kind of its bodies when they are not the parent's, e.g. `autoscaling/v1 Scale`.
    pub body: Option<(&'static str, &'static str, &'static str)>,
    pub verbs: &'static [Verb],
    pub action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads the parent; writes replace only what [`Kind::prepare_update`] lets this subresource touch (`status`, `finalize`, `resize` …).
    Part,
    /// Reads and writes the parent through an `autoscaling/v1 Scale`.
    Scale,
    /// `POST pods/binding`.
    Bind,
    /// `POST pods/eviction`.
    Evict,
    /// `POST serviceaccounts/token`.
    Token,
    /// A stream or a request carried to a node: `log`, `exec`, `attach`, `portforward`, `proxy`, told apart by the subresource's name.
    Connect,
}

/// What may stand as `metadata.name`, and with a trailing dash removed as `metadata.generateName`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS-1123 subdomain: most kinds.
    #[default]
    Subdomain,
    /// The same rule with the newer text about length: replication controllers.
    SubdomainBytes,
    /// A DNS-1123 label: namespaces, stateful sets.
    Label,
    /// A DNS-1035 label: services.
    Label1035,
    /// Anything that fits one segment of a URL path: the RBAC kinds.
    PathSegment,
    /// The kind's own validation says: [`Kind::prepare_create`] reports bad names, the registry does not look.
    Own,
}

/// A further group and version under which the same stored objects are served. The functions work in place on the decoded object and also
/// set `apiVersion` and `kind`.
#[derive(Clone, Copy, Debug)]
pub struct OtherVersion {
    pub group: &'static str,
    pub version: &'static str,
    /// Defaults of this version; they run before `to_stored`, which is followed by no other defaults.
    pub default: fn(&mut Value),
    pub to_stored: fn(&mut Value),
    pub from_stored: fn(&mut Value),
    /// This version's field selectors and the stored version's names for them.
    pub selectable: &'static [(&'static str, &'static str)],
}

/// One table column (`meta.k8s.io/v1 TableColumnDefinition`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: &'static str,
    /// `name` for the name column, else empty.
    pub format: &'static str,
    pub description: &'static str,
    /// 0 shows always, above 0 only with `-o wide`.
    pub priority: i32,
}

/// Who sent the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requester<'a> {
    pub name: &'a str,
    /// Empty where the authenticator knows none.
    pub uid: &'a str,
    pub groups: &'a [String],
    pub extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

/// What validation may look at beside the object: facts of the request, never the store.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContext<'a> {
    pub now: Timestamp,
    /// `None` only where no request stands behind a preparation.
    pub user: Option<Requester<'a>>,
    /// Randomness for names that the kind itself makes.
    pub seed: u64,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Group and version under which the request came in; they differ from the stored ones where a kind has several versions.
    pub group: &'a str,
    pub version: &'a str,
    /// The object as it came, set by [`Typed`] for the few rules that tell an unset list or struct from an empty one.
    pub raw: Option<&'a Value>,
}

/// Errors refuse the write (422); warnings go into `Warning` headers, but only if nothing else refuses the write either.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub errors: ErrorList,
    pub warnings: Vec<String>,
}

/// A kind as the generic registry sees it. All methods are pure.
pub trait Kind: Send + Sync + 'static {
    fn info(&self) -> &KindInfo;

    fn name_rule(&self) -> NameRule {
        NameRule::default()
    }

    /// The schema of the stored version. Built-in kinds have theirs in the table; the fleet's kinds and custom resources bring their own.
    fn schema(&self) -> Option<Schema> {
        let info = self.info();
        catalog().kind(info.group, info.version, info.kind).map(|kind| kind.schema.clone())
    }

    /// Served beside [`KindInfo::version`]; empty for nearly every kind.
    fn other_versions(&self) -> &[OtherVersion] {
        &[]
    }

    /// Defaults of the served version; idempotent. Runs on every decoded request body and never on stored objects.
    fn default(&self, object: &mut Value);

    /// Clears what a creator may not set (status), sets what the server sets, and validates. Object metadata is validated by the registry,
    /// which has also filled it already: a generated name is final, uid and creation time are set.
    fn prepare_create(&self, object: &mut Value, cx: &RequestContext<'_>) -> Verdict;

    /// Restores from `old` what this request may not touch (status on the object itself, everything else on `status`), and validates.
    /// The registry raises the generation when [`Kind::spec_changed`] says so.
    fn prepare_update(&self, new: &mut Value, old: &Value, cx: &RequestContext<'_>) -> Verdict;

    /// Whether `metadata.generation` rises: by default any difference outside `metadata` and `status`. Not to be asked for a write of `status`,
    /// since for some kinds a change of annotations counts.
    fn spec_changed(&self, new: &Value, old: &Value) -> bool {
        differs_outside_metadata_and_status(new, old)
    }

    /// Columns of its table; the first is the name.
    fn columns(&self) -> &[Column];

    /// One cell per column.
    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value>;

    /// Field selectors beyond `metadata.name` and `metadata.namespace`, with this object's values.
    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let _ = object;
        Vec::new()
    }

    /// The names that [`Kind::selectable_fields`] may return; any other is `field label not supported`.
    fn selectable_names(&self) -> &[&'static str] {
        &[]
    }

    /// Annotations that upstream keeps as fields of its own, so that partial metadata, which it makes from its internal form, lacks them.
    fn annotations_from_fields(&self) -> &[&'static str] {
        &[]
    }

    /// How long a finished deletion may take by default (`DeleteOptions.gracePeriodSeconds` unset); `None` deletes at once.
    fn grace_period(&self, object: &Value) -> Option<i64> {
        let _ = object;
        None
    }

    /// Whether a cluster defined the kind for itself. Its objects have no protobuf form and no strategic merge, and items of its lists carry their type.
    fn is_custom(&self) -> bool {
        false
    }

    /// Brings an object that was read from the store up to what the kind is now. Built-in kinds store complete objects.
    fn complete(&self, object: &mut Value) {
        let _ = object;
    }

    /// From the served version to the stored one, for a kind that is one of several versions and not [`OtherVersion`]'s functions' business.
    fn to_stored(&self, object: &mut Value) {
        let _ = object;
    }

    /// The way back.
    fn to_served(&self, object: &mut Value) {
        let _ = object;
    }

    /// Where the replica counts of a custom resource's `scale` are; built-in kinds keep them where all of them do.
    fn scale(&self) -> Option<&ScalePaths> {
        None
    }

    /// The `openAPIV3Schema` of a custom resource, for documents.
    fn props(&self) -> Option<&Value> {
        None
    }

    /// What every answer in this version warns of.
    fn deprecation(&self) -> Option<&str> {
        None
    }
}

/// A built-in kind's own logic on its typed struct. Every method has upstream's most common behaviour as its default.
pub trait TypedKind: Send + Sync + 'static {
    type Object: Serialize + DeserializeOwned;
    const INFO: KindInfo;
    const NAME_RULE: NameRule = NameRule::Subdomain;
    /// JSON pointers of required structs whose absence must outlive the typed struct, which has no way to be without them.
    const NULLABLE: &'static [&'static str] = &[];
    const OTHER_VERSIONS: &'static [OtherVersion] = &[];

    /// See [`Kind::schema`]; `None` takes it from the table of built-in types.
    fn schema() -> Option<Schema> {
        None
    }

    fn default(object: &mut Self::Object) {
        let _ = object;
    }

    fn prepare_create(object: &mut Self::Object, cx: &RequestContext<'_>) -> Verdict;

    fn prepare_update(new: &mut Self::Object, old: &Self::Object, cx: &RequestContext<'_>) -> Verdict;

    /// See [`Kind::spec_changed`]; `None` leaves it to the comparison of everything outside metadata and status.
    fn spec_changed(new: &Self::Object, old: &Self::Object) -> Option<bool> {
        let _ = (new, old);
        None
    }

    const COLUMNS: &'static [Column];

    fn row(object: &Self::Object, now: Timestamp) -> Vec<Value>;

    const SELECTABLE: &'static [&'static str] = &[];

    fn selectable_fields(object: &Self::Object) -> Vec<(&'static str, String)> {
        let _ = object;
        Vec::new()
    }

    /// The same without the typed struct, for kinds that are selected often: a watch asks this of every event. `None` leaves it to
    /// [`TypedKind::selectable_fields`].
    fn selectable_from_value(object: &Value) -> Option<Vec<(&'static str, String)>> {
        let _ = object;
        None
    }

    /// See [`Kind::annotations_from_fields`].
    const ANNOTATIONS_FROM_FIELDS: &'static [&'static str] = &[];

    fn grace_period(object: &Self::Object) -> Option<i64> {
        let _ = object;
        None
    }
}

/// Adapts a [`TypedKind`] to [`Kind`]. The value must already be pruned to the kind's schema, so a conversion cannot fail for shape; where it
/// does (a value the typed struct refuses), the error is reported as an internal field error and never panics.
pub struct Typed<T>(PhantomData<fn() -> T>);

impl<T: TypedKind> Typed<T> {
    /// Not `Default`, whose method would be mistaken for [`Kind::default`].
    #[allow(clippy::new_without_default, reason = "see above")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    fn read(object: &Value) -> Result<T::Object, Verdict> {
        let read = T::Object::deserialize(object).or_else(|error| match with_zero_times(object) {
            Some(object) => T::Object::deserialize(&object),
            None => Err(error),
        });
        read.map_err(|error| {
            let errors = vec![FieldError::internal(&Path::root(), error)].into();
            Verdict { errors, warnings: Vec::new() }
        })
    }

    /// Writes the struct back. The typed structs drop no field that the schema knows, but write required empty lists that Go's encoder
    /// would write as null or leave out, so the schema has the last word.
    fn write(object: &T::Object, into: &mut Value) {
        if let Some(written) = Self::written(object, into) {
            *into = written;
        }
    }

    fn written(object: &T::Object, before: &Value) -> Option<Value> {
        let mut written = serde_json::to_value(object).ok()?;
        for condition in conditions(&mut written) {
            if condition.get(TRANSITION_TIME).is_some_and(|t| t == ZERO_TIME) {
                condition[TRANSITION_TIME] = Value::Null;
            }
        }
        for pointer in T::NULLABLE {
            if before.pointer(pointer).is_none_or(Value::is_null)
                && let Some(required) = written.pointer_mut(pointer)
            {
                *required = Value::Null;
            }
        }
        if let Some(kind) = catalog().kind(T::INFO.group, T::INFO.version, T::INFO.kind) {
            normalise(&mut written, &kind.schema);
        }
        Some(written)
    }
}

impl<T: TypedKind> Kind for Typed<T> {
    fn info(&self) -> &KindInfo {
        &T::INFO
    }

    fn name_rule(&self) -> NameRule {
        T::NAME_RULE
    }

    fn schema(&self) -> Option<Schema> {
        T::schema().or_else(|| catalog().kind(T::INFO.group, T::INFO.version, T::INFO.kind).map(|kind| kind.schema.clone()))
    }

    fn other_versions(&self) -> &[OtherVersion] {
        T::OTHER_VERSIONS
    }

    fn default(&self, object: &mut Value) {
        // A body that the struct refuses is reported by the preparation that follows.
        if let Ok(mut typed) = Self::read(object) {
            T::default(&mut typed);
            let Some(mut written) = Self::written(&typed, object) else { return };
            keep_empty_lists(&mut written, object);
            *object = written;
        }
    }

    fn prepare_create(&self, object: &mut Value, cx: &RequestContext<'_>) -> Verdict {
        let mut typed = match Self::read(object) {
            Ok(typed) => typed,
            Err(verdict) => return verdict,
        };
        let verdict = T::prepare_create(&mut typed, &RequestContext { raw: Some(object), ..*cx });
        Self::write(&typed, object);
        verdict.silenced()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, cx: &RequestContext<'_>) -> Verdict {
        let (mut typed, old) = match (Self::read(new), Self::read(old)) {
            (Ok(new), Ok(old)) => (new, old),
            (Err(verdict), _) | (_, Err(verdict)) => return verdict,
        };
        let verdict = T::prepare_update(&mut typed, &old, &RequestContext { raw: Some(new), ..*cx });
        Self::write(&typed, new);
        verdict.silenced()
    }

    fn spec_changed(&self, new: &Value, old: &Value) -> bool {
        let typed = Self::read(new).ok().zip(Self::read(old).ok());
        typed.and_then(|(new, old)| T::spec_changed(&new, &old)).unwrap_or_else(|| differs_outside_metadata_and_status(new, old))
    }

    fn columns(&self) -> &[Column] {
        T::COLUMNS
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        // A stored object always fits its struct; were it ever not to, its row is blank rather than the whole list refused.
        Self::read(object).map(|typed| T::row(&typed, now)).unwrap_or_else(|_| vec![Value::Null; T::COLUMNS.len()])
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        if T::SELECTABLE.is_empty() {
            return Vec::new();
        }
        let quick = T::selectable_from_value(object);
        quick.unwrap_or_else(|| Self::read(object).map(|typed| T::selectable_fields(&typed)).unwrap_or_default())
    }

    fn selectable_names(&self) -> &[&'static str] {
        T::SELECTABLE
    }

    fn annotations_from_fields(&self) -> &[&'static str] {
        T::ANNOTATIONS_FROM_FIELDS
    }

    fn grace_period(&self, object: &Value) -> Option<i64> {
        Self::read(object).ok().and_then(|typed| T::grace_period(&typed))
    }
}

/// Go's zero time, which it writes as null. The typed condition has no way to be without a time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";
const TRANSITION_TIME: &str = "lastTransitionTime";

fn conditions(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten()
}

/// The same object with the zero time in every condition that has none; `None` when there is no such condition.
fn with_zero_times(object: &Value) -> Option<Value> {
    let mut object = object.clone();
    let mut found = false;
    for condition in conditions(&mut object).filter(|c| c.is_object() && c.get(TRANSITION_TIME).is_none_or(Value::is_null)) {
        condition[TRANSITION_TIME] = ZERO_TIME.into();
        found = true;
    }
    found.then_some(object)
}

/// An empty list that was sent where a list always stands is null in storage, but whoever sent it owns the field, which is decided between the
/// two. Only lists that the canonical form wrote as null are put back.
fn keep_empty_lists(written: &mut Value, sent: &Value) {
    let (Some(written), Some(sent)) = (written.as_object_mut(), sent.as_object()) else { return };
    for (name, value) in sent {
        match (written.get_mut(name), value) {
            (Some(null @ Value::Null), Value::Array(items)) if items.is_empty() => *null = Value::Array(Vec::new()),
            (Some(inner @ Value::Object(_)), Value::Object(_)) => keep_empty_lists(inner, value),
            _ => {}
        }
    }
}

/// The usual rule for raising the generation.
fn differs_outside_metadata_and_status(new: &Value, old: &Value) -> bool {
    let counts = |key: &&String| !matches!(key.as_str(), "metadata" | "status" | "kind" | "apiVersion");
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new != old };
    new.keys().chain(old.keys()).filter(counts).any(|key| new.get(key) != old.get(key))
}

impl Verdict {
    /// Upstream looks for warnings only once nothing is wrong.
    fn silenced(mut self) -> Self {
        if !self.errors.is_empty() {
            self.warnings.clear();
        }
        self
    }
}

impl From<ErrorList> for Verdict {
    fn from(errors: ErrorList) -> Self {
        Self { errors, warnings: Vec::new() }
    }
}
