//! Secret: sensitive data, read by pods.
//!
//! `type` never changes and says which keys must be there. `stringData` is a convenience for writers: it is folded into `data` before anything
//! looks at the object, and never stored. Once `immutable` is set, neither the data nor the flag changes again.

mod columns;
mod defaults;
mod strategy;
mod validate;

use k8s_openapi::api::core::v1::Secret;

use crate::prelude::*;

pub struct SecretKind;

/// The values of `type` that the API server knows.
pub mod types {
    pub const OPAQUE: &str = "Opaque";
    pub const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
    pub const DOCKERCFG: &str = "kubernetes.io/dockercfg";
    pub const DOCKERCONFIGJSON: &str = "kubernetes.io/dockerconfigjson";
    pub const BASIC_AUTH: &str = "kubernetes.io/basic-auth";
    pub const SSH_AUTH: &str = "kubernetes.io/ssh-auth";
    pub const TLS: &str = "kubernetes.io/tls";
}

impl TypedKind for SecretKind {
    type Object = Secret;

    const INFO: KindInfo = KindInfo::namespaced("", "v1", "Secret", "secrets", "secret");

    fn default(object: &mut Secret) {
        defaults::apply(object);
    }

    fn prepare_create(object: &mut Secret, _: &RequestContext<'_>) -> Verdict {
        Verdict { errors: validate::create(object), warnings: validate::warnings(object) }
    }

    fn prepare_update(new: &mut Secret, old: &Secret, _: &RequestContext<'_>) -> Verdict {
        strategy::update(new, old);
        Verdict { errors: validate::update(new, old), warnings: validate::warnings(new) }
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Secret, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }

    const SELECTABLE: &'static [&'static str] = &["type"];

    fn selectable_from_value(object: &Value) -> Option<Vec<(&'static str, String)>> {
        Some(vec![("type", validation::text_at(object, "type"))])
    }
}
