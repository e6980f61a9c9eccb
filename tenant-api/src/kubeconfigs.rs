//! Kubeconfigs: client certificates of a cluster, listable and revocable.
//!
//! A credential is alive while its Secret `kube-system/wheelhouse-credential-<id>` exists in the cluster: authentication looks it up for every
//! certificate whose common name has the form `tenant:<tenant>:<id>`. So revoking is deleting, and it holds on every replica at once.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_client::ListOptions;
use wheelhouse_kinds::plan::DeleteOptions;
use wheelhouse_kinds::time::api_time;
use wheelhouse_pki::Subject;
use wheelhouse_pki::{Credential, Kubeconfig};

use crate::auth::Caller;
use crate::cluster_access::{ADMINS_GROUP, bundle, client};
use crate::clusters;
use crate::pages::{Page, body, page};
use crate::problem::Problem;
use crate::state::{App, random_id};

/// `type` of the Secrets that stand for credentials.
pub const SECRET_TYPE: &str = "wheelhouse.dev/credential";
const SECRET_PREFIX: &str = "wheelhouse-credential-";
const KUBE_SYSTEM: &str = "kube-system";
const DEFAULT_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
const MIN_TTL_SECONDS: u64 = 60;
const MAX_TTL_SECONDS: u64 = 365 * 24 * 3600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    #[serde(rename = "ttlSeconds", default)]
    ttl_seconds: Option<u64>,
    #[serde(default)]
    description: String,
}

pub async fn create(State(app): State<App>, caller: Caller, Path(name): Path<String>, bytes: Bytes) -> Result<(StatusCode, Json<Value>), Problem> {
    let request: Create = body(&bytes)?;
    let ttl = request.ttl_seconds.unwrap_or(DEFAULT_TTL.as_secs());
    if !(MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&ttl) {
        return Err(Problem::invalid("ttlSeconds", format!("must be between {MIN_TTL_SECONDS} and {MAX_TTL_SECONDS}")));
    }
    let cluster = clusters::find(&caller, &name).await?;
    let bundle = bundle(&app, &cluster).await?;
    let (id, now) = (random_id(10), app.clock.now());
    let user = format!("tenant:{}:{id}", caller.id());
    let expires = now.plus(Duration::from_secs(ttl));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": format!("{SECRET_PREFIX}{id}"), "namespace": KUBE_SYSTEM},
        "stringData": {"user": user, "expires": time_text(expires), "description": request.description},
    });
    // The Secret first: a certificate without one is refused, so a break in between leaves nothing that works.
    let tenant_cluster = client(&app, &cluster, &bundle)?;
    let stored: Value = tenant_cluster
        .api("", "v1", "secrets", KUBE_SYSTEM)
        .create(&secret)
        .await
        .map_err(|error| Problem::from_client("kubeconfig", &id, &error))?;
    let issued = bundle.issue_client(Subject::new(user.clone(), &[ADMINS_GROUP]), Duration::from_secs(ttl), now);
    let (certificate, key) = issued.map_err(|_| Problem::internal("no client certificate could be issued"))?;
    let kubeconfig = Kubeconfig {
        name: cluster.name().to_owned(),
        user,
        server: format!("https://{}", app.endpoint),
        tls_server_name: format!("{}.{}", cluster.cluster_id(), app.base_domain),
        ca_certificate: bundle.ca_certificate.clone(),
        credential: Credential::Certificate { certificate, key },
    };
    let mut answer = public(&stored);
    answer["expiresAt"] = json!(time_text(expires));
    answer["description"] = json!(request.description);
    answer["kubeconfig"] = json!(kubeconfig.render());
    Ok((StatusCode::CREATED, Json(answer)))
}

pub async fn list(State(app): State<App>, caller: Caller, Path(name): Path<String>, Query(query): Query<Page>) -> Result<Json<Value>, Problem> {
    let cluster = clusters::find(&caller, &name).await?;
    let options = ListOptions { field_selector: format!("type={SECRET_TYPE}"), ..query.options()? };
    let tenant_cluster = client(&app, &cluster, &bundle(&app, &cluster).await?)?;
    let list = tenant_cluster.api("", "v1", "secrets", KUBE_SYSTEM).list::<Value>(&options).await;
    let list = list.map_err(|error| Problem::from_client("kubeconfig", "", &error))?;
    Ok(Json(page(&list, |item| Some(public(item)))))
}

pub async fn revoke(State(app): State<App>, caller: Caller, Path((name, id)): Path<(String, String)>) -> Result<StatusCode, Problem> {
    let cluster = clusters::find(&caller, &name).await?;
    let tenant_cluster = client(&app, &cluster, &bundle(&app, &cluster).await?)?;
    let secrets = tenant_cluster.api("", "v1", "secrets", KUBE_SYSTEM);
    let deleted = secrets.delete(&format!("{SECRET_PREFIX}{id}"), &DeleteOptions::default()).await;
    deleted.map_err(|error| Problem::from_client("kubeconfig", &id, &error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// RFC 3339 in whole seconds.
pub fn time_text(at: Timestamp) -> String {
    api_time(at).0.to_string()
}

/// The text of one key of a Secret.
pub fn secret_text(secret: &Value, key: &str) -> String {
    use base64::Engine;
    let decoded = secret["data"][key].as_str().and_then(|data| base64::engine::general_purpose::STANDARD.decode(data).ok());
    decoded.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn public(secret: &Value) -> Value {
    json!({
        "id": secret["metadata"]["name"].as_str().unwrap_or_default().trim_start_matches(SECRET_PREFIX),
        "createdAt": secret["metadata"]["creationTimestamp"],
        "expiresAt": secret_text(secret, "expires"),
        "description": secret_text(secret, "description"),
    })
}
