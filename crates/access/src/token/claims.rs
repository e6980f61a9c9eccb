//! What a service-account token says.

use serde::{Deserialize, Deserializer, Serialize};
use wheelhouse_base::Timestamp;

/// The claims of a token, as upstream writes them. Times are seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    #[serde(default, deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    #[serde(default)]
    pub exp: Option<i64>,
    #[serde(default)]
    pub iat: Option<i64>,
    #[serde(default)]
    pub iss: String,
    #[serde(default)]
    pub jti: String,
    #[serde(rename = "kubernetes.io", default)]
    pub kubernetes: Bound,
    #[serde(default)]
    pub nbf: Option<i64>,
    #[serde(default)]
    pub sub: String,
}

/// The private claim: whom the token is for and what it dies with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    #[serde(default)]
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    #[serde(default)]
    pub serviceaccount: Reference,
    /// From then on the use of an extended token is noted in the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    #[serde(default)]
    pub name: String,
    /// Empty if the object did not exist when the token was made (a pod's node that is not registered yet).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// `aud` may be one string (RFC 7519, 4.1.3).
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Option::<Audience>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Audience::One(one)) => vec![one],
        Some(Audience::Many(many)) => many,
    })
}

/// Why a token is not valid now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYet,
    #[error("service account token is issued in the future")]
    FromTheFuture,
}

impl Claims {
    /// How far clocks may be apart, in seconds: upstream's leeway.
    pub const LEEWAY: i64 = 60;

    pub fn check_time(&self, now: Timestamp) -> Result<(), TimeError> {
        let now = now.as_secs();
        if self.nbf.is_some_and(|nbf| now + Self::LEEWAY < nbf) {
            return Err(TimeError::NotYet);
        }
        if self.exp.is_some_and(|exp| now - Self::LEEWAY > exp) {
            return Err(TimeError::Expired);
        }
        if self.iat.is_some_and(|iat| now + Self::LEEWAY < iat) {
            return Err(TimeError::FromTheFuture);
        }
        Ok(())
    }
}
