//! `POST pods/binding` and `POST bindings`: gives a pod its node, once.

use http::StatusCode;
use serde_json::{Value, json};
use wheelhouse_meta::field::{ErrorList, FieldError, Path};
use wheelhouse_meta::gvk::GroupResource;
use wheelhouse_meta::object::Object;
use wheelhouse_meta::{Status, time};

use super::Call;
use super::options::{OptionsKind, WriteOptions};
use super::write::{Also, Current, Step, Writer};
use crate::request::{Answer, decode, media};
use crate::respond::{Reply, encode_status};

/// 409 if the pod has a node already, is going, or is held back by a scheduling gate.
pub async fn bind(call: &Call<'_>) -> Answer<Reply> {
    let media = media::negotiate(call.headers, false)?;
    let options = WriteOptions::parse(call, OptionsKind::Create)?;
    let schema = wheelhouse_schema::catalog().kind("", "v1", "Binding").map_or(wheelhouse_schema::Schema::Any, |kind| kind.schema.clone());
    let expected = decode::Expected { api_version: "v1", kind: "Binding", schema: &schema, custom: false };
    let decoded = decode::body(call.body, media::body_encoding(call.headers)?, expected, options.validation)?;
    call.warn(decoded.warnings);
    let binding = decoded.object;
    let name = binding.name().to_owned();
    if !call.name().is_empty() && name != call.name() {
        return Err(Status::bad_request("name in URL does not match name in Binding object").into());
    }
    check(&binding)?;
    let pods = call.server.catalogue.stored("", "pods").ok_or_else(Status::path_not_found)?;
    let mut writer = Writer::begin(call, pods, pods.key(call.namespace(), &name), options.dry_run);
    loop {
        let current = writer.current()?;
        let decided = match &current {
            Some(current) => assign(call, &binding, current),
            None => Err(Status::not_found(&pods.group_resource, &name).into()),
        };
        if writer.conclude(current, decided).await?.is_some() {
            break;
        }
    }
    Ok(created(media.encoding))
}

/// The answer of subresources that keep nothing: a Status with code 201.
pub fn created(encoding: media::Encoding) -> Reply {
    let mut status = Status::success(None);
    status.code = 201;
    Reply::new(StatusCode::CREATED, encoding.media_type(), encode_status(&status, encoding))
}

/// Upstream answers a bad binding as a plain error and not as 422.
fn check(binding: &Value) -> Answer<()> {
    let target = &binding["target"];
    let path = Path::new("target");
    let mut errors = ErrorList::new();
    let kind = target["kind"].as_str().unwrap_or("");
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported(&path.child("kind"), kind, &["Node", "<empty>"]));
    }
    if target["name"].as_str().unwrap_or("").is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::plain(errors.aggregate()).into()) }
}

fn assign(call: &Call<'_>, binding: &Value, current: &Current) -> Answer<Step> {
    let pod = &current.object;
    let name = pod.name();
    let uid = binding.meta_text("uid");
    let pods = GroupResource::new("", "pods");
    if !uid.is_empty() && uid != pod.meta_text("uid") {
        let key = format!("/registry/pods/{}/{name}", pod.namespace());
        return Err(Status::uid_precondition(&pods, name, &key, uid, pod.meta_text("uid")).into());
    }
    let version = binding.meta_text("resourceVersion");
    if !version.is_empty() && version != pod.meta_text("resourceVersion") {
        return Err(Status::optimistic_lock(&pods, name).into());
    }
    let refuse = |why: String| Err(Status::conflict(&GroupResource::new("", "pods/binding"), name, why).into());
    if pod.metadata().is_some_and(|m| m.get("deletionTimestamp").is_some_and(|at| !at.is_null())) {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return refuse(format!("pod {name} is already assigned to node {}", wheelhouse_meta::gotext::quote(node)));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut object = pod.clone();
    object["spec"]["nodeName"] = binding["target"]["name"].clone();
    for field in ["annotations", "labels"] {
        let Some(added) = binding.metadata().and_then(|m| m.get(field)).and_then(Value::as_object) else { continue };
        let metadata = object.metadata_mut();
        if let Some(values) = metadata.entry(field).or_insert_with(|| json!({})).as_object_mut() {
            values.extend(added.clone());
        }
    }
    set_condition(
        &mut object,
        json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time::rfc3339(call.now),
        }),
    );
    Ok(Step::Put { object, also: Also::default() })
}

/// Replaces or adds a condition; the time of a transition changes only with the status.
pub fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}
