//! The workload that an autoscaler sizes.

use std::sync::Arc;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use wheelhouse_meta::selector::LabelSelector;

use crate::owned::matches;
use crate::reconciler::group_of;
use crate::validation::text;
use crate::view::{Key, ResourceName, View};

pub struct Target {
    pub resource: ResourceName,
    pub key: Key,
    pub resource_version: Option<String>,
    /// Wanted now.
    pub replicas: i32,
    /// As its own controller counts them.
    pub observed: i32,
    pub selector: LabelSelector,
}

/// The resource of a kind of which the view holds at least one object in this namespace.
pub fn resource_of(group: &str, kind: &str, namespace: &str, view: &View) -> Option<ResourceName> {
    let of_kind = |resource: &&ResourceName| view.records(resource, Some(namespace)).next().is_some_and(|record| record.kind == kind);
    view.resources().filter(|resource| resource.group == group).find(of_kind).cloned()
}

impl Target {
    pub fn find(autoscaler: &HorizontalPodAutoscaler, view: &View) -> Result<Self, String> {
        let target = &autoscaler.spec.scale_target_ref;
        let namespace = text(&autoscaler.metadata.namespace);
        let group = group_of(text(&target.api_version));
        let key = Key::new(namespace, target.name.as_str());
        let resource = resource_of(group, &target.kind, namespace, view);
        let record = resource.and_then(|resource| view.record(&resource, &key));
        let Some(record) = record else {
            let plural = format!("{}s", target.kind.to_lowercase());
            let resource = if group.is_empty() { plural } else { format!("{plural}.{group}") };
            return Err(format!("{resource} {:?} not found", target.name));
        };
        let object = record.value();
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
        let Some(replicas) = number("/spec/replicas") else {
            return Err(format!("{} {:?} has no replicas to scale", record.resource, target.name));
        };
        // A ReplicationController has a plain map.
        let selector = match &object["spec"]["selector"] {
            Value::Object(map) if &*record.resource.plural == "replicationcontrollers" => LabelSelector::from_map(map),
            Value::Null => LabelSelector::nothing(),
            selector => LabelSelector::from_object(Some(selector)).unwrap_or_else(|_| LabelSelector::nothing()),
        };
        Ok(Self {
            resource: record.resource.clone(),
            key,
            resource_version: record.meta.resource_version.clone(),
            replicas,
            observed: number("/status/replicas").unwrap_or(0),
            selector,
        })
    }

    /// Whether the size follows the metrics: not when it is switched off, or outside its bounds.
    pub fn is_scaled(&self, autoscaler: &HorizontalPodAutoscaler) -> bool {
        let least = autoscaler.spec.min_replicas.unwrap_or(1);
        (least..=autoscaler.spec.max_replicas).contains(&self.replicas)
    }

    pub fn pods(&self, view: &View) -> Vec<Arc<Pod>> {
        view.list::<Pod>(Some(&self.key.namespace)).filter(|pod| matches(&self.selector, pod.metadata.labels.as_ref())).collect()
    }
}
