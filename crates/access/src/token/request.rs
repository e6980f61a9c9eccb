//! `POST serviceaccounts/<name>/token`: a TokenRequest and the token it is answered with.

use std::time::Duration;

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};
use wheelhouse_meta::gotext::quote;
use wheelhouse_meta::gvk::{GroupKind, GroupVersion};
use wheelhouse_meta::{GroupResource, Status};

use super::claims::{Bound, Claims, Reference};
use super::issuer::Issuer;
use crate::lookups::{Answer, Lookups};
use crate::time::rfc3339;

/// What a request that names no lifetime gets, in seconds.
pub const DEFAULT_EXPIRATION: i64 = 3600;

/// The shortest lifetime that may be asked for: refreshing more often would cost the API server too much.
const MIN_EXPIRATION: i64 = 600;

/// The longest lifetime that may be asked for.
const MAX_EXPIRATION: i64 = 1 << 32;

/// The lifetime that injected `kube-api-access` volumes ask for. Clients that never reload a token would break after an hour, so such
/// a token lives a year and its use after the hour is noted instead of refused.
const INJECTED_EXPIRATION: i64 = 3607;
const EXTENDED_EXPIRATION: i64 = 365 * 24 * 3600;

/// One TokenRequest: `namespace` and `name` are the service account's, from the path.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub now: Timestamp,
    /// The new token's id: a random UUID.
    pub id: &'a str,
}

