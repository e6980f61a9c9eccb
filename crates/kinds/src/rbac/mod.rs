//! `rbac.authorization.k8s.io/v1`.
//!
//! Who may write which role or binding (escalation checks) needs an authorizer and is the API server's.

mod rules;
mod subjects;

pub mod clusterrole;
pub mod clusterrolebinding;
pub mod role;
pub mod rolebinding;

/// The group's name, which references and subjects carry.
pub const GROUP: &str = "rbac.authorization.k8s.io";
