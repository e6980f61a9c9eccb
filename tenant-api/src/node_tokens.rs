//! Node tokens: Kubernetes bootstrap tokens of a cluster (`bootstrap.kubernetes.io/token` Secrets), with the command that uses them.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::auth::Caller;
use crate::cluster_access::{bundle, client};
use crate::clusters;
use crate::credentials::{Credentials, KUBE_SYSTEM, secret_text, time_text};
use crate::pages::{Page, body};
use crate::problem::Problem;
use crate::state::{App, random_bytes};

const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const SECRET_PREFIX: &str = "bootstrap-token-";
const NODE_TOKENS: Credentials = Credentials { what: "node token", secret_type: SECRET_TYPE, prefix: SECRET_PREFIX, public };
/// kubeadm's default for `token create`.
const DEFAULT_TTL_SECONDS: u64 = 24 * 3600;
const MIN_TTL_SECONDS: u64 = 60;
const MAX_TTL_SECONDS: u64 = 30 * 24 * 3600;
/// The group that may ask for a node's client certificate.
const NODE_BOOTSTRAPPERS: &str = "system:bootstrappers:wheelhouse:nodes";

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
    let ttl = request.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS);
    if !(MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&ttl) {
        return Err(Problem::invalid("ttlSeconds", format!("must be between {MIN_TTL_SECONDS} and {MAX_TTL_SECONDS}")));
    }
    let cluster = clusters::find(&caller, &name).await?;
    let bundle = bundle(&app, &cluster).await?;
    let (id, secret) = (token_part(6), token_part(16));
    let expires = time_text(app.clock.now().plus(Duration::from_secs(ttl)));
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": NODE_TOKENS.secret_name(&id), "namespace": KUBE_SYSTEM},
        "stringData": {
            "token-id": id, "token-secret": secret, "expiration": expires, "description": request.description,
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true", "auth-extra-groups": NODE_BOOTSTRAPPERS,
        },
    });
    let tenant_cluster = client(&app, &cluster, &bundle)?;
    let stored = NODE_TOKENS.create(&tenant_cluster, &id, &object).await?;
    let authority = bundle.authority().map_err(|_| Problem::internal("the cluster's CA does not parse"))?;
    let hash = authority.hash();
    let token = format!("{id}.{secret}");
    let mut answer = public(&stored);
    answer["expiresAt"] = json!(expires);
    answer["description"] = json!(request.description);
    answer["token"] = json!(token);
    answer["caCertHash"] = json!(hash);
    answer["joinCommand"] = json!(format!(
        "wheelhouse-node join {} --server-name {}.{} --token {token} --ca-cert-hash {hash}",
        app.endpoint,
        cluster.cluster_id(),
        app.base_domain
    ));
    Ok((StatusCode::CREATED, Json(answer)))
}

pub async fn list(State(app): State<App>, caller: Caller, Path(name): Path<String>, Query(query): Query<Page>) -> Result<Json<Value>, Problem> {
    NODE_TOKENS.list(&app, &caller, &name, &query).await
}

pub async fn revoke(State(app): State<App>, caller: Caller, Path((name, id)): Path<(String, String)>) -> Result<StatusCode, Problem> {
    NODE_TOKENS.revoke(&app, &caller, &name, &id).await
}

/// Characters of a bootstrap token: `[a-z0-9]`, each with the same chance.
fn token_part(length: usize) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut text = String::with_capacity(length);
    while text.len() < length {
        // 252 is the largest multiple of 36 in a byte; what lies above would favour the first letters.
        let usable = random_bytes(length).into_iter().filter(|byte| *byte < 252);
        text.extend(usable.take(length - text.len()).map(|byte| char::from(ALPHABET[usize::from(byte % 36)])));
    }
    text
}

/// Never the secret half of the token.
fn public(secret: &Value) -> Value {
    json!({
        "id": secret_text(secret, "token-id"),
        "createdAt": secret["metadata"]["creationTimestamp"],
        "expiresAt": secret_text(secret, "expiration"),
        "description": secret_text(secret, "description"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_the_form_that_kubeadm_demands() {
        for length in [6, 16] {
            let part = token_part(length);
            assert!(part.len() == length && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{part}");
        }
    }
}
