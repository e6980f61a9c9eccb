//! The chain of authorizers: the superuser group, then RBAC.
//!
//! Each may allow; none denies; whoever has something to say about a refusal adds to its reason.

use crate::attributes::{Attributes, Decision};
use crate::rbac::Policy;
use crate::user::User;

/// Whether the request may go on. Members of `system:masters` may do everything, whatever the policy holds.
pub fn authorize(policy: &Policy, attributes: &Attributes<'_>) -> Decision {
    if attributes.user.in_group(User::MASTERS) {
        return Decision::Allow { reason: String::new() };
    }
    policy.authorize(attributes)
}
