//! What each request may touch of a Pod.

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};

use super::qos_class;
use crate::prelude::*;

pub fn create(object: &mut Pod, cx: &RequestContext<'_>) {
    let spec = object.spec.get_or_insert_default();
    // Upstream takes a negative period for the shortest one.
    spec.termination_grace_period_seconds = spec.termination_grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let mut status = PodStatus { phase: Some("Pending".to_owned()), qos_class: Some(qos_class(spec).to_owned()), ..PodStatus::default() };
    if !items(&spec.scheduling_gates).is_empty() {
        status.conditions = Some(vec![PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("SchedulingGated".to_owned()),
            message: Some("Scheduling is blocked due to non-empty scheduling gates".to_owned()),
            last_transition_time: validation::time(cx.now),
            ..PodCondition::default()
        }]);
    }
    object.status = Some(status);
}

pub fn update(new: &mut Pod, old: &Pod, subresource: &str) {
    match subresource {
        "status" => {
            new.spec.clone_from(&old.spec);
            new.metadata.deletion_timestamp.clone_from(&old.metadata.deletion_timestamp);
            new.metadata.owner_references.clone_from(&old.metadata.owner_references);
            let status = new.status.get_or_insert_default();
            if text(&status.qos_class).is_empty() {
                status.qos_class = old.status.as_ref().and_then(|s| s.qos_class.clone());
            }
        }
        "ephemeralcontainers" => {
            let added = new.spec.as_mut().and_then(|s| s.ephemeral_containers.take());
            let labels_and_more = new.metadata.resource_version.clone();
            *new = old.clone();
            new.metadata.resource_version = labels_and_more;
            if let Some(spec) = new.spec.as_mut() {
                spec.ephemeral_containers = added;
            }
        }
        "resize" => resize(new, old),
        _ => new.status.clone_from(&old.status),
    }
}

/// Only the resources and resize policies of containers come through.
fn resize(new: &mut Pod, old: &Pod) {
    let wanted = new.spec.take().unwrap_or_default();
    let version = new.metadata.resource_version.clone();
    *new = old.clone();
    new.metadata.resource_version = version;
    let Some(spec) = new.spec.as_mut() else { return };
    let old_containers = spec.containers.clone();
    spec.containers = wanted.containers;
    for container in &mut spec.containers {
        if let Some(old) = old_containers.iter().find(|c| c.name == container.name) {
            let resized = (container.resources.take(), container.resize_policy.take());
            *container = old.clone();
            (container.resources, container.resize_policy) = resized;
        }
    }
    for container in spec.init_containers.iter_mut().flatten() {
        if let Some(wanted) = items(&wanted.init_containers).iter().find(|c| c.name == container.name) {
            container.resources.clone_from(&wanted.resources);
            container.resize_policy.clone_from(&wanted.resize_policy);
        }
    }
}
