//! Managed fields across the `scale` subresource.
//!
//! A Scale is a view of one number of its parent. Whoever owns that number in the parent owns `spec.replicas` of the Scale, and the other
//! way round: the entries are translated before a write to the subresource and back after it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::managed::{Managed, ManagedError, ManagerId, Operation, Owned};
use super::path::PathElement;
use super::set::Set;

const SCALE_VERSION: &str = "autoscaling/v1";
const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Where the parent keeps its number of replicas, by version: `("apps/v1", Some(&["spec", "replicas"]))`. `None` for a version without a
/// scale; managers of versions that are not listed are dropped.
pub type ReplicaPaths<'a> = &'a [(&'a str, Option<&'a [&'a str]>)];

fn path_of(paths: ReplicaPaths<'_>, version: &str) -> Option<Option<Vec<PathElement>>> {
    let (_, path) = paths.iter().find(|(v, _)| *v == version)?;
    Some(path.map(|p| p.iter().map(|name| PathElement::field(*name)).collect()))
}

/// The id under which the same manager goes in another version; applies carry none.
fn in_version(id: &ManagerId, version: &str) -> ManagerId {
    let api_version = if id.operation == Operation::Apply { String::new() } else { version.to_owned() };
    ManagerId { api_version, ..id.clone() }
}

/// The Scale's entries, out of its parent's.
pub fn managed_fields_of_scale(parent: &[Value], paths: ReplicaPaths<'_>) -> Result<Vec<Value>, ManagedError> {
    let managed = Managed::decode(parent)?;
    let mut scale = Managed::default();
    for (id, owned) in managed.iter() {
        if let Some(Some(path)) = path_of(paths, &owned.api_version)
            && owned.set.contains(&path)
        {
            let owned = Owned { set: Set::from_fields(&[&REPLICAS]), api_version: SCALE_VERSION.to_owned(), time: owned.time.clone() };
            scale.owners.insert(in_version(id, SCALE_VERSION), owned);
        }
    }
    Ok(scale.encode())
}

/// The parent's entries after a write to its Scale. `version` is the parent's; new owners get no time, as upstream has it.
pub fn managed_fields_of_parent(parent: &[Value], scale: &[Value], version: &str, paths: ReplicaPaths<'_>) -> Result<Vec<Value>, ManagedError> {
    let before = Managed::decode(parent)?;
    let mut scale: BTreeMap<ManagerId, Owned> = Managed::decode(scale)?.owners;
    let mut after = Managed::default();
    for (id, owned) in before.owners {
        let Some(path) = path_of(paths, &owned.api_version) else { continue };
        let Some(path) = path.filter(|p| owned.set.contains(p)) else {
            after.owners.insert(id, owned);
            continue;
        };
        if scale.remove(&in_version(&id, SCALE_VERSION)).is_some() {
            after.owners.insert(id, owned);
            continue;
        }
        let mut lost = Set::new();
        lost.insert(&path);
        let set = owned.set.difference(&lost);
        if !set.is_empty() {
            after.owners.insert(id, Owned { set, ..owned });
        }
    }
    let replicas: Vec<PathElement> = REPLICAS.iter().map(|name| PathElement::field(*name)).collect();
    for (id, owned) in scale {
        if let Some(Some(path)) = path_of(paths, version)
            && owned.set.contains(&replicas)
        {
            let mut set = Set::new();
            set.insert(&path);
            after.owners.insert(in_version(&id, version), Owned { set, api_version: version.to_owned(), time: None });
        }
    }
    Ok(after.encode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PATHS: ReplicaPaths<'static> = &[("apps/v1", Some(&["spec", "replicas"]))];

    fn entry(manager: &str, operation: &str, version: &str, subresource: Option<&str>, fields: Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields});
        if let Some(subresource) = subresource {
            entry["subresource"] = subresource.into();
        }
        entry
    }

    #[test]
    fn replicas_change_hands_through_the_scale() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let owner = entry("owner", "Apply", "apps/v1", None, json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}));
        let other = entry("other", "Update", "apps/v1", None, json!({"f:spec": {"f:paused": {}}}));
        let parent = [owner, other.clone()];
        let scale = managed_fields_of_scale(&parent, PATHS).unwrap();
        assert_eq!(scale, [entry("owner", "Apply", "autoscaling/v1", None, replicas.clone())]);

        let scaler = entry("scaler", "Update", "autoscaling/v1", Some("scale"), replicas.clone());
        let after = managed_fields_of_parent(&parent, &[scaler], "apps/v1", PATHS).unwrap();
        assert_eq!(
            after,
            [
                entry("owner", "Apply", "apps/v1", None, json!({"f:spec": {"f:paused": {}}})),
                other,
                entry("scaler", "Update", "apps/v1", Some("scale"), replicas),
            ]
        );
    }
}
