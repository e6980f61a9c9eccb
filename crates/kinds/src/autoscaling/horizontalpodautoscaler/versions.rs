//! `autoscaling/v1`: one field for CPU, everything newer in annotations, as JSON in the shape of an older beta.

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use wheelhouse_schema::{catalog, normalise};

use crate::prelude::*;

pub const V1: OtherVersion = OtherVersion {
    group: "autoscaling",
    version: "v1",
    default: |object| {
        let measured = object["metadata"]["annotations"].get(METRICS).is_some();
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.entry("minReplicas").or_insert_with(|| 1.into());
            if !measured {
                spec.entry("targetCPUUtilizationPercentage").or_insert_with(|| CPU_PERCENT.into());
            }
        }
    },
    to_stored,
    from_stored,
    selectable: &[],
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The CPU that pods should use where nothing at all is said, in percent.
const CPU_PERCENT: i32 = 80;

/// A measure in the older shape, wanted or current. Fields stand in Go's order, since they are written as text.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metric<S> {
    #[serde(rename = "type")]
    type_: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<S>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<S>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<S>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_resource: Option<S>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external: Option<S>,
}

/// All that the older sources have, of which each uses a part.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_selector: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_average_utilization: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_average_utilization: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_average_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_average_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    average_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
}

/// The fields of a metric that hold a source.
const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

impl<S> Metric<S> {
    fn slot(&mut self, field: &str) -> &mut Option<S> {
        match field {
            "object" => &mut self.object,
            "pods" => &mut self.pods,
            "resource" => &mut self.resource,
            "containerResource" => &mut self.container_resource,
            _ => &mut self.external,
        }
    }
}

/// From the older shape to the stored one. `goal` is `target` for what is wanted and `current` for what is.
fn newer(mut metric: Metric<Source>, goal: &str) -> Value {
    let mut out = json!({"type": metric.type_});
    for field in SOURCES {
        let Some(source) = metric.slot(field).take() else { continue };
        let mut new = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                new.insert(key.to_owned(), value);
            }
        };
        put("name", source.name.map(Value::from));
        put("container", source.container.map(Value::from));
        put("describedObject", source.target);
        put("metric", source.metric_name.map(|name| json!({"name": name, "selector": source.selector.or(source.metric_selector)})));
        let average = source.target_average_value.or(source.current_average_value).or(source.average_value);
        let utilization = source.target_average_utilization.or(source.current_average_utilization);
        let whole = source.target_value.or(source.current_value).filter(|_| field != "object" || average.is_none());
        let mut amounts = json!({"value": whole, "averageValue": average, "averageUtilization": utilization});
        if goal == "target" {
            let type_ = if utilization.is_some() {
                "Utilization"
            } else if average.is_some() {
                "AverageValue"
            } else {
                "Value"
            };
            amounts["type"] = type_.into();
        }
        put(goal, Some(amounts));
        out[field] = new.into();
    }
    out
}

/// From the stored shape to the older one.
fn older(metric: &Value, goal: &str) -> Metric<Source> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let number = |value: &Value| value.as_i64().and_then(|n| i32::try_from(n).ok());
    let mut out = Metric {
        type_: text(&metric["type"]).unwrap_or_default(),
        object: None,
        pods: None,
        resource: None,
        container_resource: None,
        external: None,
    };
    for field in SOURCES {
        let Some(source) = metric.get(field).filter(|s| s.is_object()) else { continue };
        let amounts = &source[goal];
        let (whole, average, utilization) = (text(&amounts["value"]), text(&amounts["averageValue"]), number(&amounts["averageUtilization"]));
        let mut old = Source {
            target: source.get("describedObject").cloned(),
            name: text(&source["name"]),
            metric_name: text(&source["metric"]["name"]),
            container: text(&source["container"]),
            ..Source::default()
        };
        let selector = source["metric"].get("selector").filter(|s| !s.is_null()).cloned();
        if field == "external" {
            old.metric_selector = selector
        } else {
            old.selector = selector
        }
        // An object's whole value must be there, and its average has a field of its own.
        let whole = if field == "object" { Some(whole.unwrap_or_else(|| "0".to_owned())) } else { whole };
        let average = if field == "object" { (None, average) } else { (average, None) };
        old.average_value = average.1;
        if goal == "target" {
            (old.target_value, old.target_average_value, old.target_average_utilization) = (whole, average.0, utilization);
        } else {
            (old.current_value, old.current_average_value, old.current_average_utilization) = (whole, average.0, utilization);
        }
        *out.slot(field) = Some(old);
    }
    out
}

/// Whether the measure is the one that the older version has a field for.
fn is_cpu_share(metric: &Value, goal: &str) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu" && metric["resource"][goal]["averageUtilization"].is_number()
}

fn cpu(percent: &Value, goal: &str) -> Value {
    let mut amounts = json!({"averageUtilization": percent});
    if goal == "target" {
        amounts["type"] = "Utilization".into();
    }
    json!({"type": "Resource", "resource": {"name": "cpu", goal: amounts}})
}

