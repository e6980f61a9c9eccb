//! A tenant's API keys.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use wheelhouse_kinds::fleet::api_key::ApiKeySpec;
use wheelhouse_kinds::fleet::{ApiKey, Object, tenant_namespace};
use wheelhouse_kinds::plan::DeleteOptions;

use crate::auth::{Caller, NewKey};
use crate::pages::{Page, body, page};
use crate::problem::Problem;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    #[serde(default)]
    description: String,
}

/// The object that a key is stored as.
pub fn object(tenant: &str, key: &NewKey, description: &str) -> ApiKey {
    let spec = ApiKeySpec { tenant: tenant.to_owned(), hash: key.hash.clone(), created: None, description: description.to_owned() };
    Object::new("ApiKey", &tenant_namespace(tenant), &key.id, spec)
}

/// The answer holds the key's text, once.
pub async fn create(caller: Caller, bytes: Bytes) -> Result<(StatusCode, Json<Value>), Problem> {
    let request: Create = body(&bytes)?;
    let key = NewKey::for_tenant(caller.id());
    let object = object(caller.id(), &key, &request.description);
    let stored: Value = caller.api_keys().create(&object).await.map_err(|error| Problem::from_client("API key", &key.id, &error))?;
    let mut answer = public(&stored);
    answer["key"] = json!(key.text);
    Ok((StatusCode::CREATED, Json(answer)))
}

pub async fn list(caller: Caller, Query(query): Query<Page>) -> Result<Json<Value>, Problem> {
    let list: Value = caller.api_keys().list(&query.options()?).await.map_err(|error| Problem::from_client("API key", "", &error))?;
    Ok(Json(page(&list, |item| Some(public(item)))))
}

pub async fn revoke(caller: Caller, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    caller.api_keys().delete(&id, &DeleteOptions::default()).await.map_err(|error| Problem::from_client("API key", &id, &error))?;
    Ok(StatusCode::NO_CONTENT)
}

fn public(object: &Value) -> Value {
    json!({
        "id": object["metadata"]["name"],
        "description": object["spec"]["description"].as_str().unwrap_or_default(),
        "createdAt": object["metadata"]["creationTimestamp"],
    })
}
