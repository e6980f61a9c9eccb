//! The `scale` subresource: an `autoscaling/v1 Scale` in front of a kind's replica count.

use http::StatusCode;
use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_meta::duration::human_duration;
use wheelhouse_meta::field::{FieldError, Path};
use wheelhouse_meta::gvk::GroupKind;
use wheelhouse_meta::object::Object;
use wheelhouse_meta::patch::{json_patch, merge_patch, strategic_merge_patch};
use wheelhouse_meta::selector::LabelSelector;
use wheelhouse_meta::{Status, time};
use wheelhouse_mvcc::Snapshot;
use wheelhouse_schema::Schema;

use super::options::{OptionsKind, WriteOptions};
use super::patch::applied_body;
use super::write::{Current, Step, Writer, current};
use super::{Call, fields, scale_fields, update};
use crate::encode::encode_value;
use crate::request::media::{self, APPLY_YAML, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, View};
use crate::request::{Answer, decode};
use crate::resource::Resource;
use crate::respond::Reply;

const API_VERSION: &str = "autoscaling/v1";

/// Upstream's defaults for a count that is not there.
const DEFAULT_REPLICAS: i64 = 1;

/// `GET` of the Scale.
pub async fn get(call: &Call<'_>) -> Answer<Reply> {
    let media = media::negotiate(call.headers, true)?;
    let snapshot = call.server.storage.linearizable().await?;
    let resource = call.resource();
    let current = current(resource, &snapshot, &call.key())?.ok_or_else(|| Status::not_found(&resource.group_resource, call.name()))?;
    let scale = shown(resource, &current.object)?;
    let answer = match media.view {
        View::Table { .. } => table(&scale, call.now),
        View::Object => scale,
        _ => return Err(Status::not_acceptable(&[media::JSON, media::YAML, media::PROTOBUF]).into()),
    };
    let body = encode_value(&answer, media.encoding)?;
    Ok(Reply::ok(media.encoding.media_type(), body))
}

/// PUT and PATCH.
pub async fn set(call: &Call<'_>, patch: bool) -> Answer<Reply> {
    let media = media::negotiate(call.headers, false)?;
    let applies = patch && media::content_type(call.headers) == APPLY_YAML;
    let kind = match (applies, patch) {
        (true, _) => OptionsKind::Apply,
        (_, true) => OptionsKind::Patch,
        _ => OptionsKind::Update,
    };
    let options = WriteOptions::parse(call, kind)?;
    let resource = call.resource();
    let schema = schema();
    let expected = decode::Expected { api_version: API_VERSION, kind: "Scale", schema: &schema, custom: false };
    let body = if applies {
        Body::Applied(applied_body(call, API_VERSION, "Scale", options.validation)?)
    } else if patch {
        Body::Patch
    } else {
        let decoded = decode::body(call.body, media::body_encoding(call.headers)?, expected, options.validation)?;
        call.warn(decoded.warnings);
        check_name(call, &decoded.object)?;
        Body::Whole(decoded.object)
    };
    let mut writer = Writer::begin(call, resource, call.key(), options.dry_run);
    let written = loop {
        let current = writer.current()?;
        let decided = match &current {
            Some(current) => change(call, current, &body, expected, &options, writer.snapshot()).await,
            None => Err(Status::not_found(&resource.group_resource, call.name()).into()),
        };
        if let Some(written) = writer.conclude(current, decided).await? {
            break written;
        }
    };
    let object = crate::stored::decode(&written.value, &resource.stored_api_version, resource.info().kind, written.revision);
    let scale = shown(resource, &object.map_err(Status::internal_error)?)?;
    Ok(Reply::new(StatusCode::OK, media.encoding.media_type(), encode_value(&scale, media.encoding)?))
}

/// What a write says about the Scale.
enum Body {
    /// The Scale as it should be.
    Whole(Value),
    /// The request's body is a patch of the Scale as it is.
    Patch,
    /// The fields that an apply wants to own.
    Applied(Value),
}

