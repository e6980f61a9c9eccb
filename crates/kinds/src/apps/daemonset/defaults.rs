//! Defaults of a DaemonSet.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::core::pod::defaults::or_text;
use crate::core::pod::template;

pub fn apply(object: &mut DaemonSet) {
    let spec = object.spec.get_or_insert_default();
    template::apply_defaults(&mut spec.template);
    let strategy = spec.update_strategy.get_or_insert_default();
    or_text(&mut strategy.type_, "RollingUpdate");
    if strategy.type_.as_deref() == Some("RollingUpdate") {
        let rolling = strategy.rolling_update.get_or_insert_default();
        rolling.max_unavailable.get_or_insert(IntOrString::Int(1));
        rolling.max_surge.get_or_insert(IntOrString::Int(0));
    }
    spec.revision_history_limit.get_or_insert(10);
}
