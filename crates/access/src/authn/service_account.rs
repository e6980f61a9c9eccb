//! Service-account tokens: is what they are bound to still there?
//!
//! ```text
//! token --(signature, cacheable)--> Claims --(audience, time, bound objects; every time)--> User
//! ```

use wheelhouse_base::Timestamp;
use wheelhouse_meta::gotext::quote;

use super::CREDENTIAL_ID;
use crate::lookups::{Identity, Lookups};
use crate::rbac::rule::quoted_list;
use crate::time;
use crate::token::{Claims, Issuer, Reference, TimeError};
use crate::user::User;

/// Why claims that our key signed are not accepted. The texts are upstream's: TokenReview shows them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("token audiences {} is invalid for the target audiences {}", quoted_list(.token), quoted_list(.target))]
    Audience { token: Vec<String>, target: Vec<String> },
    #[error(transparent)]
    Time(#[from] TimeError),
    #[error("serviceaccounts {} not found", quote(.0))]
    NoAccount(String),
    #[error("service account UID ({found}) does not match claim ({claimed})")]
    AccountUid { found: String, claimed: String },
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted { namespace: String, name: String },
    #[error("{kind} UID ({found}) does not match service account {kind} ref claim ({claimed})")]
    BoundUid { kind: &'static str, found: String, claimed: String },
    #[error("service account token has been invalidated")]
    Invalidated,
}

/// A user, and for which of the wanted audiences the token speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub user: User,
    pub audiences: Vec<String>,
    /// Seconds since the token should have been renewed, if its use is to be noted.
    pub stale_for: Option<i64>,
}

/// Accepts verified claims for one of `audiences`.
pub fn accept(claims: &Claims, issuer: &Issuer, audiences: &[String], lookups: &dyn Lookups, now: Timestamp) -> Result<Accepted, TokenError> {
    let spoken = if claims.aud.is_empty() { &issuer.audiences } else { &claims.aud };
    let common: Vec<String> = spoken.iter().filter(|a| audiences.contains(a)).cloned().collect();
    if common.is_empty() {
        return Err(TokenError::Audience { token: spoken.clone(), target: audiences.to_vec() });
    }
    claims.check_time(now)?;
    check_objects(claims, lookups, now)?;
    let stale_for = claims.kubernetes.warnafter.map(|after| now.as_secs() - after).filter(|late| *late > 0);
    Ok(Accepted { user: user(claims), audiences: common, stale_for })
}

fn check_objects(claims: &Claims, lookups: &dyn Lookups, now: Timestamp) -> Result<(), TokenError> {
    let bound = &claims.kubernetes;
    let (namespace, account) = (&bound.namespace, &bound.serviceaccount);
    let found = lookups.identity("", "serviceaccounts", namespace, &account.name).ok_or_else(|| TokenError::NoAccount(account.name.clone()))?;
    if found.uid != account.uid {
        return Err(TokenError::AccountUid { found: found.uid, claimed: account.uid.clone() });
    }
    if gone(&found, now) {
        return Err(TokenError::AccountDeleted { namespace: namespace.clone(), name: account.name.clone() });
    }
    let check = |kind: &'static str, resource: &str, namespace: &str, reference: &Reference| {
        let found = lookups.identity("", resource, namespace, &reference.name).ok_or(TokenError::Invalidated)?;
        if found.uid != reference.uid {
            return Err(TokenError::BoundUid { kind, found: found.uid, claimed: reference.uid.clone() });
        }
        if gone(&found, now) { Err(TokenError::Invalidated) } else { Ok(()) }
    };
    if let Some(secret) = &bound.secret {
        check("secret", "secrets", namespace, secret)?;
    }
    match (&bound.pod, &bound.node) {
        // A pod's node may come and go; the pod decides.
        (Some(pod), _) => check("pod", "pods", namespace, pod),
        (None, Some(node)) => check("node", "nodes", "", node),
        (None, None) => Ok(()),
    }
}

/// Deleted long enough ago that clocks cannot excuse it.
fn gone(object: &Identity, now: Timestamp) -> bool {
    let deleted = object.deletion_timestamp.as_deref().and_then(time::parse);
    deleted.is_some_and(|at| at.as_secs() < now.as_secs() - Claims::LEEWAY)
}

fn user(claims: &Claims) -> User {
    let bound = &claims.kubernetes;
    let (namespace, account) = (&bound.namespace, &bound.serviceaccount);
    let mut user = User {
        name: format!("system:serviceaccount:{namespace}:{}", account.name),
        uid: account.uid.clone(),
        groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
        ..User::default()
    };
    let mut note = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(key.to_owned(), vec![value.to_owned()]);
        }
    };
    if let Some(pod) = &bound.pod {
        note("authentication.kubernetes.io/pod-name", &pod.name);
        note("authentication.kubernetes.io/pod-uid", &pod.uid);
    }
    if let Some(node) = &bound.node {
        note("authentication.kubernetes.io/node-name", &node.name);
        note("authentication.kubernetes.io/node-uid", &node.uid);
    }
    if !claims.jti.is_empty() {
        note(CREDENTIAL_ID, &format!("JTI={}", claims.jti));
    }
    user
}