async fn change(
    call: &Call<'_>,
    current: &Current,
    body: &Body,
    expected: decode::Expected<'_>,
    options: &WriteOptions,
    snapshot: &Snapshot,
) -> Answer<Step> {
    let parent = scale_fields::entries(&current.object);
    let mut live = shown(call.resource(), &current.object)?;
    let path = replicas_path(call.resource());
    scale_fields::set_entries(&mut live, scale_fields::to_scale(&parent, &path));
    let scale = match body {
        Body::Whole(scale) => tracked(call, &live, scale.clone(), expected, options),
        Body::Applied(applied) => fields::merge_in(call, &live, applied, API_VERSION, expected.schema, options)?,
        Body::Patch => {
            let scale = patched(call, &live, expected.schema)?;
            let decoded = decode::prune(scale, expected, options.validation).map_err(Status::bad_request)?;
            tracked(call, &live, decoded.object, expected, options)
        }
    };
    check_name(call, &scale)?;
    let managed = scale_fields::to_parent(&parent, &scale_fields::entries(&scale), &call.resource().api_version, &path);
    rescale(call, current, &scale, managed, options, snapshot).await
}

/// In canonical form a count of zero is absent, so whoever scales to zero lets go of it.
fn tracked(call: &Call<'_>, live: &Value, mut scale: Value, expected: decode::Expected<'_>, options: &WriteOptions) -> Value {
    wheelhouse_schema::normalise(&mut scale, expected.schema);
    fields::update_in(call, live, scale, API_VERSION, expected.schema, &options.manager)
}

async fn rescale(
    call: &Call<'_>,
    current: &Current,
    scale: &Value,
    managed: Vec<Value>,
    options: &WriteOptions,
    snapshot: &Snapshot,
) -> Answer<Step> {
    let resource = call.resource();
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if let Some(paths) = resource.kind().scale().filter(|_| replicas < 0) {
        let errors = vec![FieldError::invalid(&Path::new(&paths.spec_text), replicas, "should be a non-negative integer")].into();
        return Err(Status::invalid(&resource.group_kind, call.name(), &errors).into());
    }
    if replicas < 0 {
        let spec = Path::new("spec");
        let errors = vec![FieldError::invalid(&spec.child("replicas"), replicas, "must be greater than or equal to 0")].into();
        return Err(Status::invalid(&GroupKind::new("autoscaling", "Scale"), call.name(), &errors).into());
    }
    let uid = scale.meta_text("uid");
    if !uid.is_empty() && uid != current.object.meta_text("uid") {
        let key = update::upstream_key(call);
        return Err(Status::uid_precondition(&resource.group_resource, call.name(), &key, uid, current.object.meta_text("uid")).into());
    }
    let version = scale.meta_text("resourceVersion");
    if !version.is_empty() && version != current.object.meta_text("resourceVersion") {
        return Err(Status::optimistic_lock(&resource.group_resource, call.name()).into());
    }
    let mut new = update::served(call, current);
    put(&mut new, &replicas_path(resource), replicas.into());
    scale_fields::set_entries(&mut new, managed);
    update::apply(call, new, current, options, snapshot).await
}

fn check_name(call: &Call<'_>, scale: &Value) -> Answer<()> {
    let name = scale.name();
    if name != call.name() {
        let message = format!("the name of the object ({name}) does not match the name on the URL ({})", call.name());
        return Err(Status::bad_request(message).into());
    }
    Ok(())
}

fn schema() -> Schema {
    wheelhouse_schema::catalog().kind("autoscaling", "v1", "Scale").map_or(Schema::Any, |kind| kind.schema.clone())
}

