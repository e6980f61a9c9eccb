//! The cluster as a controller sees it: every object at one revision, with the indexes that reconcilers look things up by.
//!
//! A view is fed by the store's events in revision order and is a value: cloning it costs a few reference counts, so a reconciler
//! or a scheduling cycle holds one while newer ones are built. Only metadata is parsed when an object arrives; the typed struct is decoded on
//! first use and shared by everybody who holds the record.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use wheelhouse_base::Revision;

/// A resource's name: `deployments` of the group `apps`. The core group is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName {
    pub group: Cow<'static, str>,
    pub plural: Cow<'static, str>,
}

impl ResourceName {
    pub const fn new(group: &'static str, plural: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), plural: Cow::Borrowed(plural) }
    }

    /// The resource that `K` is served as.
    pub fn of<K: k8s_openapi::Resource>() -> Self {
        Self::new(K::GROUP, K::URL_PATH_SEGMENT)
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// An object's place within its resource. The namespace is empty for cluster-scoped objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self::new("", name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// An object anywhere in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    pub resource: ResourceName,
    pub key: Key,
}

/// One stored object.
pub struct Record {
    pub resource: ResourceName,
    pub key: Key,
    /// `group/version`, or `v1`.
    pub api_version: Cow<'static, str>,
    pub kind: Cow<'static, str>,
    pub meta: ObjectMeta,
    pub revision: Revision,
    /// The object as JSON without its type header and resourceVersion: what follows `"metadata":{`.
    body: Bytes,
    typed: OnceLock<Result<Arc<dyn Any + Send + Sync>, String>>,
}

/// What makes a [`Record`] impossible.
#[derive(Debug, thiserror::Error)]
#[error("{resource} {key} at revision {revision} does not decode")]
pub struct RecordError {
    resource: ResourceName,
    key: Key,
    revision: Revision,
    #[source]
    source: serde_json::Error,
}

#[derive(Deserialize)]
struct MetaOnly {
    metadata: ObjectMeta,
}

impl Record {
    /// Reads a stored body: JSON that begins right after `"metadata":{`.
    pub fn parse(
        resource: ResourceName,
        key: Key,
        api_version: impl Into<Cow<'static, str>>,
        kind: impl Into<Cow<'static, str>>,
        revision: Revision,
        body: Bytes,
    ) -> Result<Self, RecordError> {
        match serde_json::from_slice::<MetaOnly>(&joined(&body)) {
            Ok(MetaOnly { mut metadata }) => {
                metadata.resource_version = Some(revision.to_string());
                Ok(Self { resource, key, api_version: api_version.into(), kind: kind.into(), meta: metadata, revision, body, typed: OnceLock::new() })
            }
            Err(source) => Err(RecordError { resource, key, revision, source }),
        }
    }

    /// The typed struct, decoded once. `None` when the object does not decode as `T`; whoever stored it was not this API server.
    pub fn typed<T: DeserializeOwned + k8s_openapi::Metadata<Ty = ObjectMeta> + Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let typed = self.typed.get_or_init(|| {
            // k8s-openapi checks the type header of its top-level structs.
            let text = with_header(&self.api_version, &self.kind, &self.body);
            let mut object: T = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
            object.metadata_mut().resource_version = Some(self.revision.to_string());
            Ok(Arc::new(object))
        });
        typed.as_ref().ok().cloned()?.downcast::<T>().ok()
    }

    /// The whole object as JSON, with type header and resourceVersion.
    pub fn value(&self) -> serde_json::Value {
        let mut value: serde_json::Value = serde_json::from_slice(&with_header(&self.api_version, &self.kind, &self.body)).unwrap_or_default();
        if let Some(meta) = value.get_mut("metadata").and_then(|m| m.as_object_mut()) {
            meta.insert("resourceVersion".into(), self.revision.to_string().into());
        }
        value
    }

    pub fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    pub fn owners(&self) -> &[OwnerReference] {
        self.meta.owner_references.as_deref().unwrap_or_default()
    }

