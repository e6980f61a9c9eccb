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
    /// The requirements of a collection request's field selector, for authorizers that decide by them (a node may list only its own pods).
    pub field_selector: &'a [FieldRequirement],
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

/// One requirement `field = value` or `field != value` of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    pub field: String,
    /// Whether the values must differ.
    pub negated: bool,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// `reason` names the binding and role that allowed it, as upstream's audit annotation does.
    Allow { reason: String },
    /// Nobody allowed it. `reason` may be empty.
    NoOpinion { reason: String },
}

impl<'a> Attributes<'a> {
    pub fn new(user: &'a User, verb: &'a str, target: Target<'a>) -> Self {
        Self { user, verb, target, field_selector: &[] }
    }

    /// Empty for paths, cluster-scoped objects and lists over all namespaces.
    pub fn namespace(&self) -> &'a str {
        match self.target {
            Target::Resource { namespace, .. } => namespace,
            Target::Path(_) => "",
        }
    }

    /// Empty for paths and collections.
    pub fn name(&self) -> &'a str {
        match self.target {
            Target::Resource { name, .. } => name,
            Target::Path(_) => "",
        }
    }
}

impl Decision {
    pub fn allowed(&self) -> bool {
        matches!(self, Decision::Allow { .. })
    }

    pub fn reason(&self) -> &str {
        match self {
            Decision::Allow { reason } | Decision::NoOpinion { reason } => reason,
        }
    }
}
