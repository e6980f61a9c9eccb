//! VolumeAttachment: a volume that is to be on a node. The driver's attacher says in the status whether it is.

mod validate;

use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentStatus};

use crate::prelude::*;

pub struct VolumeAttachmentKind;

impl TypedKind for VolumeAttachmentKind {
    type Object = VolumeAttachment;

    const INFO: KindInfo = KindInfo {
        subresources: &[subresource::STATUS],
        unconditional_update: false,
        ..KindInfo::cluster("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", "volumeattachment")
    };

    fn prepare_create(object: &mut VolumeAttachment, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(VolumeAttachmentStatus::default());
        validate::create(object).into()
    }

    fn prepare_update(new: &mut VolumeAttachment, old: &VolumeAttachment, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        Column { format: "name", ..table::text("Attacher", "The driver that attaches the volume.") },
        table::text("PV", "The persistent volume."),
        table::text("Node", "Where the volume is to be."),
        table::boolean("Attached", "Whether it is there."),
        table::AGE,
    ];

    fn row(object: &VolumeAttachment, now: Timestamp) -> Vec<Value> {
        vec![
            table::name(&object.metadata),
            object.spec.attacher.as_str().into(),
            text(&object.spec.source.persistent_volume_name).into(),
            object.spec.node_name.as_str().into(),
            object.status.as_ref().is_some_and(|s| s.attached).into(),
            table::age(&object.metadata, now),
        ]
    }
}
