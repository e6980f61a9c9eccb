//! RuntimeClass: how a node is to run a pod, and what that costs.

use k8s_openapi::api::node::v1::RuntimeClass;
use wheelhouse_meta::validation as names;

use crate::core::pod::validate::{resources, scheduling};
use crate::prelude::*;

pub struct RuntimeClassKind;

impl TypedKind for RuntimeClassKind {
    type Object = RuntimeClass;

    const INFO: KindInfo = KindInfo {
        create_on_update: true,
        unconditional_update: false,
        ..KindInfo::cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass")
    };

    fn prepare_create(object: &mut RuntimeClass, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut RuntimeClass, old: &RuntimeClass, _: &RequestContext<'_>) -> Verdict {
        let mut errors = ErrorList::new();
        if new.handler != old.handler {
            errors.push(FieldError::immutable(&Path::new("handler"), &new.handler));
        }
        errors.into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::text("Handler", ""), table::AGE];

    fn row(object: &RuntimeClass, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), object.handler.as_str().into(), table::age(&object.metadata, now)]
    }
}

fn validate(object: &RuntimeClass) -> ErrorList {
    let mut errors = ErrorList::new();
    validation::texts(names::dns1123_label(&object.handler), &object.handler, &Path::new("handler"), &mut errors);
    let path = Path::new("overhead");
    let path = path.child("podFixed");
    for (name, amount) in object.overhead.as_ref().and_then(|o| o.pod_fixed.as_ref()).into_iter().flatten() {
        let path = path.key(name);
        resources::container_resource_name(name, &path, &mut errors);
        resources::value_is_sound(name, amount, &path, &mut errors);
    }
    if let Some(scheduling) = &object.scheduling {
        let path = Path::new("scheduling");
        validation::labels(&scheduling.node_selector, &path.child("nodeSelector"), &mut errors);
        scheduling::tolerations(items(&scheduling.tolerations), &path.child("tolerations"), &mut errors);
    }
    errors
}
