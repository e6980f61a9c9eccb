//! The API server of one cluster's replica.
//!
//! ```text
//!  TLS connection, or a call in this process
//!         | connection.rs
//!         v
//!  server.rs: authenticate -> limit -> impersonate -> authorize -> dispatch.rs
//!         |                                                |
//!  nonresource.rs: discovery, OpenAPI, health        registry/: create, update, patch, delete, subresources
//!                                                    list/, watch/: streamed reads
//!         '----------------------> storage.rs <------------'      one store, one transaction per write
//! ```
//!
//! Objects are `serde_json::Value`s on their way in and bytes at rest ([`stored`]); a read in the stored version copies bytes. What the
//! server knows about kinds comes from the [`resource::Catalogue`], which all clusters of a process share.

pub mod body;
pub mod bootstrap;
mod compress;
pub mod config;
pub mod connection;
mod custom;
mod discovery;
mod dispatch;
mod encode;
mod flow;
mod health;
mod leases;
mod list;
mod metrics;
mod nonresource;
mod registry;
mod request;
pub mod resource;
mod respond;
mod reviews;
pub mod security;
pub mod server;
mod storage;
pub mod stored;
mod watch;
mod yaml;

pub use config::{Config, Limits};
pub use connection::{InProcess, Origin, serve_connection};
pub use registry::service_network::ServiceNetwork;
pub use resource::Catalogue;
pub use security::{AuditLog, AuditSink, ConnectionInfo, Credentials, Security, audit_log};
pub use server::{ApiServer, Shared};
