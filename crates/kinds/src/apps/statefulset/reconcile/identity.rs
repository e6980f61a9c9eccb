//! A pod's name, number and template.

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};

use super::{Sync, claims};
use crate::apps::controllerrevision::history::{REVISION_LABEL, template_of};
use crate::owned::pod_from_template;
use crate::validation::text;

pub const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// `web-3` is number 3 of `web`.
pub fn parse(name: &str) -> Option<(&str, i32)> {
    let (parent, number) = name.rsplit_once('-')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((parent, number.parse().ok()?))
}

/// The number of a pod of this set.
pub fn ordinal(set: &StatefulSet, pod: &str) -> Option<i32> {
    parse(pod).filter(|(parent, _)| *parent == text(&set.metadata.name)).map(|(_, ordinal)| ordinal)
}

pub fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", text(&set.metadata.name))
}

/// Below the partition pods keep the current revision, also when they are made anew.
fn is_of_current(sync: &Sync<'_>, ordinal: i32) -> bool {
    let strategy = sync.spec.update_strategy.clone().unwrap_or_default();
    if strategy.type_.as_deref() != Some("RollingUpdate") {
        return false;
    }
    let kept = match strategy.rolling_update.and_then(|rolling| rolling.partition) {
        Some(partition) => partition,
        None => sync.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0),
    };
    ordinal < sync.start().saturating_add(kept)
}

pub fn pod(sync: &Sync<'_>, ordinal: i32) -> Value {
    let revision = if is_of_current(sync, ordinal) { &sync.current } else { &sync.update };
    let template = template_of(revision).unwrap_or_else(|| sync.spec.template.clone());
    let name = pod_name(sync.set, ordinal);
    let mut object = pod_from_template::<StatefulSet>(&template, &sync.set.metadata, &name);
    object["metadata"]["generateName"] = json!(format!("{}-", text(&sync.set.metadata.name)));
    object["metadata"]["labels"][POD_NAME] = json!(name);
    object["metadata"]["labels"][POD_INDEX] = json!(ordinal.to_string());
    object["metadata"]["labels"][REVISION_LABEL] = json!(text(&revision.metadata.name));
    object["spec"]["hostname"] = json!(name);
    if let Some(service) = sync.spec.service_name.as_ref().filter(|service| !service.is_empty()) {
        object["spec"]["subdomain"] = json!(service);
    }
    let names = claims::templates(sync);
    if !names.is_empty() {
        let mut volumes: Vec<Value> =
            names.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claims::name(claim, &name)}})).collect();
        let given = object["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        volumes.extend(given.into_iter().filter(|volume| !names.iter().any(|name| volume["name"] == name.as_str())));
        object["spec"]["volumes"] = json!(volumes);
    }
    object
}
