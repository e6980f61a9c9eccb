//! ResourceClaim: devices that a pod asks for. What is asked never changes; the scheduler writes into the status what is given, and the
//! kubelet and drivers what became of it.

mod validate;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimStatus};

use super::{GROUP, claim};
use crate::prelude::*;

pub struct ResourceClaimKind;

pub const SPEC: &str = "io.k8s.api.resource.v1.ResourceClaimSpec";

impl TypedKind for ResourceClaimKind {
    type Object = ResourceClaim;

    const INFO: KindInfo =
        KindInfo { subresources: &[subresource::STATUS], ..KindInfo::namespaced(GROUP, "v1", "ResourceClaim", "resourceclaims", "resourceclaim") };

    fn default(object: &mut ResourceClaim) {
        claim::apply_defaults(object.spec.devices.get_or_insert_default());
    }

    fn prepare_create(object: &mut ResourceClaim, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(ResourceClaimStatus::default());
        let mut errors = ErrorList::new();
        let (devices, spec) = (object.spec.devices.clone().unwrap_or_default(), Path::new("spec"));
        claim::validate(&devices, &spec.child("devices"), &mut errors);
        errors.into()
    }

    fn prepare_update(new: &mut ResourceClaim, old: &ResourceClaim, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new, old).into();
        }
        new.status.clone_from(&old.status);
        let mut errors = ErrorList::new();
        if new.spec != old.spec {
            errors.push(FieldError::immutable(&Path::new("spec"), validation::untagged(&new.spec, SPEC)));
        }
        errors.into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::text("State", "What the claim has and who uses it."), table::AGE];

    fn row(object: &ResourceClaim, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), state(object).into(), table::age(&object.metadata, now)]
    }
}

fn state(object: &ResourceClaim) -> String {
    let is_deleted = object.metadata.deletion_timestamp.is_some();
    let status = object.status.clone().unwrap_or_default();
    let is_reserved = !items(&status.reserved_for).is_empty();
    let mut states = Vec::new();
    if is_deleted {
        states.push("deleted");
    }
    if status.allocation.is_some() {
        states.push("allocated");
        if is_reserved {
            states.push("reserved");
        }
    } else if !is_deleted {
        states.push("pending");
    }
    states.join(",")
}