/// Answers a TokenRequest with the body to send. `body` is the decoded request; its metadata may hold managed fields, which are kept.
pub fn create(request: TokenRequest<'_>, mut body: Value, issuer: &Issuer, lookups: &dyn Lookups) -> Answer<Value> {
    check_names(request, &body)?;
    let account = lookups.identity("", "serviceaccounts", request.namespace, request.name);
    let account = account.ok_or_else(|| Status::not_found(&GroupResource::new("", "serviceaccounts"), request.name))?;
    fill(request, &mut body, &account.uid, issuer);
    let asked = body["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_EXPIRATION);
    check_lifetime(asked)?;

    let audiences: Vec<String> = strings(&body["spec"]["audiences"]);
    let mut bound = Bound {
        namespace: request.namespace.to_owned(),
        serviceaccount: Reference { name: request.name.to_owned(), uid: account.uid },
        ..Bound::default()
    };
    bind(request, &body["spec"]["boundObjectRef"], &mut bound, lookups)?;

    let now = request.now.as_secs();
    let extend = bound.pod.is_some() && asked == INJECTED_EXPIRATION && audiences.iter().all(|a| issuer.audiences.contains(a));
    let lifetime = if extend { EXTENDED_EXPIRATION } else { asked };
    bound.warnafter = extend.then_some(now + asked);
    let claims = Claims {
        aud: audiences,
        exp: Some(now + lifetime),
        iat: Some(now),
        iss: issuer.url.clone(),
        jti: request.id.to_owned(),
        kubernetes: bound,
        nbf: Some(now),
        sub: format!("system:serviceaccount:{}:{}", request.namespace, request.name),
    };
    let token = issuer.sign(&claims).map_err(|error| Status::internal_error(format!("failed to generate token: {error}")))?;
    let expires = request.now.plus(Duration::from_secs(u64::try_from(asked).unwrap_or_default()));
    body["status"] = json!({"token": token, "expirationTimestamp": rfc3339(expires)});
    Ok(body)
}

fn invalid(name: &str, error: FieldError) -> Box<Status> {
    let kind = GroupKind::new("authentication.k8s.io", "TokenRequest");
    Box::new(Status::invalid(&kind, name, &ErrorList::from(vec![error])))
}

fn check_names(request: TokenRequest<'_>, body: &Value) -> Answer<()> {
    let metadata = Path::new("metadata");
    for (key, wanted, what) in [("name", request.name, "name"), ("namespace", request.namespace, "namespace")] {
        let given = body["metadata"][key].as_str().unwrap_or_default();
        if !given.is_empty() && given != wanted {
            let detail = format!("must match the service account {what} if specified");
            return Err(invalid(request.name, FieldError::invalid(&metadata.child(key), given, detail)));
        }
    }
    Ok(())
}

fn check_lifetime(seconds: i64) -> Answer<()> {
    let spec = Path::new("spec");
    let path = spec.child("expirationSeconds");
    if seconds < MIN_EXPIRATION {
        return Err(invalid("", FieldError::invalid(&path, seconds, "may not specify a duration less than 10 minutes")));
    }
    if seconds > MAX_EXPIRATION {
        return Err(invalid("", FieldError::invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds")));
    }
    Ok(())
}

/// Defaults and what the server sets in the answer.
fn fill(request: TokenRequest<'_>, body: &mut Value, uid: &str, issuer: &Issuer) {
    for part in ["metadata", "spec"] {
        if !body[part].is_object() {
            body[part] = json!({});
        }
    }
    let metadata = &mut body["metadata"];
    metadata["name"] = request.name.into();
    metadata["namespace"] = request.namespace.into();
    metadata["uid"] = uid.into();
    metadata["creationTimestamp"] = rfc3339(request.now).into();
    let spec = &mut body["spec"];
    if strings(&spec["audiences"]).is_empty() {
        spec["audiences"] = json!(issuer.audiences);
    }
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = DEFAULT_EXPIRATION.into();
    }
    if spec.get("boundObjectRef").is_none() {
        // The field has no `omitempty` upstream.
        spec["boundObjectRef"] = Value::Null;
    }
}

/// Looks up the object that the token is to die with.
fn bind(request: TokenRequest<'_>, reference: &Value, bound: &mut Bound, lookups: &dyn Lookups) -> Answer<()> {
    if !reference.is_object() {
        return Ok(());
    }
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (api_version, kind, name, wanted_uid) = (text("apiVersion"), text("kind"), text("name"), text("uid"));
    let version = GroupVersion::parse(api_version).unwrap_or_default();
    let find = |resource: &str, namespace: &str| {
        let found = lookups.get("", resource, namespace, name);
        found.ok_or_else(|| Box::new(Status::not_found(&GroupResource::new("", resource), name)))
    };
    let uid_of = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let uid = match (version.group.as_str(), kind) {
        ("", "Pod") => {
            let pod = find("pods", request.namespace)?;
            if pod["spec"]["serviceAccountName"].as_str().unwrap_or_default() != request.name {
                let account = quote(request.name);
                let why = format!("cannot bind token for serviceaccount {account} to pod running with different serviceaccount name.");
                return Err(Box::new(Status::bad_request(why)));
            }
            if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
                let uid = lookups.identity("", "nodes", "", node).map(|found| found.uid).unwrap_or_default();
                bound.node = Some(Reference { name: node.to_owned(), uid });
            }
            let uid = uid_of(&pod);
            bound.pod = Some(Reference { name: name.to_owned(), uid: uid.clone() });
            uid
        }
        ("", "Node") => {
            let uid = uid_of(&find("nodes", "")?);
            bound.node = Some(Reference { name: name.to_owned(), uid: uid.clone() });
            uid
        }
        ("", "Secret") => {
            let uid = uid_of(&find("secrets", request.namespace)?);
            bound.secret = Some(Reference { name: name.to_owned(), uid: uid.clone() });
            uid
        }
        _ => {
            let kind = version.with_kind(kind);
            return Err(Box::new(Status::bad_request(format!("cannot bind token to object of type {kind}"))));
        }
    };
    if !wanted_uid.is_empty() && wanted_uid != uid {
        let why = format!(
            "the UID in the bound object reference ({wanted_uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Box::new(Status::conflict(&GroupResource::new(version.group, kind), name, why)));
    }
    Ok(())
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}
