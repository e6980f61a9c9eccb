//! Suites that look at the whole: the workspace's own rules, and the service as its users meet it.
//!
//! [`Service`] is `wheelhouse up` on ports and directories of its own, driven by the real `wheelhouse`, `kubectl` and `curl` alone.

mod https;
mod service;
mod wait;

pub use https::{Answer, Https, Request};
pub use service::{Kubectl, Ran, Service, Tenant, binary};
pub use wait::until;
