//! Authentication: from credentials to a [`User`].
//!
//! ```text
//! client certificate --x509--\
//! bearer token --service_account, bootstrap_token--> User + system:authenticated
//! nothing at all ------------------------------------> system:anonymous
//! ```
//!
//! Credentials that prove nothing are answered 401 and never fall back to anonymous.

pub mod bootstrap_token;
pub mod credential;
pub mod service_account;
pub mod x509;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use wheelhouse_base::Timestamp;

use crate::lookups::Lookups;
use crate::token::{Claims, Issuer, SignatureError};
use crate::user::User;
use service_account::Accepted;

/// The extra field that names the credential a user came with.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The subprotocol by which a browser sends a bearer token with a WebSocket.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The bearer token that the headers carry, if any.
pub fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(http::header::AUTHORIZATION).and_then(|v| v.to_str().ok()).unwrap_or_default().trim();
    let mut parts = header.splitn(3, ' ');
    if parts.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"))
        && let Some(token) = parts.next().filter(|t| !t.is_empty())
    {
        return Some(token.to_owned());
    }
    let upgrade = headers.get(http::header::UPGRADE).and_then(|v| v.to_str().ok()).is_some_and(|v| v.eq_ignore_ascii_case("websocket"));
    if !upgrade {
        return None;
    }
    let offered = headers.get_all(http::header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok());
    let encoded = offered.flat_map(|v| v.split(',')).find_map(|p| p.trim().strip_prefix(WEBSOCKET_PREFIX))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok().filter(|t| !t.is_empty())
}

/// A token's SHA-256, by which it can be remembered without keeping it.
pub fn token_digest(token: &str) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Adds `system:authenticated`, which everybody has who proved who they are.
pub fn authenticated(mut user: User) -> User {
    if !user.in_group(User::AUTHENTICATED) && !user.in_group(User::UNAUTHENTICATED) {
        user.groups.push(User::AUTHENTICATED.to_owned());
    }
    user
}

/// A refused token. The text is what TokenReview tells the reviewer; the bearer itself learns only 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// No authenticator knows it.
    #[error("invalid bearer token")]
    Unknown,
    #[error("[invalid bearer token, {0}]")]
    Refused(String),
}

/// Authenticates a bearer token for one of `audiences`.
///
/// `claims` are those of a signature that was verified before (see [`Issuer::verify`]), so that a caller can remember verified tokens.
pub fn token(
    token: &str,
    claims: Result<&Claims, &SignatureError>,
    issuer: &Issuer,
    audiences: &[String],
    lookups: &dyn Lookups,
    now: Timestamp,
) -> Result<Accepted, InvalidToken> {
    match claims {
        Ok(claims) => {
            let accepted = service_account::accept(claims, issuer, audiences, lookups, now).map_err(|e| InvalidToken::Refused(e.to_string()))?;
            Ok(Accepted { user: authenticated(accepted.user), ..accepted })
        }
        Err(SignatureError::Foreign) => {
            // A bootstrap token names no audience: it is for this API server.
            let common: Vec<String> = issuer.audiences.iter().filter(|a| audiences.contains(a)).cloned().collect();
            if common.is_empty() {
                return Err(InvalidToken::Unknown);
            }
            let user = bootstrap_token::authenticate(token, lookups, now).ok_or(InvalidToken::Unknown)?;
            Ok(Accepted { user: authenticated(user), audiences: common, stale_for: None })
        }
        Err(error) => Err(InvalidToken::Refused(error.to_string())),
    }
}
