//! The cluster's security as the request path uses it: thin shells around the decisions of `wheelhouse-access`.
//!
//! ```text
//! connection, headers --authenticate--> User --impersonate--> User --authorize--> Decision
//! decoded object      --admit_mutating--> (validation) --admit_validating--> store
//! ```
//!
//! One [`Security`] belongs to one cluster's replica. It reads the store's snapshots and holds the derived policy; it writes nothing.

mod lookups;
mod policy_view;

use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;
use wheelhouse_access::impersonation::{self, Impersonated};
use wheelhouse_access::rbac::forbidden::forbidden;
use wheelhouse_access::{Answer, Attributes, Decision, admission, authorizer};
use wheelhouse_store::Store;

pub use lookups::SnapshotLookups;
use policy_view::PolicyView;

pub struct Security {
    store: Arc<dyn Store>,
    policy: PolicyView,
}

impl Security {
    /// Decides by the newest state this replica has applied.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        authorizer::authorize(&self.policy.current(&*self.store), attributes)
    }

    /// As [`Security::authorize`], with a refusal made into the 403 that the client gets.
    pub fn require(&self, attributes: &Attributes<'_>) -> Answer<Decision> {
        let decision = self.authorize(attributes);
        match &decision {
            Decision::Allow { .. } => Ok(decision),
            Decision::NoOpinion { reason } => Err(Box::new(forbidden(attributes, reason))),
        }
    }

    /// The user that the request acts as, if its headers name one. `attributes` carry the authenticated user.
    pub fn impersonate(&self, attributes: &Attributes<'_>, headers: &HeaderMap) -> Answer<Option<Impersonated>> {
        impersonation::impersonate(headers, attributes, &|check| self.authorize(check))
    }

    /// Mutating admission of a create or update, and what must be checked right after it: whether the user may grant the rights that
    /// an RBAC object grants. Call it before validation. The answer holds texts for `Warning` headers.
    pub fn admit_mutating(&self, request: &admission::Request<'_>, object: &mut Value) -> Answer<Vec<String>> {
        admission::mutate(request, object, &self.lookups())
    }

    /// Validating admission of a write; `object` is `None` for deletes. Call it after validation.
    pub fn admit_validating(&self, request: &admission::Request<'_>, object: Option<&Value>) -> Answer<Vec<String>> {
        admission::validate(request, object, &self.lookups())
    }

    /// What decisions look up, as this replica's newest state holds it.
    pub fn lookups(&self) -> SnapshotLookups {
        SnapshotLookups(self.store.snapshot())
    }
}

