//! `wheelhouse-node`: makes a machine a node of a hosted cluster and runs the node's parts.
//!
//! ```text
//! join: trust (CA by its hash) -> credentials (CSR with the token) -> node.json -> run
//! run:  container runtime (its own containerd, or one that is there) -> kubelet; certificates renewed before they end
//! ```
//!
//! A node knows its API server's address and name, the cluster's CA and its own certificate, and nothing else of the service. All of it lies in the state
//! directory, so a reboot needs no token. Every path is a flag: several nodes may live on one machine, each with a runtime of its own.

pub mod args;
pub mod check;
pub mod containerd;
pub mod credentials;
pub mod image;
pub mod join;
pub mod layout;
pub mod leave;
pub mod pause;
pub mod run;
pub mod transport;
pub mod trust;
pub mod unit;
