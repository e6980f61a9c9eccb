//! API keys: `whk_<id>_<43 base64url characters>`, kept as SHA-256 in `ApiKey` objects.
//!
//! An id begins with its tenant's id, so a key is found with one read and no index. A revoked key ends with its object: nothing is cached.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use wheelhouse_client::{Api, Client};
use wheelhouse_kinds::fleet::{self, ApiKey, Tenant};

use crate::problem::Problem;
use crate::state::{App, random_bytes, random_id};

/// Characters of a tenant's id: 50 bits.
pub const TENANT_ID_LENGTH: usize = 10;
/// Characters that tell a tenant's keys apart.
const KEY_SUFFIX_LENGTH: usize = 8;
const SECRET_BYTES: usize = 32;
/// All tenants. Nothing is bound to it: a tenant's rights in its own namespace are bound to its user alone.
pub const TENANTS_GROUP: &str = "wheelhouse:tenants";

/// The user that calls for a tenant are made as.
pub fn tenant_user(tenant: &str) -> String {
    format!("wheelhouse:tenant:{tenant}")
}

/// A freshly made key. Its text leaves this process once, in the answer that made it.
pub struct NewKey {
    pub id: String,
    pub text: String,
    pub hash: String,
}

impl NewKey {
    pub fn for_tenant(tenant: &str) -> Self {
        let id = format!("{tenant}{}", random_id(KEY_SUFFIX_LENGTH));
        let text = format!("whk_{id}_{}", URL_SAFE_NO_PAD.encode(random_bytes(SECRET_BYTES)));
        let hash = sha256(&text);
        Self { id, text, hash }
    }
}

/// Lower-case hexadecimal.
pub fn sha256(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The tenant part and the id of a key's text; `None` when it has not a key's form.
fn parse(text: &str) -> Option<(&str, &str)> {
    let (id, secret) = text.strip_prefix("whk_")?.split_once('_')?;
    let base32 = id.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'2'..=b'7'));
    let well_formed = base32 && id.len() == TENANT_ID_LENGTH + KEY_SUFFIX_LENGTH && secret.len() == 43;
    well_formed.then(|| (&id[..TENANT_ID_LENGTH], id))
}

/// What a suspended tenant may still look at, so that it learns that it is.
const OWN_ACCOUNT: &str = "/v1/tenants/me";

/// The tenant that a request comes from: proof that its key was checked. Calls for a tenant are made through it.
pub struct Caller {
    pub tenant: Tenant,
    client: Client,
}

impl Caller {
    pub fn id(&self) -> &str {
        self.tenant.name()
    }

    pub fn namespace(&self) -> String {
        fleet::tenant_namespace(self.id())
    }

    pub fn clusters(&self) -> Api<'_> {
        self.client.api(fleet::GROUP, fleet::VERSION, "clusters", &self.namespace())
    }

    pub fn api_keys(&self) -> Api<'_> {
        self.client.api(fleet::GROUP, fleet::VERSION, "apikeys", &self.namespace())
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Some(header) = parts.headers.get(AUTHORIZATION) else {
            return Err(Problem::unauthorized("send `Authorization: Bearer whk_…`; `wheelhouse signup` makes a key"));
        };
        let key = header.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
        let refused = || Problem::unauthorized("the API key is not valid: it may have been revoked");
        let key = key.ok_or_else(refused)?;
        let (tenant, id) = parse(key).ok_or_else(refused)?;
        let namespace = fleet::tenant_namespace(tenant);
        let stored: Option<ApiKey> = app
            .system
            .api(fleet::GROUP, fleet::VERSION, "apikeys", &namespace)
            .find(id)
            .await
            .map_err(|error| Problem::from_client("API key", id, &error))?;
        let stored = stored.ok_or_else(refused)?;
        verify_slices_are_equal(stored.spec.hash.as_bytes(), sha256(key).as_bytes()).map_err(|_| refused())?;
        let tenant: Option<Tenant> = app
            .system
            .api(fleet::GROUP, fleet::VERSION, "tenants", "")
            .find(tenant)
            .await
            .map_err(|error| Problem::from_client("tenant", tenant, &error))?;
        let tenant = tenant.filter(|tenant| !tenant.is_deleting()).ok_or_else(refused)?;
        if tenant.spec.suspended && !(parts.method == Method::GET && parts.uri.path() == OWN_ACCOUNT) {
            return Err(Problem::suspended());
        }
        let user = tenant_user(tenant.name());
        let client = app.system.clone().impersonating(&user, &[TENANTS_GROUP, "system:authenticated"]);
        let client = client.ok_or_else(|| Problem::internal("the tenant's name does not fit a header"))?;
        Ok(Self { tenant, client })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_parse_and_hash() {
        let key = NewKey::for_tenant("abcdefghij");
        assert_eq!(parse(&key.text), Some(("abcdefghij", key.id.as_str())));
        assert_eq!(key.hash, sha256(&key.text));
        assert_ne!(NewKey::for_tenant("abcdefghij").text, key.text);
    }

    #[test]
    fn malformed_keys_are_refused_before_any_read() {
        let good = NewKey::for_tenant("abcdefghij").text;
        let cut = &good[..good.len() - 1];
        for bad in ["", "whk_", "whk__", cut, &good.to_uppercase(), &good.replace("whk_abc", "whk_../")] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_known_digest() {
        assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
