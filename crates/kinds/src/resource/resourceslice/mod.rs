//! ResourceSlice: devices that a driver has on one node or on several. A pool of devices is one or more slices of one generation.

mod device;
mod validate;

use k8s_openapi::api::resource::v1::ResourceSlice;

use super::GROUP;
use crate::prelude::*;

pub struct ResourceSliceKind;

impl TypedKind for ResourceSliceKind {
    type Object = ResourceSlice;

    const INFO: KindInfo = KindInfo { generation: true, ..KindInfo::cluster(GROUP, "v1", "ResourceSlice", "resourceslices", "resourceslice") };

    fn prepare_create(object: &mut ResourceSlice, cx: &RequestContext<'_>) -> Verdict {
        complete(object, cx);
        validate::slice(object, None).into()
    }

    fn prepare_update(new: &mut ResourceSlice, old: &ResourceSlice, cx: &RequestContext<'_>) -> Verdict {
        complete(new, cx);
        validate::slice(new, Some(old)).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Node", "The one node that has the devices."),
        table::text("Driver", "Whose devices they are."),
        table::text("Pool", "The pool that they belong to."),
        table::AGE,
    ];

    fn row(object: &ResourceSlice, now: Timestamp) -> Vec<Value> {
        let spec = &object.spec;
        let (node, driver, pool) = (text(&spec.node_name), spec.driver.as_str(), spec.pool.name.as_str());
        vec![table::name(&object.metadata), node.into(), driver.into(), pool.into(), table::age(&object.metadata, now)]
    }

    const SELECTABLE: &'static [&'static str] = &["spec.nodeName", "spec.driver"];

    fn selectable_fields(object: &ResourceSlice) -> Vec<(&'static str, String)> {
        vec![("spec.nodeName", text(&object.spec.node_name).to_owned()), ("spec.driver", object.spec.driver.clone())]
    }
}

/// Taints are dated from when they came. What upstream has behind gates that are off by default is dropped.
fn complete(object: &mut ResourceSlice, cx: &RequestContext<'_>) {
    for device in object.spec.devices.iter_mut().flatten() {
        for taint in device.taints.iter_mut().flatten().filter(|t| t.time_added.is_none()) {
            taint.time_added = validation::time(cx.now);
        }
        device.node_allocatable_resource_mappings = None;
        for attribute in device.attributes.iter_mut().flatten().map(|(_, attribute)| attribute) {
            (attribute.bools, attribute.ints, attribute.strings, attribute.versions) = (None, None, None, None);
        }
    }
}
