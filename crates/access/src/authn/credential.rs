//! Revocable client certificates: those that tenants' kubeconfigs hold.
//!
//! A certificate whose common name is `tenant:<tenant>:<id>` counts while the Secret `kube-system/wheelhouse-credential-<id>` exists and names the same
//! user. Revoking is deleting that Secret, so it holds on every replica and needs no list of revoked certificates. The Secret gives nothing by itself: only
//! the cluster's authority makes certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::lookups::Lookups;

const USER_PREFIX: &str = "tenant:";
const SECRET_PREFIX: &str = "wheelhouse-credential-";
/// `type` of the Secrets that stand for credentials.
const SECRET_TYPE: &str = "wheelhouse.dev/credential";

/// The credential's id, if `user` is one that can be revoked.
pub fn id_of(user: &str) -> Option<&str> {
    user.strip_prefix(USER_PREFIX)?.split_once(':').map(|(_, id)| id)
}

/// Whether a certificate for `user` still counts.
pub fn is_alive(user: &str, lookups: &dyn Lookups) -> bool {
    let Some(id) = id_of(user) else { return true };
    let Some(secret) = lookups.get("", "secrets", "kube-system", &format!("{SECRET_PREFIX}{id}")) else { return false };
    secret["type"] == SECRET_TYPE && secret["data"]["user"].as_str() == Some(STANDARD.encode(user).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookups::MemoryLookups;
    use serde_json::json;

    #[test]
    fn a_tenants_certificate_lives_as_long_as_its_secret() {
        let secret = |kind: &str, user: &str| {
            let metadata = json!({"name": "wheelhouse-credential-k1", "namespace": "kube-system"});
            MemoryLookups::default().with("", "secrets", json!({"metadata": metadata, "type": kind, "data": {"user": STANDARD.encode(user)}}))
        };
        assert!(is_alive("tenant:t1:k1", &secret(SECRET_TYPE, "tenant:t1:k1")));
        assert!(!is_alive("tenant:t1:k1", &MemoryLookups::default()), "revoked");
        assert!(!is_alive("tenant:t2:k1", &secret(SECRET_TYPE, "tenant:t1:k1")), "another's");
        assert!(!is_alive("tenant:t1:k1", &secret("Opaque", "tenant:t1:k1")), "somebody else's Secret of that name");
        assert!(is_alive("jane", &MemoryLookups::default()), "other certificates end by expiry alone");
    }
}
