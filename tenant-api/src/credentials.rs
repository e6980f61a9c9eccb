//! Credentials of a tenant's cluster that are Secrets there, of one type and with one prefix each: listed and revoked the same way.
//!
//! A credential is alive while its Secret exists in the cluster, so revoking is deleting, and it holds on every replica at once.

use axum::Json;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_client::{Client, ListOptions};
use wheelhouse_kinds::plan::DeleteOptions;
use wheelhouse_kinds::time::api_time;

use crate::auth::Caller;
use crate::cluster_access::{bundle, client};
use crate::clusters;
use crate::pages::{Page, page};
use crate::problem::Problem;
use crate::state::App;

/// The namespace of all of them.
pub const KUBE_SYSTEM: &str = "kube-system";

/// One kind of credential.
pub struct Credentials {
    /// For people: `there is no <what> "x"`.
    pub what: &'static str,
    /// `type` of the Secrets.
    pub secret_type: &'static str,
    /// Before the id in the Secrets' names.
    pub prefix: &'static str,
    /// What the tenant is shown of a Secret.
    pub public: fn(&Value) -> Value,
}

impl Credentials {
    pub fn secret_name(&self, id: &str) -> String {
        format!("{}{id}", self.prefix)
    }

    /// Keeps a new one.
    pub async fn create(&self, tenant_cluster: &Client, id: &str, secret: &Value) -> Result<Value, Problem> {
        let stored = tenant_cluster.api("", "v1", "secrets", KUBE_SYSTEM).create(secret).await;
        stored.map_err(|error| Problem::from_client(self.what, id, &error))
    }

    pub async fn list(&self, app: &App, caller: &Caller, cluster: &str, query: &Page) -> Result<Json<Value>, Problem> {
        let tenant_cluster = open(app, caller, cluster).await?;
        let options = ListOptions { field_selector: format!("type={}", self.secret_type), ..query.options()? };
        let list = tenant_cluster.api("", "v1", "secrets", KUBE_SYSTEM).list::<Value>(&options).await;
        let list = list.map_err(|error| Problem::from_client(self.what, "", &error))?;
        Ok(Json(page(&list, |item| Some((self.public)(item)))))
    }

    pub async fn revoke(&self, app: &App, caller: &Caller, cluster: &str, id: &str) -> Result<StatusCode, Problem> {
        let tenant_cluster = open(app, caller, cluster).await?;
        let secrets = tenant_cluster.api("", "v1", "secrets", KUBE_SYSTEM);
        let deleted = secrets.delete(&self.secret_name(id), &DeleteOptions::default()).await;
        deleted.map_err(|error| Problem::from_client(self.what, id, &error))?;
        Ok(StatusCode::NO_CONTENT)
    }
}

/// This service's client of the caller's cluster.
async fn open(app: &App, caller: &Caller, name: &str) -> Result<Client, Problem> {
    let cluster = clusters::find(caller, name).await?;
    client(app, &cluster, &bundle(app, &cluster).await?)
}

/// RFC 3339 in whole seconds.
pub fn time_text(at: Timestamp) -> String {
    api_time(at).0.to_string()
}

/// The text of one key of a Secret.
pub fn secret_text(secret: &Value, key: &str) -> String {
    let decoded = secret["data"][key].as_str().and_then(|data| STANDARD.decode(data).ok());
    decoded.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}
