//! CSINode: the storage drivers that run on a node. Each driver's registrar writes its own entry, which then stays as it is.

mod validate;

use k8s_openapi::api::storage::v1::CSINode;

use crate::prelude::*;

pub struct CSINodeKind;

impl TypedKind for CSINodeKind {
    type Object = CSINode;

    const INFO: KindInfo = KindInfo { unconditional_update: false, ..KindInfo::cluster("storage.k8s.io", "v1", "CSINode", "csinodes", "csinode") };

    fn prepare_create(object: &mut CSINode, _: &RequestContext<'_>) -> Verdict {
        validate::create(object).into()
    }

    fn prepare_update(new: &mut CSINode, old: &CSINode, _: &RequestContext<'_>) -> Verdict {
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::integer("Drivers", "How many drivers run on the node."), table::AGE];

    fn row(object: &CSINode, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), object.spec.drivers.len().into(), table::age(&object.metadata, now)]
    }
}
