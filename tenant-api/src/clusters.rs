//! A tenant's clusters.
//!
//! Creation answers 202 at once; `GET …?after=<resourceVersion>` waits for the next change, so that a client follows progress without polling.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use wheelhouse_client::{ClientError, ListOptions, PatchKind, WatchEvent};
use wheelhouse_kinds::fleet::{self, Cluster};
use wheelhouse_kinds::plan::DeleteOptions;

use crate::auth::Caller;
use crate::pages::{Page, body, page};
use crate::problem::Problem;
use crate::state::App;

/// Remembers under which `Idempotency-Key` a cluster was made, for as long as the cluster lives.
const IDEMPOTENCY_ANNOTATION: &str = "fleet.wheelhouse.dev/idempotency-key";
/// RFC draft and common practice: long enough for a UUID with a prefix.
const MAX_IDEMPOTENCY_KEY: usize = 128;
/// The longest that a request may wait for a change: below the idle limits of common proxies.
const MAX_WAIT_SECONDS: u64 = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    #[serde(default)]
    replicas: Option<i64>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    network: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    replicas: Option<i64>,
    suspended: Option<bool>,
}

#[derive(Deserialize)]
pub struct Wait {
    /// Answer once the cluster has changed after this resourceVersion.
    after: Option<String>,
    #[serde(rename = "timeoutSeconds", default)]
    timeout_seconds: Option<u64>,
}

pub async fn create(State(app): State<App>, caller: Caller, headers: HeaderMap, bytes: Bytes) -> Result<(StatusCode, Json<Value>), Problem> {
    let request: Create = body(&bytes)?;
    let idempotency_key = idempotency_key(&headers)?;
    let mut spec = json!({});
    let given = [("replicas", request.replicas.map(Value::from)), ("version", request.version.map(Value::from)), ("network", request.network)];
    for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        spec[name] = value;
    }
    let mut object = json!({
        "apiVersion": fleet::API_VERSION, "kind": "Cluster",
        "metadata": {"name": request.name, "namespace": caller.namespace(), "finalizers": [fleet::cluster::FINALIZER]},
        "spec": spec,
    });
    if let Some(key) = &idempotency_key {
        object["metadata"]["annotations"] = json!({IDEMPOTENCY_ANNOTATION: key});
    }
    if let Some(key) = &idempotency_key
        && let Some(made) = already_made(&caller, &request.name, key).await?
    {
        return Ok((StatusCode::ACCEPTED, Json(public(&app, &made))));
    }
    match caller.clusters().create::<Cluster>(&object).await {
        Ok(cluster) => Ok((StatusCode::ACCEPTED, Json(public(&app, &cluster)))),
        Err(error) => {
            // Two requests with the same key met: the one that lost answers what the other made.
            if error.is_already_exists()
                && let Some(key) = &idempotency_key
                && let Some(made) = already_made(&caller, &request.name, key).await?
            {
                return Ok((StatusCode::ACCEPTED, Json(public(&app, &made))));
            }
            Err(quota(&caller, &error).unwrap_or_else(|| Problem::from_client("cluster", &request.name, &error)))
        }
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= MAX_IDEMPOTENCY_KEY);
    match text {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Problem::bad_request(format!("Idempotency-Key must be 1 to {MAX_IDEMPOTENCY_KEY} printable characters"))),
    }
}

async fn already_made(caller: &Caller, name: &str, key: &str) -> Result<Option<Cluster>, Problem> {
    let found: Option<Cluster> = caller.clusters().find(name).await.map_err(|error| Problem::from_client("cluster", name, &error))?;
    Ok(found.filter(|cluster| cluster.annotation(IDEMPOTENCY_ANNOTATION) == Some(key)))
}

/// What a refusal over the quota is to the tenant. The system control plane holds the quota, so that no two processes exceed it together.
fn quota(caller: &Caller, error: &ClientError) -> Option<Problem> {
    if error.code() != 403 || !error.to_string().contains("exceeded quota") {
        return None;
    }
    let allowed = caller.tenant.spec.quota.clusters;
    let detail = format!("you may have {allowed} clusters and have as many; delete one with `wheelhouse cluster delete NAME`");
    Some(Problem::new(StatusCode::FORBIDDEN, "quota-exceeded", "The quota is used up", detail))
}

pub async fn list(State(app): State<App>, caller: Caller, Query(query): Query<Page>) -> Result<Json<Value>, Problem> {
    let list: Value = caller.clusters().list(&query.options()?).await.map_err(|error| Problem::from_client("cluster", "", &error))?;
    Ok(Json(page(&list, |item| serde_json::from_value::<Cluster>(item.clone()).ok().map(|cluster| public(&app, &cluster)))))
}

