//! ApiKey: a credential for the tenant API, in the tenant's namespace. Only its hash is stored.
//!
//! A key reads `whk_<name of this object>_<43 base64url characters>`; the hash covers the whole text. Deleting the object revokes the key.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::field::{FieldError, Path};
use wheelhouse_schema::Schema;

use super::object::{Object, resource};
use super::{GROUP, VERSION, schema as shapes};
use crate::kind::{Column, KindInfo, RequestContext, Scope, TypedKind, Verb, Verdict};
use crate::table;

pub type ApiKey = Object<ApiKeySpec, NoStatus>;

resource!(ApiKey, "ApiKey", "apikeys", k8s_openapi::NamespaceResourceScope);

/// Room for a sentence.
const MAX_DESCRIPTION: usize = 256;

/// SHA-256 in lower-case hexadecimal.
const HASH_LENGTH: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeySpec {
    /// The tenant's id.
    #[serde(default)]
    pub tenant: String,
    /// SHA-256 of the whole key, 64 lower-case hexadecimal digits.
    #[serde(default)]
    pub hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// A key has no status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NoStatus {}

pub struct ApiKeyKind;

impl TypedKind for ApiKeyKind {
    type Object = ApiKey;

    const INFO: KindInfo = KindInfo {
        group: GROUP,
        version: VERSION,
        kind: "ApiKey",
        plural: "apikeys",
        singular: "apikey",
        short_names: &[],
        categories: &["fleet"],
        scope: Scope::Namespaced,
        verbs: Verb::ALL,
        subresources: &[],
        generation: true,
        create_on_update: false,
        unconditional_update: false,
    };

    fn schema() -> Option<Schema> {
        Some(schema())
    }

    fn prepare_create(object: &mut ApiKey, _: &RequestContext<'_>) -> Verdict {
        object.clear_status();
        validate(object)
    }

    fn prepare_update(new: &mut ApiKey, old: &ApiKey, _: &RequestContext<'_>) -> Verdict {
        new.clear_status();
        let mut verdict = validate(new);
        let spec = Path::new("spec");
        if new.spec.hash != old.spec.hash {
            verdict.errors.push(FieldError::immutable(&spec.child("hash"), &new.spec.hash));
        }
        if new.spec.tenant != old.spec.tenant {
            verdict.errors.push(FieldError::immutable(&spec.child("tenant"), &new.spec.tenant));
        }
        verdict
    }

    const COLUMNS: &'static [Column] =
        &[table::NAME, table::text("Tenant", "Whose key it is."), table::text("Description", "What the key is for."), table::AGE];

    fn row(object: &ApiKey, now: Timestamp) -> Vec<Value> {
        let spec = &object.spec;
        vec![object.name().into(), spec.tenant.as_str().into(), spec.description.as_str().into(), table::age(&object.metadata, now)]
    }
}

fn validate(key: &ApiKey) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = Path::new("spec");
    let hash = spec.child("hash");
    if key.spec.hash.is_empty() {
        verdict.errors.push(FieldError::required(&hash, ""));
    } else if key.spec.hash.len() != HASH_LENGTH || !key.spec.hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        verdict.errors.push(FieldError::invalid(&hash, &key.spec.hash, "must be a SHA-256 in lower-case hexadecimal"));
    }
    let tenant = spec.child("tenant");
    if key.spec.tenant.is_empty() {
        verdict.errors.push(FieldError::required(&tenant, ""));
    } else if key.namespace() != super::tenant_namespace(&key.spec.tenant) {
        verdict.errors.push(FieldError::invalid(&tenant, &key.spec.tenant, "must be the tenant whose namespace holds the key"));
    }
    if key.spec.description.len() > MAX_DESCRIPTION {
        verdict.errors.push(FieldError::too_long(&spec.child("description"), MAX_DESCRIPTION));
    }
    verdict
}

pub fn schema() -> Schema {
    let spec =
        shapes::structure([("tenant", shapes::string()), ("hash", shapes::string()), ("created", shapes::time()), ("description", shapes::string())]);
    shapes::object(spec, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_its_namespace() {
        let spec = ApiKeySpec { tenant: "t1".into(), hash: "0".repeat(64), ..ApiKeySpec::default() };
        assert!(validate(&Object::new("ApiKey", "tenant-t1", "k", spec.clone())).errors.is_empty());
        assert_eq!(validate(&Object::new("ApiKey", "tenant-t2", "k", spec.clone())).errors.len(), 1);
        let clear_text = ApiKeySpec { hash: "whk_k_secret".into(), ..spec };
        assert_eq!(validate(&Object::new("ApiKey", "tenant-t1", "k", clear_text)).errors.len(), 1);
    }
}
