//! Which resources a cluster stores, custom ones included, and under which version they are reached.
//!
//! The built-in ones are known from the start. Whoever follows the cluster's state ([`Resources::define`]) tells of the custom ones, and everybody
//! who holds a clone of the `Arc` knows them from then on.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;
use wheelhouse_kinds::kind::Scope;
use wheelhouse_kinds::registry::Registry;
use wheelhouse_kinds::view::ResourceName;

/// A stored resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub kind: String,
    /// What objects are stored as: `v1`.
    pub stored_version: String,
    /// What objects are asked for as; the stored one for built-in kinds, and for custom ones if it is served.
    pub version: String,
    pub namespaced: bool,
}

pub struct Resources {
    registry: Arc<Registry>,
    custom: RwLock<BTreeMap<ResourceName, Place>>,
}

impl Resources {
    pub fn new(registry: Arc<Registry>) -> Arc<Self> {
        Arc::new(Self { registry, custom: RwLock::default() })
    }

    pub fn find(&self, resource: &ResourceName) -> Option<Place> {
        if let Some(entry) = self.registry.stored(&resource.group, &resource.plural) {
            let info = entry.info();
            let version = info.version.to_owned();
            let namespaced = info.scope == Scope::Namespaced;
            return Some(Place { kind: info.kind.to_owned(), stored_version: version.clone(), version, namespaced });
        }
        self.custom.read().unwrap_or_else(PoisonError::into_inner).get(resource).cloned()
    }

    /// The resource's name with its parts borrowed for ever where it is built in.
    pub fn name(&self, group: &str, plural: &str) -> Option<ResourceName> {
        if let Some(entry) = self.registry.stored(group, plural) {
            return Some(ResourceName::new(entry.info().group, entry.info().plural));
        }
        let custom = ResourceName { group: group.to_owned().into(), plural: plural.to_owned().into() };
        self.custom.read().unwrap_or_else(PoisonError::into_inner).contains_key(&custom).then_some(custom)
    }

    /// Takes in a CustomResourceDefinition as it is now stored. Names that were never accepted have no objects.
    pub fn define(&self, definition: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (spec, names) = (&definition["spec"], &definition["status"]["acceptedNames"]);
        let versions = || spec["versions"].as_array().into_iter().flatten();
        let Some(stored) = versions().find(|v| v["storage"] == true) else { return };
        let served = if stored["served"] == true { Some(stored) } else { versions().find(|v| v["served"] == true) };
        if names["kind"].as_str().is_none_or(str::is_empty) {
            return;
        }
        let place = Place {
            kind: text(&names["kind"]),
            stored_version: text(&stored["name"]),
            version: text(&served.unwrap_or(stored)["name"]),
            namespaced: spec["scope"] == "Namespaced",
        };
        let resource = ResourceName { group: text(&spec["group"]).into(), plural: text(&names["plural"]).into() };
        self.custom.write().unwrap_or_else(PoisonError::into_inner).insert(resource, place);
    }

    /// Forgets a definition by its name, `things.example.com`.
    pub fn forget(&self, definition: &str) {
        let Some((plural, group)) = definition.split_once('.') else { return };
        let resource = ResourceName { group: group.to_owned().into(), plural: plural.to_owned().into() };
        self.custom.write().unwrap_or_else(PoisonError::into_inner).remove(&resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use wheelhouse_kinds::registry::Profile;

    #[test]
    fn custom_resources_come_and_go() {
        let resources = Resources::new(Arc::new(Registry::new(Profile::Tenant)));
        let things = ResourceName::new("k.example.com", "things");
        let definition = |kind: &str| {
            json!({"spec": {"group": "k.example.com", "scope": "Cluster", "versions": [
                    {"name": "v1", "served": true, "storage": false}, {"name": "v2", "served": false, "storage": true}]},
                "status": {"acceptedNames": {"plural": "things", "kind": kind}}})
        };
        resources.define(&definition(""));
        assert_eq!(resources.find(&things), None, "its names are not accepted yet");
        resources.define(&definition("Thing"));
        let place = resources.find(&things).expect("defined");
        assert_eq!((place.version.as_str(), place.stored_version.as_str(), place.namespaced), ("v1", "v2", false));
        resources.forget("things.k.example.com");
        assert_eq!(resources.name("k.example.com", "things"), None);
        assert!(resources.name("", "pods").is_some());
    }
}
