//! CSIStorageCapacity: how much a storage class can still give in one part of the topology. The driver writes it for the scheduler.

mod validate;

use k8s_openapi::api::storage::v1::CSIStorageCapacity;

use crate::prelude::*;

pub struct CSIStorageCapacityKind;

impl TypedKind for CSIStorageCapacityKind {
    type Object = CSIStorageCapacity;

    const INFO: KindInfo = KindInfo {
        unconditional_update: false,
        ..KindInfo::namespaced("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity")
    };

    fn prepare_create(object: &mut CSIStorageCapacity, _: &RequestContext<'_>) -> Verdict {
        validate::create(object).into()
    }

    fn prepare_update(new: &mut CSIStorageCapacity, old: &CSIStorageCapacity, _: &RequestContext<'_>) -> Verdict {
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("StorageClassName", "The class whose volumes it is about."),
        table::text("Capacity", "How much is left."),
        table::AGE,
    ];

    fn row(object: &CSIStorageCapacity, now: Timestamp) -> Vec<Value> {
        let capacity = object.capacity.as_ref().map(|c| c.0.as_str()).unwrap_or_default();
        vec![table::name(&object.metadata), object.storage_class_name.as_str().into(), capacity.into(), table::age(&object.metadata, now)]
    }
}
