//! What every process of Wheelhouse needs before it does its own work: supervised tasks, shutdown, TLS, logs, traces and metrics.
//!
//! ```text
//! main: parse flags -> telemetry::init -> Tasks (one tree, one stop) -> services -> shutdown::requested -> Tasks::stop
//! ```
//!
//! Nothing here is global but the log subscriber, which the `tracing` crate wants to be.

pub mod certificate_files;
pub mod first_bytes;
pub mod gather;
pub mod metrics;
pub mod problems;
pub mod proxy;
pub mod shutdown;
pub mod status_server;
pub mod tasks;
pub mod telemetry;
pub mod tls;
pub mod trace_context;

pub use certificate_files::CertificateFiles;
pub use first_bytes::first_bytes;
pub use gather::Gather;
pub use metrics::Metrics;
pub use problems::Problems;
pub use shutdown::{Stop, StopHandle};
pub use tasks::Tasks;