pub async fn get(State(app): State<App>, caller: Caller, Path(name): Path<String>, Query(wait): Query<Wait>) -> Result<Json<Value>, Problem> {
    let cluster = find(&caller, &name).await?;
    let seen = wait.after.is_some() && wait.after == cluster.metadata.resource_version;
    if !seen {
        return Ok(Json(public(&app, &cluster)));
    }
    let limit = Duration::from_secs(wait.timeout_seconds.unwrap_or(MAX_WAIT_SECONDS).min(MAX_WAIT_SECONDS));
    // The end of the wait is an answer like any other: the caller asks again.
    match tokio::time::timeout(limit, next_change(&caller, &name, wait.after.as_deref().unwrap_or_default())).await {
        Ok(changed) => Ok(Json(public(&app, &changed?))),
        Err(_) => Ok(Json(public(&app, &cluster))),
    }
}

async fn next_change(caller: &Caller, name: &str, after: &str) -> Result<Cluster, Problem> {
    let problem = |error: &ClientError| Problem::from_client("cluster", name, error);
    let options = ListOptions { field_selector: format!("metadata.name={name}"), resource_version: after.to_owned(), ..ListOptions::default() };
    let clusters = caller.clusters();
    let mut watch = match clusters.watch(&options).await {
        Ok(watch) => watch,
        Err(error) if error.is_gone() => return find(caller, name).await,
        Err(error) => return Err(problem(&error)),
    };
    while let Some(event) = watch.next().await {
        match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                return serde_json::from_value(object).map_err(|_| Problem::internal("the cluster's object does not decode"));
            }
            Ok(WatchEvent::Deleted(_)) => return Err(Problem::not_found("cluster", name)),
            Ok(WatchEvent::Bookmark(_)) => {}
            Err(error) if error.is_gone() => break,
            Err(error) => return Err(problem(&error)),
        }
    }
    find(caller, name).await
}

/// The caller's cluster of that name.
pub async fn find(caller: &Caller, name: &str) -> Result<Cluster, Problem> {
    caller.clusters().get(name).await.map_err(|error| Problem::from_client("cluster", name, &error))
}

pub async fn patch(State(app): State<App>, caller: Caller, Path(name): Path<String>, bytes: Bytes) -> Result<Json<Value>, Problem> {
    let request: Patch = body(&bytes)?;
    let mut spec = serde_json::Map::new();
    spec.extend(request.replicas.map(|replicas| ("replicas".to_owned(), replicas.into())));
    spec.extend(request.suspended.map(|suspended| ("suspended".to_owned(), suspended.into())));
    if spec.is_empty() {
        return Err(Problem::bad_request("name what to change: `replicas` or `suspended`"));
    }
    let patched = caller.clusters().patch::<Cluster>(&name, "", PatchKind::Merge, "", &json!({"spec": spec})).await;
    Ok(Json(public(&app, &patched.map_err(|error| Problem::from_client("cluster", &name, &error))?)))
}

pub async fn delete(caller: Caller, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let deleted = caller.clusters().delete(&name, &DeleteOptions::default()).await;
    deleted.map_err(|error| Problem::from_client("cluster", &name, &error))?;
    Ok(StatusCode::ACCEPTED)
}

/// What a tenant is shown. Which hosts carry the replicas is the operator's business.
pub fn public(app: &App, cluster: &Cluster) -> Value {
    let status = cluster.status.clone().unwrap_or_default();
    let id = cluster.cluster_id();
    let state = if cluster.is_deleting() {
        "Deleting"
    } else if cluster.spec.suspended {
        "Suspended"
    } else if cluster.is_ready() {
        "Ready"
    } else {
        "Pending"
    };
    json!({
        "name": cluster.name(),
        "id": id.as_str(),
        "state": state,
        "replicas": cluster.spec.replicas,
        "readyReplicas": status.members.iter().filter(|member| member.ready).count(),
        "version": cluster.spec.version,
        "network": cluster.spec.network,
        "suspended": cluster.spec.suspended,
        "endpoint": format!("https://{}", app.endpoint),
        "serverName": format!("{id}.{}", app.base_domain),
        "conditions": status.conditions,
        "createdAt": cluster.metadata.creation_timestamp,
        "generation": cluster.generation(),
        "resourceVersion": cluster.metadata.resource_version,
    })
}
