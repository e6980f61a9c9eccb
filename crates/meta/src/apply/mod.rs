//! Server-side apply and field management (KEP-555).
//!
//! Every write records in `metadata.managedFields` which paths its manager owns. Creates and updates own what they changed; an apply owns
//! what its body contains, takes nothing from others without `force`, and removes what it owned before and no longer mentions.
//!
//! ```text
//! update:  (live, new)     -> new     with managedFields
//! apply:   (live, applied) -> merged  with managedFields, or conflicts
//! ```
//!
//! Objects are decoded, defaulted `Value`s in one version, in canonical form (`wheelhouse_schema::normalise`): ownership of an empty
//! value depends on whether the type writes it. After an apply the caller defaults and normalises the result again. Sets recorded under
//! another version are followed through [`Versions`].

mod compare;
mod conflict;
mod last_applied;
mod managed;
mod manager;
mod merge;
mod path;
mod remove;
mod scale;
mod server_side;
mod set;
mod typed;
mod update;

pub use compare::Comparison;
pub use conflict::Conflicts;
pub use last_applied::LAST_APPLIED;
pub use managed::{MAX_UPDATE_MANAGERS, Managed, ManagedError, ManagerId, Operation, Owned};
pub use manager::{Manager, SingleVersion, Versions, manager_name};
pub use path::{ParsePathElementError, PathElement, Scalar, print_path};
pub use scale::{ReplicaPaths, managed_fields_of_parent, managed_fields_of_scale};
pub use server_side::{ApplyError, apply, check_type};
pub use set::{FieldsError, Node, Set};
pub use update::update;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
