//! Defaults of a Deployment.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::core::pod::defaults::or_text;
use crate::core::pod::template;

pub fn apply(object: &mut Deployment) {
    let spec = object.spec.get_or_insert_default();
    template::apply_defaults(&mut spec.template);
    spec.replicas.get_or_insert(1);
    let strategy = spec.strategy.get_or_insert_default();
    or_text(&mut strategy.type_, "RollingUpdate");
    if strategy.type_.as_deref() == Some("RollingUpdate") {
        let rolling = strategy.rolling_update.get_or_insert_default();
        rolling.max_unavailable.get_or_insert_with(quarter);
        rolling.max_surge.get_or_insert_with(quarter);
    }
    spec.revision_history_limit.get_or_insert(10);
    spec.progress_deadline_seconds.get_or_insert(600);
}

fn quarter() -> IntOrString {
    IntOrString::String("25%".to_owned())
}
