//! CSIDriver: what a storage driver can do and needs. Its name is the driver's.
//!
//! The generation counts changes from nothing: a new object has none.

mod columns;
mod validate;

use k8s_openapi::api::storage::v1::CSIDriver;

use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub struct CSIDriverKind;

impl TypedKind for CSIDriverKind {
    type Object = CSIDriver;

    const INFO: KindInfo =
        KindInfo { unconditional_update: false, ..KindInfo::cluster("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "csidriver") };

    fn default(object: &mut CSIDriver) {
        let spec = &mut object.spec;
        spec.attach_required.get_or_insert(true);
        spec.pod_info_on_mount.get_or_insert(false);
        spec.storage_capacity.get_or_insert(false);
        spec.requires_republish.get_or_insert(false);
        spec.se_linux_mount.get_or_insert(false);
        or_text(&mut spec.fs_group_policy, "ReadWriteOnceWithFSType");
        if items(&spec.volume_lifecycle_modes).is_empty() {
            spec.volume_lifecycle_modes = Some(vec!["Persistent".to_owned()]);
        }
    }

    fn prepare_create(object: &mut CSIDriver, _: &RequestContext<'_>) -> Verdict {
        Verdict { errors: validate::create(object), warnings: warnings(object) }
    }

    fn prepare_update(new: &mut CSIDriver, old: &CSIDriver, _: &RequestContext<'_>) -> Verdict {
        if new.spec != old.spec {
            new.metadata.generation = Some(old.metadata.generation.unwrap_or(0) + 1);
        }
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &CSIDriver, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}

fn warnings(object: &CSIDriver) -> Vec<String> {
    if items(&object.spec.token_requests).is_empty() || object.spec.service_account_token_in_secrets.is_some() {
        return Vec::new();
    }
    let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
    vec![text.to_owned()]
}
