//! Role-based access control: rules, the indexed policy, and what it says.

pub mod escalation;
pub mod forbidden;
pub mod policy;
pub mod rule;
mod shared;

pub use forbidden::forbidden;
pub use policy::{Policy, PolicyError, PolicyKind, RoleNotFound, RoleRef, RulesFor, Subject};
pub use rule::Rule;

#[cfg(test)]
mod tests;
