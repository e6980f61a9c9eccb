//! `apps/v1`.

pub mod controllerrevision;
pub mod deployment;
pub mod replicaset;
mod workload;
