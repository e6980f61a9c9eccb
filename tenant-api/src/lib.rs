//! The tenant API: signing up, clusters, kubeconfigs, node tokens and API keys over REST.
//!
//! ```text
//! request -> rate limit -> API key -> tenant -> handler -> system control plane (as that tenant, by impersonation)
//!                                                    \---> the tenant's own cluster, through the endpoint, for credentials inside it
//! ```
//!
//! It keeps no state: tenants, keys and clusters are objects of the system control plane, a kubeconfig's credential and a node token are Secrets of
//! the tenant's cluster. Any number of instances may run. Every call for a tenant is made as that tenant's user, so the system's RBAC
//! confines it to the tenant's namespace even where this code is wrong. Errors are RFC 9457 problem documents.

pub mod api_keys;
pub mod auth;
pub mod cluster_access;
pub mod clusters;
pub mod config;
pub mod credentials;
pub mod kubeconfigs;
pub mod limits;
pub mod node_tokens;
pub mod openapi;
pub mod pages;
pub mod problem;
pub mod serve;
pub mod state;
pub mod tenants;

use axum::Router;
use axum::routing::{delete, get, post};

use crate::state::App;

/// Every route. The OpenAPI document and the foreign-tenant test list the same ones.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/v1/tenants", post(tenants::sign_up))
        .route("/v1/tenants/me", get(tenants::me).delete(tenants::leave))
        .route("/v1/api-keys", post(api_keys::create).get(api_keys::list))
        .route("/v1/api-keys/{id}", delete(api_keys::revoke))
        .route("/v1/clusters", post(clusters::create).get(clusters::list))
        .route("/v1/clusters/{name}", get(clusters::get).patch(clusters::patch).delete(clusters::delete))
        .route("/v1/clusters/{name}/kubeconfigs", post(kubeconfigs::create).get(kubeconfigs::list))
        .route("/v1/clusters/{name}/kubeconfigs/{id}", delete(kubeconfigs::revoke))
        .route("/v1/clusters/{name}/node-tokens", post(node_tokens::create).get(node_tokens::list))
        .route("/v1/clusters/{name}/node-tokens/{id}", delete(node_tokens::revoke))
        .route("/openapi.json", get(openapi::document))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(tenants::ready))
        .fallback(problem::no_route)
        .method_not_allowed_fallback(problem::no_method)
        .layer(axum::middleware::from_fn(limits::whole_body))
        .layer(axum::middleware::from_fn_with_state(app.clone(), limits::per_address))
        .with_state(app)
}
