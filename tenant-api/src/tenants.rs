//! Signing up and leaving.
//!
//! A tenant is a `Tenant` object with a namespace of its own. The fleet's tenant controller keeps namespace and role binding; signing up makes them
//! at once, since the answer holds a key that must work. A sign-up that breaks off halfway deletes its tenant, and all else goes with it.

use std::net::SocketAddr;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use wheelhouse_client::{Client, ClientError};
use wheelhouse_kinds::fleet::tenant::TenantSpec;
use wheelhouse_kinds::fleet::{self, Object, Tenant, tenant_namespace};
use wheelhouse_kinds::plan::DeleteOptions;

use crate::auth::{Caller, NewKey, TENANT_ID_LENGTH, tenant_user};
use crate::limits::client_of;
use crate::pages::body;
use crate::problem::Problem;
use crate::state::{App, random_id};

/// What a tenant may do in its own namespace of the system control plane; the role is one of the system's bootstrap objects.
pub const TENANT_ROLE: &str = "wheelhouse:tenant";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignUp {
    name: String,
    email: String,
    #[serde(default)]
    invitation: Option<String>,
}

pub async fn sign_up(State(app): State<App>, ConnectInfo(peer): ConnectInfo<SocketAddr>, bytes: Bytes) -> Result<(StatusCode, Json<Value>), Problem> {
    let request: SignUp = body(&bytes)?;
    if request.name.trim().is_empty() {
        return Err(Problem::invalid("name", "must not be empty"));
    }
    if app.invitation.is_some() && app.invitation != request.invitation {
        let detail = "signing up needs an invitation code: `wheelhouse signup --invitation CODE`";
        return Err(Problem::new(StatusCode::FORBIDDEN, "invitation-required", "An invitation is required", detail));
    }
    if let Err(seconds) = app.signups.take(client_of(peer.ip()), app.clock.now()) {
        return Err(Problem::too_many("too many sign-ups from this address", seconds));
    }
    let id = random_id(TENANT_ID_LENGTH);
    let spec = TenantSpec { display_name: request.name, email: request.email, ..TenantSpec::default() };
    let tenant: Tenant = Object::new("Tenant", "", &id, spec);
    let tenant: Tenant = tenants(&app.system).create(&tenant).await.map_err(|error| {
        let mut problem = Problem::from_client("tenant", &id, &error);
        for entry in &mut problem.errors {
            if entry["field"] == "displayName" {
                entry["field"] = json!("name");
            }
        }
        problem
    })?;
    match furnish(&app, &tenant).await {
        Ok(key) => {
            let mut answer = public(&tenant);
            answer["apiKey"] = json!({"id": key.id, "key": key.text});
            Ok((StatusCode::CREATED, Json(answer)))
        }
        Err(error) => {
            // What was made already goes with its owner.
            let options = DeleteOptions { uid: tenant.metadata.uid.clone(), ..DeleteOptions::default() };
            let _ = tenants(&app.system).delete(&id, &options).await;
            Err(Problem::from_client("tenant", &id, &error))
        }
    }
}

fn tenants(client: &Client) -> wheelhouse_client::Api<'_> {
    client.api(fleet::GROUP, fleet::VERSION, "tenants", "")
}

/// The namespace, what the tenant may do in it, and the first key.
async fn furnish(app: &App, tenant: &Tenant) -> Result<NewKey, ClientError> {
    let namespace = tenant_namespace(tenant.name());
    let labels = json!({"fleet.wheelhouse.dev/tenant": tenant.name()});
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
    made(app.system.api("", "v1", "namespaces", "").create::<Value>(&object).await)?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": TENANT_ROLE, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": TENANT_ROLE},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": tenant_user(tenant.name())}],
    });
    made(app.system.api("rbac.authorization.k8s.io", "v1", "rolebindings", &namespace).create::<Value>(&binding).await)?;
    let key = NewKey::for_tenant(tenant.name());
    let stored = crate::api_keys::object(tenant.name(), &key, "made at sign-up");
    app.system.api(fleet::GROUP, fleet::VERSION, "apikeys", &namespace).create::<Value>(&stored).await?;
    Ok(key)
}

/// The tenant controller may have been quicker.
fn made(result: Result<Value, ClientError>) -> Result<(), ClientError> {
    match result {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

pub async fn me(caller: Caller) -> Json<Value> {
    Json(public(&caller.tenant))
}

/// Deletes the tenant with all its clusters.
pub async fn leave(State(app): State<App>, caller: Caller) -> Result<StatusCode, Problem> {
    let options = DeleteOptions { uid: caller.tenant.metadata.uid.clone(), ..DeleteOptions::default() };
    tenants(&app.system).delete(caller.id(), &options).await.map_err(|error| Problem::from_client("tenant", caller.id(), &error))?;
    Ok(StatusCode::ACCEPTED)
}

/// Whether the system control plane answers.
pub async fn ready(State(app): State<App>) -> Result<&'static str, Problem> {
    let options = wheelhouse_client::ListOptions { limit: 1, ..wheelhouse_client::ListOptions::default() };
    tenants(&app.system).list::<Value>(&options).await.map_err(|error| Problem::from_client("tenant", "", &error))?;
    Ok("ok")
}

fn public(tenant: &Tenant) -> Value {
    json!({
        "id": tenant.name(),
        "name": tenant.spec.display_name,
        "email": tenant.spec.email,
        "quota": {"clusters": tenant.spec.quota.clusters},
        "suspended": tenant.spec.suspended,
        "createdAt": tenant.metadata.creation_timestamp,
    })
}
