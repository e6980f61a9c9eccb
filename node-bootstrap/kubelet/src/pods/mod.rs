//! Pods on this node: who is to run, and one worker for each.

pub mod cgroup;
mod executor;
pub mod files;
mod follow;
mod images;
mod manager;
mod references;
mod services;
mod worker;

pub use executor::{Executor, Parts as ExecutorParts};
pub use follow::{Followed, follow};
pub use manager::{ApiPods, Command, Manager, PodView, Shared, is_static};
pub use services::Services;
