//! The downward API: a pod's own fields and resources as text.

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector};
use wheelhouse_meta::Quantity;

use super::{ConfigError, NodeFacts, meta};
use crate::lifecycle::find;

/// The text of a field; `ips` are the pod's.
pub fn field(pod: &Pod, node: &NodeFacts, ips: &[String], selector: &ObjectFieldSelector) -> Result<String, ConfigError> {
    let path = selector.field_path.as_str();
    let spec = pod.spec.as_ref();
    let join = |list: Vec<String>| list.join(",");
    let host_ips: Vec<String> = node.ips.iter().map(ToString::to_string).collect();
    if let Some((map, key)) = subscript(path) {
        let map = if map == "metadata.labels" { &pod.metadata.labels } else { &pod.metadata.annotations };
        return Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => meta(&pod.metadata.name).to_owned(),
        "metadata.namespace" => meta(&pod.metadata.namespace).to_owned(),
        "metadata.uid" => meta(&pod.metadata.uid).to_owned(),
        "metadata.labels" => lines(&pod.metadata.labels),
        "metadata.annotations" => lines(&pod.metadata.annotations),
        "spec.nodeName" => node.name.clone(),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" => host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => join(host_ips),
        "status.podIP" => ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => join(ips.to_vec()),
        other => return Err(ConfigError(format!("unsupported fieldPath: {other}"))),
    })
}

/// `metadata.labels['key']` in its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    let key = rest.strip_suffix("']")?;
    matches!(map, "metadata.labels" | "metadata.annotations").then_some((map, key))
}

/// `key="value"` lines in key order, escaped as Go's `%q`.
fn lines(map: &Option<std::collections::BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map.iter().flatten().map(|(key, value)| format!("{key}={}", wheelhouse_meta::gotext::quote(value))).collect();
    lines.join("\n")
}

/// The text of a resource, divided and rounded up. A limit that is not set is what the node could give.
pub fn resource(pod: &Pod, node: &NodeFacts, own: Option<&Container>, selector: &ResourceFieldSelector) -> Result<String, ConfigError> {
    let named = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let container = match named {
        Some(name) => pod.spec.as_ref().and_then(|spec| find(spec, name)).map(|(container, _)| container),
        None => own.cloned(),
    };
    let container = container.ok_or_else(|| ConfigError(format!("container {} not found", named.unwrap_or_default())))?;
    let (list, name) = selector.resource.split_once('.').unwrap_or((&selector.resource, ""));
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|r| r.limits.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let map = if list == "limits" { limits } else { requests };
    let set = map.and_then(|map| map.get(name)).and_then(|quantity| Quantity::parse(&quantity.0).ok());
    let divisor = selector.divisor.as_ref().and_then(|divisor| Quantity::parse(&divisor.0).ok()).filter(|divisor| !divisor.is_zero());
    if name == "cpu" {
        let milli = set.map_or(if list == "limits" { node.allocatable_cpu_milli } else { 0 }, |quantity| quantity.milli_value());
        let by = divisor.map_or(1000, |divisor| divisor.milli_value().max(1));
        return Ok(divide_up(milli, by).to_string());
    }
    let fallback = if list == "limits" && name == "memory" { node.allocatable_memory } else { 0 };
    let value = set.map_or(fallback, |quantity| quantity.value());
    let by = divisor.map_or(1, |divisor| divisor.value().max(1));
    Ok(divide_up(value, by).to_string())
}

fn divide_up(value: i64, by: i64) -> i64 {
    value / by + i64::from(value % by > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"a": "1", "b": "x\"y"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}}]}}))
        .unwrap()
    }

    #[test]
    fn fields_and_resources_read_as_upstreams() {
        let node = NodeFacts { allocatable_cpu_milli: 2000, allocatable_memory: 1 << 30, ..NodeFacts::default() };
        let field = |path: &str| {
            field(&pod(), &node, &["10.0.0.1".into(), "fd00::1".into()], &ObjectFieldSelector { field_path: path.into(), api_version: None })
        };
        assert_eq!(field("metadata.labels").unwrap(), "a=\"1\"\nb=\"x\\\"y\"");
        assert_eq!(field("metadata.labels['a']").unwrap(), "1");
        assert_eq!(field("status.podIPs").unwrap(), "10.0.0.1,fd00::1");
        assert!(field("spec.unknown").is_err());
        let pod = pod();
        let resource = |name: &str, divisor: Option<&str>| {
            let divisor = divisor.map(|d| k8s_openapi::apimachinery::pkg::api::resource::Quantity(d.into()));
            let selector = ResourceFieldSelector { container_name: Some("c".into()), divisor, resource: name.into() };
            resource(&pod, &node, None, &selector).unwrap()
        };
        assert_eq!(resource("limits.cpu", None), "2", "rounded up");
        assert_eq!(resource("limits.cpu", Some("1m")), "1500");
        assert_eq!(resource("limits.memory", Some("1Mi")), "64");
        assert_eq!(resource("requests.cpu", Some("1m")), "0");
    }
}
