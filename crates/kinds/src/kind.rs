//! What the generic registry asks of a kind.
//!
//! ```text
//! request body -> decode, prune -> default -> admission (mutating) -> prepare_create | prepare_update -> admission (validating) -> store
//! stored object -> row, selectable_fields
//! ```
//!
//! The registry works on `serde_json::Value`; a built-in kind works on its typed struct. [`TypedKind`] is what a built-in kind's folder
//! implements, [`Typed`] adapts it to [`Kind`], and a custom resource implements [`Kind`] directly.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::field::ErrorList;

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

/// What validation may look at beside the object: facts of the request, never the store.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    pub now: Timestamp,
    /// Empty for the object itself.
    pub subresource: &'a str,
}

/// Errors refuse the write (422); warnings go into `Warning` headers.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub errors: ErrorList,
    pub warnings: Vec<String>,
}

/// A kind as the generic registry sees it. All methods are pure.
pub trait Kind: Send + Sync + 'static {
    fn info(&self) -> &KindInfo;

    /// Defaults of the served version; idempotent. Runs on every decoded request body and never on stored objects.
    fn default(&self, object: &mut Value);

    /// Clears what a creator may not set (status), sets what the server sets, and validates. Object metadata is validated by the registry.
    fn prepare_create(&self, object: &mut Value, cx: &RequestContext<'_>) -> Verdict;

    /// Restores from `old` what this request may not touch (status on the object itself, everything else on `status`), and validates.
    /// The registry raises the generation when [`Kind::spec_changed`] says so.
    fn prepare_update(&self, new: &mut Value, old: &Value, cx: &RequestContext<'_>) -> Verdict;

    /// Whether `metadata.generation` rises: by default any difference outside `metadata` and `status`.
    fn spec_changed(&self, new: &Value, old: &Value) -> bool {
        let rest = |v: &Value| -> Vec<(String, Value)> {
            let fields = v.as_object().into_iter().flatten();
            fields.filter(|(k, _)| !matches!(k.as_str(), "metadata" | "status" | "kind" | "apiVersion")).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        rest(new) != rest(old)
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

    /// How long a finished deletion may take by default (`DeleteOptions.gracePeriodSeconds` unset); `None` deletes at once.
    fn grace_period(&self, object: &Value) -> Option<i64> {
        let _ = object;
        None
    }
}

/// A built-in kind's own logic on its typed struct. Every method has upstream's most common behaviour as its default.
pub trait TypedKind: Send + Sync + 'static {
    type Object: Serialize + DeserializeOwned;
    const INFO: KindInfo;

    fn default(object: &mut Self::Object) {
        let _ = object;
    }

    fn prepare_create(object: &mut Self::Object, cx: &RequestContext<'_>) -> Verdict;

    fn prepare_update(new: &mut Self::Object, old: &Self::Object, cx: &RequestContext<'_>) -> Verdict;

    const COLUMNS: &'static [Column];

    fn row(object: &Self::Object, now: Timestamp) -> Vec<Value>;

    const SELECTABLE: &'static [&'static str] = &[];

    fn selectable_fields(object: &Self::Object) -> Vec<(&'static str, String)> {
        let _ = object;
        Vec::new()
    }

    fn grace_period(object: &Self::Object) -> Option<i64> {
        let _ = object;
        None
    }
}

/// Adapts a [`TypedKind`] to [`Kind`]. The value must already be pruned to the kind's schema, so a conversion cannot fail for shape; where it
/// does (a value the typed struct refuses), the error is reported as an internal field error and never panics.
pub struct Typed<T>(PhantomData<fn() -> T>);

impl<T> Default for Typed<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}
