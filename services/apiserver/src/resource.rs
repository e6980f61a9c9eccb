//! One served resource and the router over all of them.
//!
//! A [`Catalogue`] is built once per [`Registry`] and shared by every cluster of the process: it holds no state of a cluster.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use wheelhouse_kinds::kind::OtherVersion;
use wheelhouse_kinds::registry::{Entry, Registry};
use wheelhouse_kinds::{Kind, KindInfo, Scope, Subresource, Verb};
use wheelhouse_meta::Status;
use wheelhouse_meta::gvk::{GroupKind, GroupResource};
use wheelhouse_schema::Schema;

use crate::request::Answer;
use crate::request::path::RequestInfo;

/// Where the store keeps objects and what belongs to them.
pub const ROOT: &str = "/registry/";

/// A resource under one group and version, with everything that is derived from it.
pub struct Resource {
    /// Position in the catalogue: a small number that names it in caches and metrics.
    pub index: usize,
    /// Resources that are one object in several versions share it.
    pub storage_index: usize,
    pub entry: Entry,
    /// As served: `apps/v1`.
    pub api_version: String,
    /// As stored.
    pub stored_api_version: String,
    /// `deployments.apps`, as served.
    pub group_resource: GroupResource,
    /// As stored: what validation errors name.
    pub group_kind: GroupKind,
    /// Whether its objects have a protobuf form: those of the schema table do.
    pub protobuf: bool,
    /// Of the served version; `Any` for a kind that has no schema.
    pub schema: Schema,
    pub stored_schema: Schema,
    /// `/registry/apps/deployments/`
    prefix: String,
}

impl Resource {
    /// A custom resource's version. `index` is one that no other resource of the cluster has had, `storage_index` the same for all versions.
    pub fn custom(index: usize, storage_index: usize, entry: &Entry) -> Self {
        Self { storage_index, ..Self::new(index, entry) }
    }

    fn new(index: usize, entry: &Entry) -> Self {
        let info = entry.info();
        let api_version = |group: &str, version: &str| if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let schema = |group: &str, version: &str| {
            let found = wheelhouse_schema::catalog().kind(group, version, info.kind);
            // A kind outside the table (the fleet's, later a custom resource) brings its own.
            let own = || entry.kind().and_then(|kind| kind.schema()).unwrap_or(Schema::Any);
            found.map_or_else(own, |kind| kind.schema.clone())
        };
        let folder = if info.group.is_empty() { "core" } else { info.group };
        Self {
            index,
            storage_index: index,
            api_version: api_version(entry.group, entry.version),
            stored_api_version: api_version(info.group, info.version),
            group_resource: GroupResource::new(entry.group, info.plural),
            group_kind: GroupKind::new(info.group, info.kind),
            protobuf: wheelhouse_schema::catalog().kind(entry.group, entry.version, info.kind).is_some(),
            schema: schema(entry.group, entry.version),
            stored_schema: schema(info.group, info.version),
            prefix: format!("{ROOT}{folder}/{}/", info.plural),
            entry: entry.clone(),
        }
    }

    pub fn info(&self) -> &KindInfo {
        self.entry.info()
    }

    /// The kind of a stored resource. Only virtual resources have none, and they never reach the registry.
    pub fn kind(&self) -> &Arc<dyn Kind> {
        self.entry.kind().expect("the router hands only stored resources to the registry")
    }

    pub fn is_stored(&self) -> bool {
        self.entry.kind().is_some()
    }

    pub fn namespaced(&self) -> bool {
        self.info().scope == Scope::Namespaced
    }

    pub fn other_version(&self) -> Option<&OtherVersion> {
        self.entry.other_version()
    }

    /// Whether the cluster defined it.
    pub fn is_custom(&self) -> bool {
        self.entry.kind().is_some_and(|kind| kind.is_custom())
    }

    /// Defaults of the served version.
    pub fn default(&self, object: &mut Value) {
        let Some(other) = self.other_version() else { return self.kind().default(object) };
        (other.default)(object);
        if self.is_custom() {
            self.kind().default(object);
        } else {
            // What this version cannot say otherwise is lost here already, as upstream's decoding goes through its internal form.
            self.to_stored(object);
            self.to_served(object);
        }
        // The stored version's typed struct leaves the canonical form behind; another version has none.
        wheelhouse_schema::normalise(object, &self.schema);
    }

    /// From the served version to the stored one, in place.
    pub fn to_stored(&self, object: &mut Value) {
        if let Some(other) = self.other_version() {
            (other.to_stored)(object);
            self.kind().to_stored(object);
        }
    }

    /// The way back.
    pub fn to_served(&self, object: &mut Value) {
        if let Some(other) = self.other_version() {
            (other.from_stored)(object);
            self.kind().to_served(object);
        }
    }

    /// `ConfigMapList`
    pub fn list_kind(&self) -> String {
        format!("{}List", self.info().kind)
    }

    pub fn is(&self, group: &str, plural: &str) -> bool {
        let info = self.info();
        info.group == group && info.plural == plural
    }

    /// The prefix of all its keys, or of those in one namespace. An empty namespace means all.
    pub fn key_prefix(&self, namespace: &str) -> String {
        if self.namespaced() && !namespace.is_empty() { format!("{}{namespace}/", self.prefix) } else { self.prefix.clone() }
    }

    pub fn key(&self, namespace: &str, name: &str) -> Bytes {
        let mut key = self.key_prefix(namespace);
        key.push_str(name);
        key.into()
    }

