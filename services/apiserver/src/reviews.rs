//! Reviews and token requests: a body comes in, is answered and not kept.

use http::StatusCode;
use serde_json::Value;
use wheelhouse_access::admission::Operation;
use wheelhouse_meta::Status;

use crate::encode::encode_value;
use crate::registry::options::{OptionsKind, WriteOptions};
use crate::registry::{Call, fields};
use crate::request::{Answer, decode, media};
use crate::respond::Reply;

/// Seconds that a token lasts when the request does not say.
const DEFAULT_EXPIRATION: i64 = 3600;

/// `POST` to one of the review resources.
pub async fn review(call: &Call<'_>) -> Answer<Reply> {
    let resource = call.resource();
    if resource.is("", "componentstatuses") {
        return component_statuses(call);
    }
    let media = media::negotiate(call.headers, true)?;
    let options = WriteOptions::parse(call, OptionsKind::Create)?;
    let decoded = decode::body(call.body, media::body_encoding(call.headers)?, call.expected(), options.validation)?;
    call.warn(decoded.warnings);
    let mut body = decoded.object;
    wheelhouse_schema::normalise(&mut body, &resource.schema);
    fields::update(call, None, &mut body, &options.manager)?;
    let mut answer = call.server.security.review(resource.info().plural, call.namespace(), body, call.user).await?;
    decode::set_type(&mut answer, &resource.api_version, resource.info().kind);
    Ok(Reply::new(StatusCode::CREATED, media.encoding.media_type(), encode_value(&answer, media.encoding)?))
}

/// `POST serviceaccounts/token`.
pub async fn token(call: &Call<'_>) -> Answer<Reply> {
    let media = media::negotiate(call.headers, true)?;
    let options = WriteOptions::parse(call, OptionsKind::Create)?;
    let schema = wheelhouse_schema::catalog().kind("authentication.k8s.io", "v1", "TokenRequest");
    let schema = schema.map_or(wheelhouse_schema::Schema::Any, |kind| kind.schema.clone());
    let expected = decode::Expected { api_version: "authentication.k8s.io/v1", kind: "TokenRequest", schema: &schema, custom: false };
    let decoded = decode::body(call.body, media::body_encoding(call.headers)?, expected, options.validation)?;
    call.warn(decoded.warnings);
    let mut body = decoded.object;
    if body["spec"]["expirationSeconds"].is_null() {
        body["spec"]["expirationSeconds"] = DEFAULT_EXPIRATION.into();
    }
    wheelhouse_schema::normalise(&mut body, &schema);
    fields::record_in(call, &mut body, "authentication.k8s.io/v1", &schema, &options.manager);
    call.admit_validating(Operation::Create, Some(&body), None, options.dry_run).await?;
    let id = uuid::Uuid::new_v4().to_string();
    let managed = body["metadata"]["managedFields"].clone();
    let mut answer = call.server.security.token_request(call.namespace(), call.name(), body, &id).await?;
    decode::set_type(&mut answer, "authentication.k8s.io/v1", "TokenRequest");
    if managed.is_array() {
        answer["metadata"]["managedFields"] = managed;
    }
    Ok(Reply::new(StatusCode::CREATED, media.encoding.media_type(), encode_value(&answer, media.encoding)?))
}

/// Upstream's components are processes of their own; here there is the store, and it is the replica itself.
fn component_statuses(call: &Call<'_>) -> Answer<Reply> {
    let media = media::negotiate(call.headers, false)?;
    let status = |name: &str| serde_json::json!({"metadata": {"name": name}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]});
    let names = ["controller-manager", "etcd-0", "scheduler"];
    let answer: Value = if call.name().is_empty() {
        let items: Vec<Value> = names.iter().map(|name| status(name)).collect();
        serde_json::json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items})
    } else if names.contains(&call.name()) {
        let mut one = status(call.name());
        decode::set_type(&mut one, "v1", "ComponentStatus");
        one
    } else {
        return Err(Status::not_found(&call.resource().group_resource, call.name()).into());
    };
    Ok(Reply::ok(media.encoding.media_type(), encode_value(&answer, media.encoding)?))
}