fn patched(call: &Call<'_>, scale: &Value, schema: &Schema) -> Answer<Value> {
    let patched = match media::content_type(call.headers).as_str() {
        JSON_PATCH => json_patch(scale, call.body),
        MERGE_PATCH => merge_patch(scale, call.body),
        STRATEGIC_PATCH => strategic_merge_patch(scale, call.body, schema),
        other => return Err(Status::bad_request(format!("{other} is not supported for the scale subresource")).into()),
    };
    patched.map_err(|error| Box::new(error.into_status()))
}

/// The Scale as `kubectl get --subresource=scale` shows it.
fn table(scale: &Value, now: Timestamp) -> Value {
    let column =
        |name: &str, kind: &str, description: &str| json!({"name": name, "type": kind, "format": "", "description": description, "priority": 0});
    let created = time::from_json(scale["metadata"].get("creationTimestamp"));
    let age = created.map_or("<unknown>".to_owned(), |created| human_duration(now.as_secs() - created.as_secs()));
    let count = |part: &str| scale[part]["replicas"].as_i64().unwrap_or(0);
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]},
        "columnDefinitions": [
            column("Name", "string", "Name of the scaled object."),
            column("Desired", "integer", "Replicas that are wanted."),
            column("Available", "integer", "Replicas that there are."),
            column("Age", "string", "Time since the object was created."),
        ],
        "rows": [{
            "cells": [scale["metadata"]["name"], count("spec"), count("status"), age],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": scale["metadata"]},
        }],
    })
}

/// The Scale that stands for an object of a resource. A custom resource keeps its counts where its definition says.
fn shown(resource: &Resource, object: &Value) -> Answer<Value> {
    let mut scale = scale_of(object);
    let Some(paths) = resource.kind().scale() else { return Ok(scale) };
    let at = |path: &[String]| path.iter().try_fold(object, |value, name| value.get(name));
    let Some(replicas) = at(&paths.spec).and_then(Value::as_i64) else {
        let why = format!("the spec replicas field {} does not exist", wheelhouse_meta::gotext::quote(&paths.spec_text));
        return Err(Status::internal_error(why).into());
    };
    scale["spec"] = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
    scale["status"] = json!({"replicas": at(&paths.status).and_then(Value::as_i64).unwrap_or(0)});
    let selector = paths.selector.as_deref().and_then(at).and_then(Value::as_str).unwrap_or_default();
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    Ok(scale)
}

/// Where objects of a resource keep the wanted replicas.
fn replicas_path(resource: &Resource) -> Vec<&str> {
    match resource.kind().scale() {
        Some(paths) => paths.spec.iter().map(String::as_str).collect(),
        None => scale_fields::REPLICAS.to_vec(),
    }
}

/// Sets the value at a path, making what leads there.
fn put(object: &mut Value, path: &[&str], value: Value) {
    let mut at = object;
    for name in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[*name];
    }
    *at = value;
}

/// The Scale that stands for an object of a built-in kind.
pub fn scale_of(object: &Value) -> Value {
    let metadata = |field: &str| object["metadata"][field].clone();
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": API_VERSION,
        "metadata": {
            "name": metadata("name"),
            "namespace": metadata("namespace"),
            "uid": metadata("uid"),
            "resourceVersion": metadata("resourceVersion"),
            "creationTimestamp": metadata("creationTimestamp"),
        },
        "spec": {},
        "status": {"replicas": object["status"]["replicas"].as_i64().unwrap_or(0)},
    });
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or(DEFAULT_REPLICAS);
    if replicas != 0 {
        scale["spec"]["replicas"] = replicas.into();
    }
    if let Some(selector) = selector_text(&object["spec"]["selector"]) {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

fn selector_text(selector: &Value) -> Option<String> {
    let fields = selector.as_object()?;
    let structured = fields.contains_key("matchLabels") || fields.contains_key("matchExpressions");
    let parsed = if structured { LabelSelector::from_object(Some(selector)).ok()? } else { LabelSelector::from_map(fields) };
    Some(parsed.to_string()).filter(|text| !text.is_empty())
}
