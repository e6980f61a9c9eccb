//! The kinds that a cluster defines for itself.
//!
//! ```text
//! stored CustomResourceDefinitions --Derived--> one Resource for each served version --> routing, discovery, OpenAPI
//! ```
//!
//! The built-in catalogue is shared by all clusters of a process; this one belongs to one cluster's replica and follows the store, so a
//! definition is served on every replica as soon as that replica has applied it. A built-in group and version hides a custom one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};
use wheelhouse_kinds::apiextensions::customresource::{self, version_order};
use wheelhouse_meta::Status;
use wheelhouse_schema::openapi;

use crate::discovery;
use crate::request::Answer;
use crate::request::path::RequestInfo;
use crate::resource::{Resource, Route};
use crate::security::derived::Derived;

/// Where indexes of custom resources begin, far behind those of built-in ones.
const FIRST_INDEX: usize = 1 << 32;

/// What is served of one definition.
struct Definition {
    resources: Vec<Arc<Resource>>,
    /// `CustomResourceDefinition.metadata.deletionTimestamp` is set: its objects go, and no new ones come.
    terminating: bool,
}

/// Every definition that is served, by the name of the definition.
#[derive(Default)]
pub struct CustomResources {
    definitions: BTreeMap<String, Definition>,
    by_path: HashMap<(String, String, String), Arc<Resource>>,
    /// Resources get a new index whenever their definition changes, so that nothing cached under an old one is found again.
    made: usize,
    /// Made when first asked for after a change.
    openapi: parking_lot::Mutex<HashMap<String, Arc<openapi::Documents>>>,
}

impl Derived for CustomResources {
    const PREFIX: &'static str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

    fn put(&mut self, key: &str, object: Option<Value>) {
        self.delete(key);
        let Some(definition) = object.filter(is_established) else { return };
        let storage_index = FIRST_INDEX + self.made;
        let resources: Vec<Arc<Resource>> = customresource::entries(&definition)
            .iter()
            .map(|entry| {
                let index = FIRST_INDEX + self.made;
                self.made += 1;
                Arc::new(Resource::custom(index, storage_index, entry))
            })
            .collect();
        for resource in &resources {
            self.by_path.insert(path_of(resource), Arc::clone(resource));
        }
        let terminating = !definition["metadata"]["deletionTimestamp"].is_null();
        self.definitions.insert(key.to_owned(), Definition { resources, terminating });
    }

    fn delete(&mut self, key: &str) {
        self.openapi.get_mut().clear();
        let Some(gone) = self.definitions.remove(key) else { return };
        for resource in gone.resources {
            self.by_path.remove(&path_of(&resource));
        }
    }
}

