//! VolumeAttributesClass: a sort of volume that a claim can be changed to later. It never changes itself.

pub mod reconcile;

use k8s_openapi::api::storage::v1::VolumeAttributesClass;

use super::storageclass;
use crate::prelude::*;

pub struct VolumeAttributesClassKind;

impl TypedKind for VolumeAttributesClassKind {
    type Object = VolumeAttributesClass;

    const INFO: KindInfo = KindInfo {
        short_names: &["vac"],
        ..KindInfo::cluster("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass")
    };

    fn prepare_create(object: &mut VolumeAttributesClass, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut VolumeAttributesClass, old: &VolumeAttributesClass, _: &RequestContext<'_>) -> Verdict {
        let mut errors = validate(new);
        if new.driver_name != old.driver_name {
            errors.push(FieldError::forbidden(&Path::new("driverName"), "updates to driverName are forbidden."));
        }
        if !validation::same(&new.parameters, &old.parameters) {
            errors.push(FieldError::forbidden(&Path::new("parameters"), "updates to parameters are forbidden."));
        }
        errors.into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::text("DriverName", "The driver whose volumes it is for."), table::AGE];

    fn row(object: &VolumeAttributesClass, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), object.driver_name.as_str().into(), table::age(&object.metadata, now)]
    }
}

fn validate(object: &VolumeAttributesClass) -> ErrorList {
    let mut errors = ErrorList::new();
    storageclass::provisioner(&object.driver_name, &Path::new("driverName"), &mut errors);
    let (parameters, here) = (object.parameters.clone().unwrap_or_default(), Path::new("parameters"));
    if parameters.is_empty() {
        errors.push(FieldError::required(&here, "must contain at least one key/value pair"));
    }
    storageclass::parameters(&parameters, &here, &mut errors);
    errors
}
