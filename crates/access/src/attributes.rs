//! What a request asks for, in the words that authorization, admission and audit share.

use crate::user::User;

/// One access, as `authorization.k8s.io` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub user: &'a User,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`, `impersonate`, `bind`, `escalate` …; the
    /// lower-cased HTTP method for non-resource requests.
    pub verb: &'a str,
    pub target: Target<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    Resource {
        group: &'a str,
        version: &'a str,
        resource: &'a str,
        /// Empty for the object itself.
        subresource: &'a str,
        /// Empty for cluster-scoped objects and for lists over all namespaces.
        namespace: &'a str,
        /// Empty for collections.
        name: &'a str,
    },
    /// A path outside the API groups, e.g. `/healthz`.
    Path(&'a str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// `reason` names the binding and role that allowed it, as upstream's audit annotation does.
    Allow { reason: String },
    /// Nobody allowed it. `reason` may be empty.
    NoOpinion { reason: String },
}

impl Decision {
    pub fn allowed(&self) -> bool {
        matches!(self, Decision::Allow { .. })
    }
}
