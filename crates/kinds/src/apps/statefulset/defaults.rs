//! Defaults of a StatefulSet.

use k8s_openapi::api::apps::v1::StatefulSet;

use crate::core::pod::defaults::or_text;
use crate::core::pod::template;

pub fn apply(object: &mut StatefulSet) {
    let spec = object.spec.get_or_insert_default();
    template::apply_defaults(&mut spec.template);
    or_text(&mut spec.pod_management_policy, "OrderedReady");
    let strategy = spec.update_strategy.get_or_insert_default();
    or_text(&mut strategy.type_, "RollingUpdate");
    if strategy.type_.as_deref() == Some("RollingUpdate") {
        strategy.rolling_update.get_or_insert_default().partition.get_or_insert(0);
    }
    let retention = spec.persistent_volume_claim_retention_policy.get_or_insert_default();
    or_text(&mut retention.when_deleted, "Retain");
    or_text(&mut retention.when_scaled, "Retain");
    spec.replicas.get_or_insert(1);
    spec.revision_history_limit.get_or_insert(10);
    for claim in spec.volume_claim_templates.iter_mut().flatten() {
        or_text(&mut claim.status.get_or_insert_default().phase, "Pending");
        or_text(&mut claim.spec.get_or_insert_default().volume_mode, "Filesystem");
    }
}
