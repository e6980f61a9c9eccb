//! Defaults of a HorizontalPodAutoscaler.

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler, MetricSpec, MetricTarget, ResourceMetricSource};

use crate::validation::items;

/// The CPU that pods should use of what they request, in percent.
const CPU_PERCENT: i32 = 80;

pub fn apply(object: &mut HorizontalPodAutoscaler) {
    let spec = &mut object.spec;
    spec.min_replicas.get_or_insert(1);
    if items(&spec.metrics).is_empty() {
        let target = MetricTarget { type_: "Utilization".to_owned(), average_utilization: Some(CPU_PERCENT), ..MetricTarget::default() };
        spec.metrics = Some(vec![MetricSpec {
            type_: "Resource".to_owned(),
            resource: Some(ResourceMetricSource { name: "cpu".to_owned(), target }),
            ..MetricSpec::default()
        }]);
    }
    if let Some(behavior) = spec.behavior.as_mut() {
        let up = behavior.scale_up.get_or_insert_default();
        up.stabilization_window_seconds.get_or_insert(0);
        rules(up, &[("Pods", 4), ("Percent", 100)]);
        rules(behavior.scale_down.get_or_insert_default(), &[("Percent", 100)]);
    }
}

/// Every 15 seconds the larger of the steps, unless said otherwise.
fn rules(rules: &mut HPAScalingRules, steps: &[(&str, i32)]) {
    rules.select_policy.get_or_insert_with(|| "Max".to_owned());
    if rules.policies.is_none() {
        let policy = |(type_, value): &(&str, i32)| HPAScalingPolicy { type_: (*type_).to_owned(), value: *value, period_seconds: 15 };
        rules.policies = Some(steps.iter().map(policy).collect());
    }
}
