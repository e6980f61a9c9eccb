//! Who may do what: identities, authorization and admission as pure decisions.
//!
//! ```text
//! credentials -> authn (User) -> impersonation -> Attributes -> authorizer (Decision) -> admission (mutate, validate)
//! ```
//!
//! The API server reads the credentials off a connection and feeds policy objects in as they change; what they mean is decided here.

pub mod admission;
pub mod attributes;
pub mod audit;
pub mod authn;
pub mod authorizer;
pub mod bootstrap;
pub mod field_selector;
pub mod impersonation;
pub mod lookups;
pub mod rbac;
pub mod review;
pub mod time;
pub mod token;
pub mod user;

pub use attributes::{Attributes, Decision, FieldRequirement, Target};
pub use lookups::{Answer, Identity, Lookups, MemoryLookups};
pub use user::User;
