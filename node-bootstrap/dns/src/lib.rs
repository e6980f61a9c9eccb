//! The cluster's DNS, on every node: `cluster.local` from the API, everything else from the node's own resolvers, with a cache.
//!
//! ```text
//! Services, EndpointSlices --watch--> Zone
//! query (UDP, TCP) --> answer::decide: pure -- in the zone ----------> reply
//!                                           \- elsewhere --> Cache --> Upstreams --> reply
//! ```
//!
//! Every node binds the cluster's DNS service address on an interface of its own, so a query never leaves the node but for names of the outside,
//! and there is no DNS Service that could lose its endpoints. Names follow the specification "Kubernetes DNS-Based Service Discovery", version 1.1.0.
//!
//! When the API server is away, the zone stays as it was last. Before the first complete lists have arrived, names of the zone are answered with SERVFAIL, which
//! resolvers try again, and not with "no such name", which they remember.

pub mod answer;
mod cache;
mod driver;
mod forward;
mod interface;
mod server;
mod transport;
mod zone;

pub use driver::{Config, DnsError, run};
pub use interface::remove as remove_interface;
pub use zone::{Endpoint, Meaning, ServiceName, ServiceRecord, Zone};
