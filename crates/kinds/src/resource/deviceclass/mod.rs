//! DeviceClass: a sort of device that claims can ask for.

use k8s_openapi::api::resource::v1::DeviceClass;

use super::{GROUP, claim, lists};
use crate::core::pod::validate::resources::is_extended;
use crate::prelude::*;

pub struct DeviceClassKind;

impl TypedKind for DeviceClassKind {
    type Object = DeviceClass;

    const INFO: KindInfo = KindInfo { generation: true, ..KindInfo::cluster(GROUP, "v1", "DeviceClass", "deviceclasses", "deviceclass") };

    fn prepare_create(object: &mut DeviceClass, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut DeviceClass, _: &DeviceClass, _: &RequestContext<'_>) -> Verdict {
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::AGE];

    fn row(object: &DeviceClass, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), table::age(&object.metadata, now)]
    }
}

fn validate(object: &DeviceClass) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = &object.spec;
    claim::selectors(items(&spec.selectors), &path.child("selectors"), &mut errors);
    let here = path.child("config");
    lists::list(items(&spec.config), claim::MAX_CONFIGURATIONS, &here, &mut errors, |one, path, errors| {
        claim::opaque(&one.opaque, &path.child("opaque"), errors);
    });
    if let Some(name) = spec.extended_resource_name.as_ref().filter(|n| !is_extended(n)) {
        errors.push(FieldError::invalid(&path.child("extendedResourceName"), name, "must be a valid extended resource name"));
    }
    errors
}