    /// Namespace and name out of a key; `None` for a key of something else.
    pub fn names<'k>(&self, key: &'k [u8]) -> Option<(&'k str, &'k str)> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(self.prefix.as_str())?;
        if self.namespaced() { rest.split_once('/') } else { Some(("", rest)) }
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.info().subresources.iter().find(|s| s.name == name)
    }

    /// The Go type that upstream's messages name: `*core.ConfigMap`.
    pub fn go_type(&self, list: bool) -> String {
        let group = self.info().group;
        let package = match group.split('.').next().unwrap_or("") {
            "" | "events" => "core",
            first => first,
        };
        format!("*{package}.{}{}", self.info().kind, if list { "List" } else { "" })
    }
}

/// Every resource of a registry, found by path.
pub struct Catalogue {
    pub registry: Registry,
    resources: Vec<Arc<Resource>>,
    by_path: HashMap<(String, String, String), usize>,
}

/// What a resource request is about once its path is known to exist.
#[derive(Clone)]
pub struct Route {
    pub resource: Arc<Resource>,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Collection,
    Object,
    Subresource(Subresource),
}

impl Catalogue {
    pub fn new(registry: Registry) -> Self {
        let mut resources: Vec<Resource> = registry.entries().iter().enumerate().map(|(index, entry)| Resource::new(index, entry)).collect();
        let stored: HashMap<(&str, &str), usize> = registry
            .entries()
            .iter()
            .enumerate()
            .filter(|(_, e)| e.other_version().is_none())
            .map(|(index, e)| ((e.info().group, e.info().plural), index))
            .collect();
        for resource in &mut resources {
            let info = resource.entry.info();
            if let Some(index) = stored.get(&(info.group, info.plural)) {
                resource.storage_index = *index;
            }
        }
        let resources: Vec<Arc<Resource>> = resources.into_iter().map(Arc::new).collect();
        let path = |r: &Arc<Resource>| (r.entry.group.to_owned(), r.entry.version.to_owned(), r.info().plural.to_owned());
        let by_path = resources.iter().map(|r| (path(r), r.index)).collect();
        Self { by_path, resources, registry }
    }

    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned())).map(|index| &self.resources[*index])
    }

    /// The stored version of a resource.
    pub fn stored(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|r| r.is_stored() && r.other_version().is_none() && r.is(group, plural))
    }

    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|r| r.entry.group == group && r.entry.version == version && r.info().kind == kind)
    }

    /// Whether a group and version has any resource.
    pub fn serves(&self, group: &str, version: &str) -> bool {
        self.resources.iter().any(|r| r.entry.group == group && r.entry.version == version)
    }

    /// Finds what a path names and checks the method: 404 for a path that is not there, 405 for a method that it does not take.
    pub fn route(&self, info: &RequestInfo, method: &Method) -> Answer<Route> {
        let resource = self.find(&info.group, &info.version, &info.resource).ok_or_else(|| Box::new(Status::path_not_found()))?;
        Route::to(resource, info, method)
    }
}

impl Route {
    /// What a path names below a resource. See [`Catalogue::route`].
    pub fn to(resource: &Arc<Resource>, info: &RequestInfo, method: &Method) -> Answer<Self> {
        let not_found = || Box::new(Status::path_not_found());
        let namespaced = resource.namespaced();
        if info.namespaced_path && !namespaced {
            return Err(not_found());
        }
        let depth = info.parts.len();
        let rest_is_free = depth > 3 && resource.subresource(&info.subresource).is_some_and(|s| s.name == "proxy");
        if (depth > 3 && !rest_is_free) || (info.watch_prefix && depth > 2) {
            return Err(not_found());
        }
        if namespaced && !info.namespaced_path && depth > 1 {
            return Err(not_found());
        }
        let target = match depth {
            1 => Target::Collection,
            2 => Target::Object,
            _ => Target::Subresource(*resource.subresource(&info.subresource).ok_or_else(not_found)?),
        };
        let route = Self { resource: Arc::clone(resource), target };
        if !route.allows(info, method) {
            return Err(Status::method_not_allowed().into());
        }
        Ok(route)
    }

    fn allows(&self, info: &RequestInfo, method: &Method) -> bool {
        let has = |verb: Verb| self.resource.info().verbs.contains(&verb);
        if info.watch_prefix {
            return *method == Method::GET && has(Verb::Watch);
        }
        // Across all namespaces a namespaced resource can only be read.
        let writable = !self.resource.namespaced() || info.namespaced_path;
        match self.target {
            Target::Collection => match *method {
                Method::GET => has(Verb::List),
                Method::POST => writable && has(Verb::Create),
                Method::DELETE => writable && has(Verb::DeleteCollection),
                _ => false,
            },
            Target::Object => match *method {
                Method::GET => has(Verb::Get),
                Method::PUT => has(Verb::Update),
                Method::PATCH => has(Verb::Patch),
                Method::DELETE => has(Verb::Delete),
                _ => false,
            },
            Target::Subresource(sub) => match *method {
                Method::GET => sub.verbs.contains(&Verb::Get),
                Method::PUT => sub.verbs.contains(&Verb::Update),
                Method::PATCH => sub.verbs.contains(&Verb::Patch),
                Method::POST => sub.verbs.contains(&Verb::Create),
                Method::DELETE => sub.verbs.contains(&Verb::Delete),
                _ => false,
            },
        }
    }

    pub fn subresource_name(&self) -> &'static str {
        match self.target {
            Target::Subresource(sub) => sub.name,
            _ => "",
        }
    }
}
