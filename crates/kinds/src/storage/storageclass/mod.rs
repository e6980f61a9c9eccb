//! StorageClass: a sort of storage and who makes it.

mod validate;

use k8s_openapi::api::storage::v1::StorageClass;

use crate::prelude::*;

pub use validate::{parameters, provisioner};

pub struct StorageClassKind;

/// Marks the class of claims that name none.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

impl TypedKind for StorageClassKind {
    type Object = StorageClass;

    const INFO: KindInfo =
        KindInfo { short_names: &["sc"], ..KindInfo::cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses", "storageclass") };

    fn default(object: &mut StorageClass) {
        object.reclaim_policy.get_or_insert_with(|| "Delete".to_owned());
        object.volume_binding_mode.get_or_insert_with(|| "Immediate".to_owned());
    }

    fn prepare_create(object: &mut StorageClass, _: &RequestContext<'_>) -> Verdict {
        validate::create(object).into()
    }

    fn prepare_update(new: &mut StorageClass, old: &StorageClass, _: &RequestContext<'_>) -> Verdict {
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Provisioner", "Who makes its volumes."),
        table::text("ReclaimPolicy", "What becomes of a volume when its claim is gone."),
        table::text("VolumeBindingMode", "When a volume is made."),
        table::text("AllowVolumeExpansion", "Whether volumes may grow."),
        table::AGE,
    ];

    fn row(object: &StorageClass, now: Timestamp) -> Vec<Value> {
        let is_default = object.metadata.annotations.as_ref().and_then(|a| a.get(IS_DEFAULT)).is_some_and(|v| v == "true");
        let name = text(&object.metadata.name);
        vec![
            if is_default { format!("{name} (default)").into() } else { name.into() },
            object.provisioner.as_str().into(),
            object.reclaim_policy.as_deref().unwrap_or("Delete").into(),
            object.volume_binding_mode.as_deref().unwrap_or("<unset>").into(),
            object.allow_volume_expansion.unwrap_or_default().into(),
            table::age(&object.metadata, now),
        ]
    }
}
