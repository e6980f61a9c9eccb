//! What this cluster accepts as proof of an identity.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use wheelhouse_access::token::{Claims, Issuer, SignatureError};

/// Verified tokens that are remembered per cluster: about 500 bytes each, two generations of them.
const REMEMBERED_TOKENS: usize = 512;

/// Trust anchors and keys, replaced as a whole when one of them is renewed.
pub struct Credentials {
    /// DER certificates of the authorities whose client certificates are accepted.
    pub client_cas: Vec<Vec<u8>>,
    pub issuer: Issuer,
    /// Whether a request without credentials acts as `system:anonymous` instead of being refused.
    pub anonymous: bool,
    pub(super) generation: u64,
}

impl Credentials {
    pub fn new(client_cas: Vec<Vec<u8>>, issuer: Issuer) -> Self {
        Self { client_cas, issuer, anonymous: true, generation: 0 }
    }
}

/// The credentials in force, and the tokens whose signatures were already verified with them.
pub(super) struct CredentialStore {
    current: RwLock<Arc<Credentials>>,
    tokens: Mutex<TokenCache>,
}

type Digest = [u8; 32];

/// A cache in two generations: what was not used while the young one filled up is forgotten.
#[derive(Default)]
struct TokenCache {
    young: HashMap<Digest, Arc<Claims>>,
    old: HashMap<Digest, Arc<Claims>>,
    generation: u64,
}

impl CredentialStore {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self { current: RwLock::new(Arc::new(credentials)), tokens: Mutex::default() }
    }

    pub(super) fn current(&self) -> Arc<Credentials> {
        self.current.read().clone()
    }

    pub(super) fn replace(&self, mut credentials: Credentials) {
        let mut current = self.current.write();
        credentials.generation = current.generation + 1;
        *current = Arc::new(credentials);
    }

    /// The claims of a token that one of the issuer's keys signed. Only the signature is remembered: everything that can change is
    /// checked by the caller, every time.
    pub(super) fn verify(&self, credentials: &Credentials, token: &str) -> Result<Arc<Claims>, SignatureError> {
        let digest = wheelhouse_access::authn::token_digest(token);
        if let Some(claims) = self.tokens.lock().get(credentials.generation, &digest) {
            return Ok(claims);
        }
        let claims = Arc::new(credentials.issuer.verify(token)?);
        self.tokens.lock().insert(credentials.generation, digest, claims.clone());
        Ok(claims)
    }
}

impl TokenCache {
    fn get(&mut self, generation: u64, digest: &Digest) -> Option<Arc<Claims>> {
        if self.generation != generation {
            return None;
        }
        if let Some(claims) = self.young.get(digest) {
            return Some(claims.clone());
        }
        let claims = self.old.remove(digest)?;
        self.insert(generation, *digest, claims.clone());
        Some(claims)
    }

    fn insert(&mut self, generation: u64, digest: Digest, claims: Arc<Claims>) {
        if self.generation != generation {
            *self = Self { generation, ..Self::default() };
        }
        if self.young.len() >= REMEMBERED_TOKENS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, claims);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_keeps_what_is_used_and_stays_small() {
        let mut cache = TokenCache::default();
        let digest = |i: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&i.to_le_bytes());
            digest
        };
        for i in 0..REMEMBERED_TOKENS * 5 {
            cache.insert(0, digest(i), Arc::default());
            assert!(cache.get(0, &digest(0)).is_some(), "{i}");
            assert!(cache.young.len() + cache.old.len() <= 2 * REMEMBERED_TOKENS);
        }
        assert!(cache.get(0, &digest(1)).is_none());
        assert!(cache.get(1, &digest(0)).is_none());
    }
}