    pub fn deleting(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    pub fn finalizers(&self) -> &[String] {
        self.meta.finalizers.as_deref().unwrap_or_default()
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.meta.labels.as_ref()?.get(name).map(String::as_str)
    }

    pub fn reference(&self) -> ObjectRef {
        ObjectRef { resource: self.resource.clone(), key: self.key.clone() }
    }
}

fn joined(body: &[u8]) -> Vec<u8> {
    [b"{\"metadata\":{".as_slice(), body].concat()
}

fn with_header(api_version: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let mut text = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{").into_bytes();
    text.extend_from_slice(body);
    text
}

/// Every object of a cluster at one revision.
#[derive(Clone, Default)]
pub struct View {
    revision: Revision,
    tables: OrdMap<ResourceName, OrdMap<Key, Arc<Record>>>,
    by_uid: OrdMap<Arc<str>, ObjectRef>,
    by_owner: OrdMap<Arc<str>, OrdSet<ObjectRef>>,
    pods_on_node: OrdMap<Arc<str>, OrdSet<Key>>,
}

/// A change of one object; `new == None` is a deletion.
#[derive(Clone)]
pub struct ObjectChange {
    pub reference: ObjectRef,
    pub old: Option<Arc<Record>>,
    pub new: Option<Arc<Record>>,
}

const PODS: ResourceName = ResourceName::new("", "pods");

/// The one field that is indexed beside metadata: schedulers and node controllers ask for a node's pods all the time.
fn node_of(record: &Record) -> Option<Arc<str>> {
    if record.resource != PODS {
        return None;
    }
    let pod = record.typed::<k8s_openapi::api::core::v1::Pod>()?;
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty()).map(Arc::from)
}

impl View {
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Says that everything up to `revision` is in the view.
    pub fn advance(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Puts an object in, or takes it out, and answers what changed.
    pub fn apply(&mut self, reference: ObjectRef, new: Option<Arc<Record>>) -> ObjectChange {
        let table = self.tables.entry(reference.resource.clone()).or_default();
        let old = match &new {
            Some(record) => table.insert(reference.key.clone(), record.clone()),
            None => table.remove(&reference.key),
        };
        if let Some(old) = &old {
            self.unindex(&reference, old);
        }
        if let Some(new) = &new {
            self.index(&reference, new);
        }
        ObjectChange { reference, old, new }
    }

    fn index(&mut self, reference: &ObjectRef, record: &Record) {
        self.by_uid.insert(Arc::from(record.uid()), reference.clone());
        for owner in record.owners() {
            self.by_owner.entry(Arc::from(owner.uid.as_str())).or_default().insert(reference.clone());
        }
        if let Some(node) = node_of(record) {
            self.pods_on_node.entry(node).or_default().insert(reference.key.clone());
        }
    }

    fn unindex(&mut self, reference: &ObjectRef, record: &Record) {
        if self.by_uid.get(record.uid()) == Some(reference) {
            self.by_uid.remove(record.uid());
        }
        for owner in record.owners() {
            take(&mut self.by_owner, &owner.uid, reference);
        }
        if let Some(node) = node_of(record) {
            take(&mut self.pods_on_node, &node, &reference.key);
        }
    }

    pub fn record(&self, resource: &ResourceName, key: &Key) -> Option<&Arc<Record>> {
        self.tables.get(resource)?.get(key)
    }

    pub fn find(&self, reference: &ObjectRef) -> Option<&Arc<Record>> {
        self.record(&reference.resource, &reference.key)
    }

    /// The object that has this uid.
    pub fn by_uid(&self, uid: &str) -> Option<&Arc<Record>> {
        self.find(self.by_uid.get(uid)?)
    }

    /// All objects of a resource, ordered by namespace and name; of one namespace if given.
    pub fn records<'a>(&'a self, resource: &ResourceName, namespace: Option<&str>) -> Box<dyn Iterator<Item = &'a Arc<Record>> + 'a> {
        let Some(table) = self.tables.get(resource) else { return Box::new(std::iter::empty()) };
        match namespace {
            None => Box::new(table.values()),
            Some(namespace) => {
                let namespace: Arc<str> = Arc::from(namespace);
                let from = Key { namespace: namespace.clone(), name: Arc::from("") };
                Box::new(table.range(from..).map(|(_, record)| record).take_while(move |record| record.key.namespace == namespace))
            }
        }
    }

    /// The resources that hold at least one object or did before.
    pub fn resources(&self) -> impl Iterator<Item = &ResourceName> {
        self.tables.keys()
    }

    pub fn get<T>(&self, namespace: &str, name: &str) -> Option<Arc<T>>
    where
        T: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + Sync + 'static,
    {
        self.record(&ResourceName::of::<T>(), &Key::new(namespace, name))?.typed::<T>()
    }

