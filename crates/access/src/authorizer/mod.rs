//! The chain of authorizers: the superuser group, then the Node authorizer, then RBAC.
//!
//! Each may allow; none denies; whoever has something to say about a refusal adds to its reason.

pub mod node;

use crate::attributes::{Attributes, Decision};
use crate::rbac::Policy;
use crate::user::User;
use node::Nodes;

/// Whether the request may go on. Members of `system:masters` may do everything, whatever the policy holds.
///
/// `nodes` is asked for only when the user is a node, so that a cluster without nodes never builds the graph.
pub fn authorize(policy: &Policy, nodes: Option<Nodes<'_>>, attributes: &Attributes<'_>) -> Decision {
    if attributes.user.in_group(User::MASTERS) {
        return Decision::Allow { reason: String::new() };
    }
    let as_node = nodes.map(|nodes| node::authorize(nodes, attributes)).filter(|_| node::is_node(attributes.user));
    let first = match as_node {
        Some(Decision::NoOpinion { reason }) => reason,
        Some(allowed) => return allowed,
        None => String::new(),
    };
    match policy.authorize(attributes) {
        Decision::NoOpinion { reason } => {
            let reasons: Vec<String> = [first, reason].into_iter().filter(|r| !r.is_empty()).collect();
            Decision::NoOpinion { reason: reasons.join("\n") }
        }
        allowed => allowed,
    }
}
