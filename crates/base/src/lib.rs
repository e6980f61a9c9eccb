//! The few words that every part of Wheelhouse shares: identifiers, revisions and the clock.
//!
//! Nothing here decides anything. A type lives in this crate only when two crates that do not depend on each other must agree on it.

mod clock;
mod ids;
pub mod limits;
pub mod routes;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use ids::{ClusterId, HostName, InvalidId, ReplicaId, Revision, Term};
