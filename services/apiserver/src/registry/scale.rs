//! The `scale` subresource: an `autoscaling/v1 Scale` in front of a kind's replica count.

use http::StatusCode;
use serde_json::{Value, json};
use wheelhouse_meta::Status;
use wheelhouse_meta::field::{FieldError, Path};
use wheelhouse_meta::gvk::GroupKind;
use wheelhouse_meta::object::Object;
use wheelhouse_meta::patch::{json_patch, merge_patch, strategic_merge_patch};
use wheelhouse_meta::selector::LabelSelector;
use wheelhouse_mvcc::Snapshot;
use wheelhouse_schema::Schema;

use super::options::{OptionsKind, WriteOptions};
use super::write::{Current, Step, Writer, current};
use super::{Call, fields, update};
use crate::encode::encode_value;
use crate::request::media::{self, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};
use crate::request::{Answer, decode};
use crate::respond::Reply;

const API_VERSION: &str = "autoscaling/v1";

/// Upstream's defaults for a count that is not there.
const DEFAULT_REPLICAS: i64 = 1;

pub async fn get(call: &Call<'_>) -> Answer<Reply> {
    let media = media::negotiate(call.headers, false)?;
    let snapshot = call.server.storage.linearizable().await?;
    let resource = call.resource();
    let current = current(resource, &snapshot, &call.key())?.ok_or_else(|| Status::not_found(&resource.group_resource, call.name()))?;
    let body = encode_value(&scale_of(&current.object), media.encoding)?;
    Ok(Reply::ok(media.encoding.media_type(), body))
}

/// PUT and PATCH.
pub async fn set(call: &Call<'_>, patch: bool) -> Answer<Reply> {
    let media = media::negotiate(call.headers, false)?;
    let options = WriteOptions::parse(call, if patch { OptionsKind::Patch } else { OptionsKind::Update })?;
    let resource = call.resource();
    let schema = schema();
    let expected = decode::Expected { api_version: API_VERSION, kind: "Scale", schema: &schema };
    let body = if patch {
        None
    } else {
        let decoded = decode::body(call.body, media::body_encoding(call.headers)?, expected, options.validation)?;
        call.warn(decoded.warnings);
        check_name(call, &decoded.object)?;
        Some(decoded.object)
    };
    let mut writer = Writer::begin(call, resource, call.key(), options.dry_run);
    let written = loop {
        let current = writer.current()?;
        let decided = match &current {
            Some(current) => change(call, current, body.as_ref(), expected, &options, writer.snapshot()).await,
            None => Err(Status::not_found(&resource.group_resource, call.name()).into()),
        };
        if let Some(written) = writer.conclude(current, decided).await? {
            break written;
        }
    };
    let object = crate::stored::decode(&written.value, &resource.stored_api_version, resource.info().kind, written.revision);
    let scale = scale_of(&object.map_err(Status::internal_error)?);
    Ok(Reply::new(StatusCode::OK, media.encoding.media_type(), encode_value(&scale, media.encoding)?))
}

/// `body` is the Scale of a PUT; a PATCH has none and starts from the object's own.
async fn change(
    call: &Call<'_>,
    current: &Current,
    body: Option<&Value>,
    expected: decode::Expected<'_>,
    options: &WriteOptions,
    snapshot: &Snapshot,
) -> Answer<Step> {
    let scale = match body {
        Some(scale) => scale.clone(),
        None => {
            let scale = patched(call, &scale_of(&current.object), expected.schema)?;
            let decoded = decode::prune(scale, expected, options.validation).map_err(Status::bad_request)?;
            check_name(call, &decoded.object)?;
            decoded.object
        }
    };
    rescale(call, current, &scale, options, snapshot).await
}

async fn rescale(call: &Call<'_>, current: &Current, scale: &Value, options: &WriteOptions, snapshot: &Snapshot) -> Answer<Step> {
    let resource = call.resource();
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
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
    let live = update::served(call, current);
    let mut new = live.clone();
    new["spec"]["replicas"] = replicas.into();
    fields::update(call, Some(&live), &mut new, &options.manager)?;
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

/// The Scale that stands for an object.
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