fn path_of(resource: &Resource) -> (String, String, String) {
    (resource.entry.group.to_owned(), resource.entry.version.to_owned(), resource.info().plural.to_owned())
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

impl CustomResources {
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Every served version of a resource.
    pub fn versions(&self, group: &str, plural: &str) -> Vec<Arc<Resource>> {
        let named = self.definitions.get(&format!("{plural}.{group}"));
        named.map(|definition| definition.resources.clone()).unwrap_or_default()
    }

    /// `None` for a path that names no custom resource: upstream's mux answers those.
    pub fn route(&self, info: &RequestInfo, method: &http::Method) -> Option<Answer<Route>> {
        let resource = self.find(&info.group, &info.version, &info.resource)?;
        let definition = self.definitions.get(&format!("{}.{}", resource.info().plural, info.group))?;
        // Namespaced objects have namespaced paths, but for lists of all of them.
        let across = resource.namespaced() && !info.namespaced_path && info.parts.len() == 1;
        if info.namespaced_path != resource.namespaced() && !across {
            return None;
        }
        if info.parts.len() == 3 && resource.subresource(&info.subresource).is_none() {
            return Some(Err(Status::not_found(&resource.group_resource, info.path_name()).into()));
        }
        if definition.terminating && *method == http::Method::POST {
            let why = "create not allowed while custom resource definition is terminating";
            return Some(Err(Status { message: why.into(), ..Status::method_not_allowed() }.into()));
        }
        Some(Route::to(resource, info, method))
    }

    fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.definitions.values().flat_map(|definition| &definition.resources)
    }

    /// The groups by name, each with its versions, the preferred first, and their resources by name.
    fn groups(&self) -> BTreeMap<&'static str, Vec<(&'static str, Vec<&Resource>)>> {
        let mut groups: BTreeMap<&'static str, Vec<(&'static str, Vec<&Resource>)>> = BTreeMap::new();
        for resource in self.resources() {
            let versions = groups.entry(resource.entry.group).or_default();
            match versions.iter_mut().find(|(version, _)| *version == resource.entry.version) {
                Some((_, resources)) => resources.push(resource),
                None => versions.push((resource.entry.version, vec![resource])),
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|(version, _)| std::cmp::Reverse(version_order(version)));
            versions.iter_mut().for_each(|(_, resources)| resources.sort_by_key(|resource| resource.info().plural));
        }
        groups
    }

    /// The groups as `/apis` lists them.
    pub fn group_list(&self) -> Vec<Value> {
        self.groups().into_iter().map(|(group, versions)| describe(group, &versions)).collect()
    }

    /// The items of the aggregated document.
    pub fn aggregated(&self) -> Vec<Value> {
        let groups = self.groups();
        let items = groups.into_iter().map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|(version, resources)| {
                    let resources: Vec<Value> = resources.into_iter().map(discovery::aggregated::resource_of).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": {"name": group}, "versions": versions})
        });
        items.collect()
    }

    /// `/apis/<g>` and `/apis/<g>/<v>`.
    pub fn discovery(&self, path: &str) -> Option<Value> {
        let rest = path.strip_prefix("/apis/")?;
        let groups = self.groups();
        let (group, version) = rest.split_once('/').unwrap_or((rest, ""));
        let versions = groups.get(group)?;
        if version.is_empty() {
            let mut own = json!({"kind": "APIGroup", "apiVersion": "v1"});
            own.as_object_mut().into_iter().for_each(|fields| fields.extend(describe(group, versions).as_object().cloned().unwrap_or_default()));
            return Some(own);
        }
        let (_, resources) = versions.iter().find(|(v, _)| *v == version)?;
        Some(discovery::legacy::resource_list(resources.iter().copied(), group, version))
    }

    /// Paths of discovery, as `/` lists them.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for (group, versions) in self.groups() {
            paths.push(format!("/apis/{group}"));
            paths.extend(versions.iter().map(|(version, _)| format!("/apis/{group}/{version}")));
        }
        paths
    }

    /// The documents of the group that a path below `/openapi/v3/` is about.
    pub fn openapi(&self, path: &str) -> Option<Arc<openapi::Documents>> {
        let group = path.strip_prefix("apis/")?.split('/').next()?;
        let resources: Vec<openapi::Resource> =
            self.resources().filter(|resource| resource.entry.group == group).map(|resource| discovery::openapi_resource(resource)).collect();
        if resources.is_empty() {
            return None;
        }
        let mut made = self.openapi.lock();
        let documents = made.entry(group.to_owned()).or_insert_with(|| Arc::new(openapi::Documents::new(discovery::GIT_VERSION, resources)));
        Some(Arc::clone(documents))
    }

    /// The documents' entries in the index, by their paths below `/openapi/v3/`.
    pub fn openapi_index(&self) -> Vec<(String, Value)> {
        let mut index = Vec::new();
        for (group, versions) in self.groups() {
            let paths = versions.iter().map(|(version, _)| format!("apis/{group}/{version}")).chain([format!("apis/{group}")]);
            for path in paths {
                if let Some(hash) = self.openapi(&path).and_then(|documents| documents.v3_hash(&path).map(str::to_owned)) {
                    let address = format!("/openapi/v3/{path}?hash={hash}");
                    index.push((path, json!({ "serverRelativeURL": address })));
                }
            }
        }
        index
    }

    pub fn is_empty(&self) -> bool {
        self.definitions.is_empty()
    }
}

fn describe(group: &str, versions: &[(&str, Vec<&Resource>)]) -> Value {
    let versions: Vec<Value> =
        versions.iter().map(|(version, _)| json!({"groupVersion": format!("{group}/{version}"), "version": version})).collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}
