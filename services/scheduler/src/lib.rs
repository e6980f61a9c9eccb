//! The default scheduler: finds a node for every pod that has none, as upstream's kube-scheduler 1.36 does with its default profile.
//!
//! ```text
//! Feed -> driver (Scheduler) -> engine: snapshot + queue -> cycle (filters, scores) -> binding | condition, event, preemption
//! ```
//!
//! `engine` and everything below it are pure: a change or a time goes in, a step comes out. `driver` and `binder` turn steps into requests to the API server,
//! which RBAC and admission see as those of `system:kube-scheduler`. It runs where the leader is; a new leader builds everything anew from its view.
//!
//! Not here: what needs volumes (binding of claims, zones and limits of volumes) and dynamic resources. A pod that uses them is placed by its other
//! requirements.

pub mod binder;
pub mod change;
pub mod cycle;
pub mod diagnosis;
pub mod driver;
pub mod engine;
pub mod index;
pub mod metrics;
pub mod node;
pub mod plugins;
pub mod pod;
pub mod queue;
pub mod resources;
pub mod snapshot;
pub mod terms;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;

pub use driver::Scheduler;
pub use metrics::SchedulerMetrics;
