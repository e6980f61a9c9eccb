//! The front door: one address for every cluster.
//!
//! ```text
//! client ── ClientHello ──▶ hello (which server name?) ─▶ table (which replicas?) ─▶ connect, PROXY v2 header, splice
//!                                                           ▲
//! every host ── routes stream (mutual TLS, peers port) ─────┘        last table on disk, so that a restart needs nobody
//! ```
//!
//! TLS ends at the replica; the endpoint reads the first message of a handshake and holds no key of any cluster. It keeps no state but the
//! last table, so any number may run. A replica that refuses a connection, or closes it before its first byte, is set aside and another is tried: until
//! then nothing of the client's was acted upon.
//!
//! Not chosen: health checks of its own. A host's stream says at once what changed, and its end says that the host is gone.

pub mod config;
pub mod connection;
pub mod hello;
pub mod listener;
pub mod metrics;
pub mod streams;
pub mod table;
