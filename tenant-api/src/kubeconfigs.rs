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
use wheelhouse_pki::Subject;
use wheelhouse_pki::{Credential, Kubeconfig};

use crate::auth::Caller;
use crate::cluster_access::{ADMINS_GROUP, bundle, client};
use crate::clusters;
use crate::credentials::{Credentials, KUBE_SYSTEM, secret_text, time_text};
use crate::pages::{Page, body};
use crate::problem::Problem;
use crate::state::{App, random_id};

const SECRET_TYPE: &str = "wheelhouse.dev/credential";
const SECRET_PREFIX: &str = "wheelhouse-credential-";
const KUBECONFIGS: Credentials = Credentials { what: "kubeconfig", secret_type: SECRET_TYPE, prefix: SECRET_PREFIX, public };
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
        "metadata": {"name": KUBECONFIGS.secret_name(&id), "namespace": KUBE_SYSTEM},
        "stringData": {"user": user, "expires": time_text(expires), "description": request.description},
    });
    // The Secret first: a certificate without one is refused, so a break in between leaves nothing that works.
    let tenant_cluster = client(&app, &cluster, &bundle)?;
    let stored = KUBECONFIGS.create(&tenant_cluster, &id, &secret).await?;
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
    KUBECONFIGS.list(&app, &caller, &name, &query).await
}

pub async fn revoke(State(app): State<App>, caller: Caller, Path((name, id)): Path<(String, String)>) -> Result<StatusCode, Problem> {
    KUBECONFIGS.revoke(&app, &caller, &name, &id).await
}

fn public(secret: &Value) -> Value {
    json!({
        "id": secret["metadata"]["name"].as_str().unwrap_or_default().trim_start_matches(SECRET_PREFIX),
        "createdAt": secret["metadata"]["creationTimestamp"],
        "expiresAt": secret_text(secret, "expires"),
        "description": secret_text(secret, "description"),
    })
}
