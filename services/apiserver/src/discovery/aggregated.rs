//! Aggregated discovery (`apidiscovery.k8s.io`, KEP-3352): every group in one document.

use serde_json::{Value, json};

use crate::resource::{Catalogue, Resource};

/// The items of `/api`.
pub fn core(catalogue: &Catalogue) -> Vec<Value> {
    groups_where(catalogue, |name| name.is_empty())
}

/// The items of `/apis`.
pub fn groups(catalogue: &Catalogue) -> Vec<Value> {
    groups_where(catalogue, |name| !name.is_empty())
}

fn groups_where(catalogue: &Catalogue, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let group = |group: wheelhouse_kinds::Group| {
        let versions: Vec<Value> = group.versions.iter().map(|(version, _)| version_of(catalogue, group.name, version)).collect();
        let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
        json!({"metadata": metadata, "versions": versions})
    };
    catalogue.registry.groups().into_iter().filter(|g| wanted(g.name)).map(group).collect()
}

fn version_of(catalogue: &Catalogue, group: &str, version: &str) -> Value {
    let mut resources: Vec<&Resource> =
        catalogue.resources().iter().map(AsRef::as_ref).filter(|r| r.entry.group == group && r.entry.version == version).collect();
    resources.sort_by_key(|r| r.info().plural);
    let resources: Vec<Value> = resources.into_iter().map(resource_of).collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

/// One resource with its subresources.
pub fn resource_of(resource: &Resource) -> Value {
    let info = resource.info();
    let texts = |verbs: &[wheelhouse_kinds::Verb]| -> Vec<&str> { verbs.iter().map(|verb| verb.as_str()).collect() };
    let mut value = json!({
        "resource": info.plural,
        "responseKind": {"group": "", "version": "", "kind": info.kind},
        "scope": if resource.namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": info.singular,
        "verbs": texts(info.verbs),
    });
    if !info.short_names.is_empty() {
        value["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        value["categories"] = json!(info.categories);
    }
    let mut subresources: Vec<_> = info.subresources.iter().collect();
    subresources.sort_by_key(|sub| sub.name);
    let subresources: Vec<Value> = subresources
        .into_iter()
        .map(|sub| {
            // A kind of the same group and version is named without them.
            let own = (resource.entry.group, resource.entry.version);
            let (group, version, kind) = sub.body.unwrap_or((own.0, own.1, info.kind));
            let (group, version) = if (group, version) == own { ("", "") } else { (group, version) };
            json!({"subresource": sub.name, "responseKind": {"group": group, "version": version, "kind": kind}, "verbs": texts(sub.verbs)})
        })
        .collect();
    if !subresources.is_empty() {
        value["subresources"] = subresources.into();
    }
    value
}
