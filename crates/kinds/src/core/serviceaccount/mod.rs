//! ServiceAccount: an identity for pods. Tokens are asked for at `token`; the API server signs them.

pub mod reconcile;

use k8s_openapi::api::core::v1::{ObjectReference, ServiceAccount};

use crate::kind::Verb;
use crate::prelude::*;

pub struct ServiceAccountKind;

impl TypedKind for ServiceAccountKind {
    type Object = ServiceAccount;

    const INFO: KindInfo = KindInfo {
        short_names: &["sa"],
        subresources: &[Subresource {
            name: "token",
            body: Some(("authentication.k8s.io", "v1", "TokenRequest")),
            verbs: &[Verb::Create],
            action: Action::Token,
        }],
        ..KindInfo::namespaced("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount")
    };

    fn prepare_create(object: &mut ServiceAccount, _: &RequestContext<'_>) -> Verdict {
        keep_names_only(object);
        Verdict::default()
    }

    fn prepare_update(new: &mut ServiceAccount, _: &ServiceAccount, _: &RequestContext<'_>) -> Verdict {
        keep_names_only(new);
        Verdict::default()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::AGE];

    fn row(object: &ServiceAccount, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), table::age(&object.metadata, now)]
    }
}

/// Secrets are always of the account's own namespace, so of a reference only the name counts.
fn keep_names_only(object: &mut ServiceAccount) {
    for secret in object.secrets.iter_mut().flatten() {
        *secret = ObjectReference { name: secret.name.take(), ..ObjectReference::default() };
    }
}
