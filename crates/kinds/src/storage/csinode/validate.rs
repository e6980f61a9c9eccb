//! What a CSINode must be.

use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver};
use wheelhouse_meta::validation as names;

use crate::core::pod::validate::volumes::csi_driver_name;
use crate::prelude::*;

const DRIVER: &str = "io.k8s.api.storage.v1.CSINodeDriver";

/// A driver's own name of the node, in bytes.
const MAX_NODE_ID: usize = 192;

pub fn create(object: &CSINode) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    let path = spec.child("drivers");
    let drivers = &object.spec.drivers;
    for (at, entry) in drivers.iter().enumerate() {
        let path = path.index(at);
        driver(entry, &path, &mut errors);
        if drivers[..at].iter().any(|d| d.name == entry.name) {
            errors.push(FieldError::duplicate(&path.child("name"), &entry.name));
        }
        topology_keys(items(&entry.topology_keys), &path, &mut errors);
    }
    errors
}

fn driver(driver: &CSINodeDriver, path: &Path<'_>, errors: &mut ErrorList) {
    csi_driver_name(&driver.name, &path.child("name"), errors);
    let here = path.child("nodeID");
    if driver.node_id.is_empty() {
        errors.push(FieldError::required(&here, ""));
    } else if driver.node_id.len() > MAX_NODE_ID {
        errors.push(FieldError::invalid(&here, &driver.node_id, format!("must be {MAX_NODE_ID} characters or less")));
    }
    if let Some(count) = driver.allocatable.as_ref().and_then(|a| a.count) {
        errors.extend(names::nonnegative(i64::from(count), &path.child("allocatable")));
    }
}

fn topology_keys(keys: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, key) in keys.iter().enumerate() {
        if key.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        if keys[..at].contains(key) {
            errors.push(FieldError::duplicate(path, key));
        }
        errors.extend(names::qualified_name(key).into_iter().map(|why| FieldError::invalid(path, BadValue::typed(&keys), why)));
    }
}

/// A driver's entry is fixed, but for how many volumes it can take.
pub fn update(new: &CSINode, old: &CSINode) -> ErrorList {
    let mut errors = create(new);
    let fixed = |driver: &CSINodeDriver| CSINodeDriver { allocatable: None, ..driver.clone() };
    for before in &old.spec.drivers {
        for after in new.spec.drivers.iter().filter(|d| d.name == before.name && fixed(d) != fixed(before)) {
            errors.push(FieldError::immutable(&Path::new("CSINodeDriver"), validation::untagged(after, DRIVER)));
        }
    }
    errors
}
