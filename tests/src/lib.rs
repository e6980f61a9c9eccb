//! Suites that look at the whole: the workspace's own rules, and the service as its users meet it.
//!
//! [`Service`] is `wheelhouse up` on ports and directories of its own, driven by the real `wheelhouse`, `kubectl` and `curl` alone.

mod history;
mod https;
mod machine;
pub mod process;
mod service;
mod wait;
mod writer;

pub use history::{Load, Settled};
pub use https::{Answer, Https, Request};
pub use machine::{Endpoint, Machine};
pub use process::Process;
pub use service::{Kubectl, Options, Ran, Service, Tenant, binary};
pub use wait::until;
pub use writer::Writer;
