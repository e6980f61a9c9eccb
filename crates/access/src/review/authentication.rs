//! `authentication.k8s.io/v1`: whose token is this, and who am I?

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_meta::Status;

use crate::authn::InvalidToken;
use crate::authn::service_account::Accepted;
use crate::lookups::Answer;
use crate::time::rfc3339;
use crate::user::User;

/// Checks a token for one of the given audiences.
pub type Authenticate<'a> = &'a dyn Fn(&str, &[String]) -> Result<Accepted, InvalidToken>;

/// Answers a TokenReview: the body with its `status`. A review that names no audience is about `api_audiences`, this API server's own.
pub fn token(mut body: Value, api_audiences: &[String], authenticate: Authenticate<'_>) -> Answer<Value> {
    let token = body["spec"]["token"].as_str().unwrap_or_default().to_owned();
    if token.is_empty() {
        return Err(Box::new(Status::bad_request("token is required for TokenReview in authentication")));
    }
    let wanted: Vec<String> = body["spec"]["audiences"].as_array().into_iter().flatten().filter_map(|a| a.as_str().map(str::to_owned)).collect();
    let audiences = if wanted.is_empty() { api_audiences } else { &wanted };
    body["status"] = match authenticate(&token, audiences) {
        Ok(accepted) => json!({"authenticated": true, "user": accepted.user, "audiences": accepted.audiences}),
        Err(error) => json!({"user": {}, "error": error.to_string()}),
    };
    Ok(body)
}

/// Answers a SelfSubjectReview; nothing of the request matters.
pub fn self_subject(caller: &User, now: Timestamp) -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": rfc3339(now)},
        "status": {"userInfo": caller},
    })
}
