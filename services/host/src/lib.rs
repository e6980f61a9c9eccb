//! The host process: replicas of many clusters on one disk, one set of ports and one connection to each other host.
//!
//! ```text
//!            clients port (PROXY v2, server name)      peers port (mutual TLS, protocol name)
//!                        │                               │ raft   routes   join   system API
//!                        ▼                               ▼
//!   Serving: cluster ─▶ ApiServer            MtlsTransport ─▶ GroupManager ─▶ HostDisk (RocksDB)
//!                        │                                          │
//!                        └───── Replica (store + API server + leader's controllers) ─────┘
//!                                       ▲ start, stop, destroy
//!   disk: replicas/*.json ──▶ plan ──▶ Host::reconcile ◀── ControlPlaneReplicas of the system API
//! ```
//!
//! A host needs nobody to start what lies on its disk. The system API tells it what to change, and is told how the replicas are.

pub mod clients;
pub mod config;
pub mod directory;
pub mod etcd;
pub mod follow;
pub mod host;
pub mod identity;
pub mod init;
pub mod join;
pub mod leader;
pub mod membership;
pub mod peers;
pub mod plan;
pub mod process;
pub mod registration;
pub mod replica;
pub mod report;
pub mod routes;
pub mod store_only;
pub mod system;
pub mod token;
pub mod transport;
