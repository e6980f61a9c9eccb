//! The unaggregated documents: versions, groups, and the resources of each group and version.

use serde_json::{Value, json};
use wheelhouse_kinds::Subresource;

use super::storage_version_hash;
use crate::config::{API_ADDRESS, API_PORT};
use crate::resource::{Catalogue, Resource};

/// Every document with its path.
pub fn documents(catalogue: &Catalogue) -> Vec<(String, Value)> {
    // The one address that clients inside any cluster reach it by.
    let address = json!({"clientCIDR": "0.0.0.0/0", "serverAddress": format!("{API_ADDRESS}:{API_PORT}")});
    let mut documents = vec![("/api".to_owned(), json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}))];
    let mut groups = Vec::new();
    for group in catalogue.registry.groups() {
        for (version, _) in &group.versions {
            let path = if group.name.is_empty() { format!("/api/{version}") } else { format!("/apis/{}/{version}", group.name) };
            documents.push((path, resources(catalogue, group.name, version)));
        }
        if !group.name.is_empty() {
            let described = describe(&group);
            let mut own = json!({"kind": "APIGroup", "apiVersion": "v1"});
            own.as_object_mut().into_iter().for_each(|fields| fields.extend(described.as_object().cloned().unwrap_or_default()));
            documents.push((format!("/apis/{}", group.name), own));
            groups.push(described);
        }
    }
    documents.push(("/apis".to_owned(), json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})));
    documents
}

fn describe(group: &wheelhouse_kinds::Group) -> Value {
    let version = |version: &str| json!({"groupVersion": format!("{}/{version}", group.name), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(|(v, _)| version(v)).collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

fn resources(catalogue: &Catalogue, group: &str, version: &str) -> Value {
    let here = catalogue.resources().iter().filter(|r| r.entry.group == group && r.entry.version == version);
    resource_list(here.map(AsRef::as_ref), group, version)
}

/// The list of one group and version's resources.
pub fn resource_list<'a>(here: impl Iterator<Item = &'a Resource>, group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    let mut custom = false;
    for resource in here {
        custom |= resource.is_custom();
        list.push((resource.info().plural.to_owned(), describe_resource(resource)));
        for sub in resource.info().subresources {
            list.push((format!("{}/{}", resource.info().plural, sub.name), describe_subresource(resource, sub)));
        }
    }
    // Subresources of custom resources come as the server knows them.
    if !custom {
        list.sort_by(|a, b| a.0.cmp(&b.0));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    // The core group's list has no apiVersion, for clients older than groups.
    let resources: Vec<Value> = list.into_iter().map(|(_, value)| value).collect();
    if group.is_empty() {
        json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources})
    } else {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
    }
}

fn describe_resource(resource: &Resource) -> Value {
    let info = resource.info();
    let verbs: Vec<&str> = info.verbs.iter().map(|verb| verb.as_str()).collect();
    let mut value = json!({
        "name": info.plural, "singularName": info.singular, "namespaced": resource.namespaced(), "kind": info.kind, "verbs": verbs,
    });
    if !info.short_names.is_empty() {
        value["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        value["categories"] = json!(info.categories);
    }
    if resource.is_stored() {
        value["storageVersionHash"] = storage_version_hash(resource).into();
    }
    value
}

fn describe_subresource(resource: &Resource, sub: &Subresource) -> Value {
    let info = resource.info();
    let verbs: Vec<&str> = sub.verbs.iter().map(|verb| verb.as_str()).collect();
    let kind = sub.body.map_or(info.kind, |(_, _, kind)| kind);
    let mut value = json!({
        "name": format!("{}/{}", info.plural, sub.name), "singularName": "", "namespaced": resource.namespaced(), "kind": kind, "verbs": verbs,
    });
    if let Some((group, version, _)) = sub.body.filter(|(group, version, _)| (*group, *version) != (resource.entry.group, resource.entry.version)) {
        value["group"] = group.into();
        value["version"] = version.into();
    }
    value
}
