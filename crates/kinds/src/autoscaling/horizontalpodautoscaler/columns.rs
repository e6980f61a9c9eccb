//! `kubectl get horizontalpodautoscalers`.

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus};

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Reference", "What it scales."),
    table::text("Targets", "Each measure as it is and as it should be."),
    table::text("MinPods", "The lower bound."),
    table::text("MaxPods", "The upper bound."),
    table::text("Replicas", "How many pods there are."),
    table::AGE,
];

/// How many measures are shown; the rest is counted.
const SHOWN: usize = 2;
const UNKNOWN: &str = "<unknown>";

pub fn row(object: &HorizontalPodAutoscaler, now: Timestamp) -> Vec<Value> {
    let spec = &object.spec;
    let status = object.status.clone().unwrap_or_default();
    let target = &spec.scale_target_ref;
    vec![
        table::name(&object.metadata),
        format!("{}/{}", target.kind, target.name).into(),
        targets(items(&spec.metrics), items(&status.current_metrics)).into(),
        spec.min_replicas.map_or_else(|| "<unset>".to_owned(), |min| min.to_string()).into(),
        spec.max_replicas.into(),
        status.current_replicas.unwrap_or_default().into(),
        table::age(&object.metadata, now),
    ]
}

fn targets(metrics: &[MetricSpec], current: &[MetricStatus]) -> String {
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> = metrics.iter().take(SHOWN).enumerate().map(|(at, metric)| one(metric, current.get(at))).collect();
    let more = metrics.len().saturating_sub(SHOWN);
    if more == 0 { shown.join(", ") } else { format!("{} + {more} more...", shown.join(", ")) }
}

fn one(metric: &MetricSpec, current: Option<&MetricStatus>) -> String {
    let values = |target: &MetricTarget, now: Option<&MetricValueStatus>| -> String {
        if let Some(goal) = &target.average_value {
            let now = now.and_then(|n| n.average_value.as_ref()).map_or(UNKNOWN, |v| v.0.as_str());
            return format!("{now}/{}", goal.0);
        }
        let now = now.and_then(|n| n.value.as_ref()).map_or(UNKNOWN, |v| v.0.as_str());
        format!("{now}/{}", target.value.as_ref().map_or("<auto>", |v| v.0.as_str()))
    };
    let resource = |name: &str, target: &MetricTarget, now: Option<&MetricValueStatus>| -> String {
        if target.average_value.is_some() {
            return format!("{name}: {}", values(target, now));
        }
        let now = now.and_then(|n| n.average_utilization).map_or_else(|| UNKNOWN.to_owned(), |p| format!("{p}%"));
        let goal = target.average_utilization.map_or_else(|| "<auto>".to_owned(), |p| format!("{p}%"));
        format!("{name}: {now}/{goal}")
    };
    // A per-pod goal of an object or an external measure is told from a goal of the whole.
    let average = |target: &MetricTarget, text: String| if target.average_value.is_some() { format!("{text} (avg)") } else { text };
    if let Some(pods) = &metric.pods {
        values(&pods.target, current.and_then(|c| c.pods.as_ref()).map(|c| &c.current))
    } else if let Some(object) = &metric.object {
        let text = values(&object.target, current.and_then(|c| c.object.as_ref()).map(|c| &c.current));
        average(&object.target, text)
    } else if let Some(external) = &metric.external {
        let text = values(&external.target, current.and_then(|c| c.external.as_ref()).map(|c| &c.current));
        average(&external.target, text)
    } else if let Some(source) = &metric.resource {
        resource(&source.name, &source.target, current.and_then(|c| c.resource.as_ref()).map(|c| &c.current))
    } else if let Some(source) = &metric.container_resource {
        resource(&source.name, &source.target, current.and_then(|c| c.container_resource.as_ref()).map(|c| &c.current))
    } else {
        UNKNOWN.to_owned()
    }
}