    pub fn list<'a, T>(&'a self, namespace: Option<&str>) -> impl Iterator<Item = Arc<T>> + 'a
    where
        T: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + Sync + 'static,
    {
        self.records(&ResourceName::of::<T>(), namespace).filter_map(|record| record.typed::<T>())
    }

    /// Everything that names `uid` among its owners, of any resource.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.by_owner.get(uid).into_iter().flatten().filter_map(|reference| self.find(reference))
    }

    /// The `T`s that name `uid` among their owners.
    pub fn owned_by<'a, T>(&'a self, uid: &'a str) -> impl Iterator<Item = Arc<T>> + 'a
    where
        T: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + Sync + 'static,
    {
        let resource = ResourceName::of::<T>();
        self.dependents(uid).filter(move |record| record.resource == resource).filter_map(|record| record.typed::<T>())
    }

    /// Pods whose `spec.nodeName` is this node, in any phase.
    pub fn pods_on_node(&self, node: &str) -> impl Iterator<Item = Arc<k8s_openapi::api::core::v1::Pod>> {
        self.pods_on_node.get(node).into_iter().flatten().filter_map(|key| self.record(&PODS, key)?.typed())
    }
}

fn take<T: Ord + Clone>(index: &mut OrdMap<Arc<str>, OrdSet<T>>, under: &str, member: &T) {
    let under: Arc<str> = Arc::from(under);
    let Some(set) = index.get_mut(&under) else { return };
    set.remove(member);
    if set.is_empty() {
        index.remove(&under);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn pod(name: &str, node: &str, owner: &str, revision: Revision) -> Arc<Record> {
        let body = format!(
            "\"name\":\"{name}\",\"namespace\":\"a\",\"uid\":\"u-{name}\",\"ownerReferences\":[{{\"apiVersion\":\"v1\",\"kind\":\"X\",\"name\":\"x\",\"uid\":\"{owner}\"}}]}},\
             \"spec\":{{\"nodeName\":\"{node}\",\"containers\":[]}}}}"
        );
        Arc::new(Record::parse(PODS, Key::new("a", name), "v1", "Pod", revision, body.into()).unwrap())
    }

    #[test]
    fn indexes_follow_an_object_through_its_life() {
        let mut view = View::default();
        let first = pod("p", "n1", "o1", 5);
        let before = view.apply(first.reference(), Some(first.clone()));
        assert!(before.old.is_none());
        assert_eq!(view.pods_on_node("n1").count(), 1);
        assert_eq!(view.owned_by::<Pod>("o1").count(), 1);
        assert_eq!(view.by_uid("u-p").map(|r| r.revision), Some(5));

        let held = view.clone();
        let second = pod("p", "n2", "o2", 6);
        view.apply(second.reference(), Some(second));
        assert_eq!((view.pods_on_node("n1").count(), view.pods_on_node("n2").count()), (0, 1));
        assert_eq!((view.owned_by::<Pod>("o1").count(), view.owned_by::<Pod>("o2").count()), (0, 1));
        assert_eq!(held.pods_on_node("n1").count(), 1, "an older view does not move");

        view.apply(first.reference(), None);
        assert_eq!(view.pods_on_node("n2").count(), 0);
        assert!(view.by_uid("u-p").is_none());
        assert!(view.by_owner.is_empty() && view.pods_on_node.is_empty(), "no empty sets stay behind");
    }

    #[test]
    fn a_namespace_lists_only_itself() {
        let mut view = View::default();
        for (ns, name) in [("a", "x"), ("a", "y"), ("ab", "x"), ("b", "x")] {
            let body = format!("\"name\":\"{name}\",\"namespace\":\"{ns}\",\"uid\":\"{ns}{name}\"}}}}");
            let record = Record::parse(PODS, Key::new(ns, name), "v1", "Pod", 1, body.into()).unwrap();
            view.apply(record.reference(), Some(Arc::new(record)));
        }
        let names = |ns| view.records(&PODS, ns).map(|r| r.key.to_string()).collect::<Vec<_>>();
        assert_eq!(names(Some("a")), ["a/x", "a/y"]);
        assert_eq!(names(None).len(), 4);
    }

    #[test]
    fn typed_objects_carry_their_revision() {
        let record = pod("p", "n", "o", 42);
        let typed = record.typed::<Pod>().unwrap();
        assert_eq!(typed.metadata.resource_version.as_deref(), Some("42"));
        assert_eq!(record.value()["metadata"]["resourceVersion"], "42");
    }
}
