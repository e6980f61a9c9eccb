//! What a CSIStorageCapacity must be.

use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use wheelhouse_meta::validation as names;

use crate::core::pod::validate::quantity;
use crate::prelude::*;

pub fn create(object: &CSIStorageCapacity) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(topology) = &object.node_topology {
        validation::label_selector(topology, &Path::new("nodeTopology"), &mut errors);
    }
    let class = &object.storage_class_name;
    validation::texts(names::dns1123_subdomain(class), class, &Path::new("storageClassName"), &mut errors);
    for (field, amount) in [("capacity", &object.capacity), ("maximumVolumeSize", &object.maximum_volume_size)] {
        if let Some(amount) = amount
            && quantity(amount).sign() < 0
        {
            errors.push(FieldError::invalid(&Path::new(field), &amount.0, "must be greater than or equal to 0"));
        }
    }
    errors
}

/// What was asked of the driver stays; only its answer changes.
pub fn update(new: &CSIStorageCapacity, old: &CSIStorageCapacity) -> ErrorList {
    let mut errors = create(new);
    if new.node_topology != old.node_topology {
        let shown = new.node_topology.as_ref().map_or(BadValue::Null, |t| validation::ordered(t, validation::LABEL_SELECTOR));
        errors.push(FieldError::immutable(&Path::new("nodeTopology"), shown));
    }
    if new.storage_class_name != old.storage_class_name {
        errors.push(FieldError::immutable(&Path::new("storageClassName"), &new.storage_class_name));
    }
    errors
}