fn settle(object: &mut Value, version: &str) {
    object["apiVersion"] = format!("autoscaling/{version}").into();
    if let Some(kind) = catalog().kind("autoscaling", version, "HorizontalPodAutoscaler") {
        normalise(object, &kind.schema);
    }
}

fn to_stored(object: &mut Value) {
    // A text that does not parse is ignored, as upstream does.
    let mut take = |name: &str| -> Option<String> {
        let annotations = object["metadata"].get_mut("annotations")?.as_object_mut()?;
        annotations.remove(name).and_then(|v| v.as_str().map(str::to_owned))
    };
    let metrics = |text: Option<String>, goal: &str| -> Vec<Value> {
        let parsed: Vec<Metric<Source>> = text.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default();
        parsed.into_iter().map(|m| newer(m, goal)).collect()
    };
    let (mut wanted, mut current) = (metrics(take(METRICS), "target"), metrics(take(CURRENT_METRICS), "current"));
    let conditions: Option<Value> = take(CONDITIONS).and_then(|t| serde_json::from_str(&t).ok());
    let behavior: Option<Value> = take(BEHAVIOR).and_then(|t| serde_json::from_str(&t).ok());
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        match spec.remove("targetCPUUtilizationPercentage").filter(|v| !v.is_null()) {
            Some(percent) => wanted.push(cpu(&percent, "target")),
            None if wanted.is_empty() => wanted.push(cpu(&CPU_PERCENT.into(), "target")),
            None => {}
        }
        spec.insert("metrics".to_owned(), wanted.into());
        behavior.and_then(|b| spec.insert("behavior".to_owned(), b));
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        if let Some(percent) = status.remove("currentCPUUtilizationPercentage").filter(|v| !v.is_null()) {
            current.push(cpu(&percent, "current"));
        }
        status.insert("currentMetrics".to_owned(), current.into());
        conditions.and_then(|c| status.insert("conditions".to_owned(), c));
    }
    settle(object, "v2");
}

fn from_stored(object: &mut Value) {
    let mut annotations: Vec<(&str, String)> = Vec::new();
    let mut split = |parent: &mut Value, list: &str, field: &str, annotation: &'static str, goal: &str| {
        let Some(fields) = parent.as_object_mut() else { return };
        let all = fields.remove(list).and_then(|v| v.as_array().cloned()).unwrap_or_default();
        let (shares, others): (Vec<Value>, Vec<Value>) = all.into_iter().partition(|m| is_cpu_share(m, goal));
        if let Some(share) = shares.first() {
            fields.insert(field.to_owned(), share["resource"][goal]["averageUtilization"].clone());
        }
        let others: Vec<Metric<Source>> = others.iter().map(|m| older(m, goal)).collect();
        if !others.is_empty()
            && let Ok(text) = serde_json::to_string(&others)
        {
            annotations.push((annotation, text));
        }
    };
    if let Some(spec) = object.get_mut("spec") {
        split(spec, "metrics", "targetCPUUtilizationPercentage", METRICS, "target");
    }
    if let Some(status) = object.get_mut("status") {
        split(status, "currentMetrics", "currentCPUUtilizationPercentage", CURRENT_METRICS, "current");
    }
    for (parent, field, annotation, definition) in [
        ("spec", "behavior", BEHAVIOR, "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior"),
        ("status", "conditions", CONDITIONS, "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerCondition"),
    ] {
        let taken = object.get_mut(parent).and_then(Value::as_object_mut).and_then(|p| p.remove(field));
        let text = match taken {
            Some(Value::Array(list)) if !list.is_empty() => {
                let list: Vec<String> = list.iter().map(|i| crate::internal::tagged(i, definition)).collect();
                format!("[{}]", list.join(","))
            }
            Some(value @ Value::Object(_)) => crate::internal::tagged(&value, definition),
            _ => continue,
        };
        annotations.push((annotation, text));
    }
    if !annotations.is_empty()
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        let all = metadata.entry("annotations").or_insert_with(|| json!({}));
        for (name, text) in annotations {
            all[name] = text.into();
        }
    }
    settle(object, "v1");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_older_version_lacks_survives_the_way_there_and_back() {
        let mut object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": {
            "maxReplicas": 9, "minReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                {"type": "External", "external": {"metric": {"name": "e", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "3"}}},
                {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "q"}, "target": {"type": "Value", "value": "5"}}},
            ],
            "behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}, "status": {"desiredReplicas": 1}});
        settle(&mut object, "v2");
        let stored = object.clone();
        from_stored(&mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(object["metadata"]["annotations"][BEHAVIOR], "{\"scaleDown\":{\"selectPolicy\":\"Disabled\"}}");
        to_stored(&mut object);
        // The field for CPU comes last again.
        let mut expected = stored;
        expected["spec"]["metrics"].as_array_mut().expect("metrics").rotate_left(1);
        expected["metadata"]["annotations"] = json!({});
        settle(&mut expected, "v2");
        assert_eq!(object, expected);
    }
}
