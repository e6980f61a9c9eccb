//! kube-proxy: Services become nftables rules on this node.
//!
//! ```text
//! Services, EndpointSlices, this Node --watch--> facts --resolve--> ports with their endpoints --rules--> elements and chains
//!                                                                                                    |
//!                                        nft (one transaction) <-- Patch <-- Planner: what differs from what is loaded
//! ```
//!
//! **Constant work per packet.** There is no chain per service. A packet's address, protocol and port are looked up in one verdict map, which sends it
//! to a chain that is shared by all services with the same number of endpoints and the same policies; there `numgen` picks a slot, and one map from
//! (service id, slot) to endpoint gives the destination. The service's id travels from the first lookup to the second in the packet's
//! priority, the only scratch field that neither routing nor other programs read before forwarding sets it anew.
//!
//! **Constant work per change.** The planner plans one service at a time and remembers who claims which element, so a changed slice of one
//! service among ten thousand is a transaction of a few elements. Starting up writes the whole table, which also removes whatever an earlier
//! process left in it.
//!
//! Rules are per family in the tables `ip wheelhouse-proxy` and `ip6 wheelhouse-proxy`. The packet mark's bit 0x4000 asks for masquerading, as upstream's
//! does.
//!
//! When the API server is away the last rules stay. When `nft` fails, the same transaction is tried again, as a whole table.

mod chains;
mod claims;
mod conntrack;
mod driver;
mod facts;
mod health;
mod planner;
mod resolve;
mod rules;

pub use driver::{Config, ProxyError, run};
pub use facts::{NodeFacts, Protocol, ServiceFacts, ServiceName, SliceFacts};
pub use planner::{Commit, Planner, StaleFlow};

/// The table's name in both families.
pub const TABLE: &str = "wheelhouse-proxy";

/// Removes everything that this crate ever writes to the kernel: for a node that leaves its cluster.
pub async fn remove() -> Result<(), wheelhouse_net::nft::NftError> {
    let removal: String = wheelhouse_net::Family::BOTH
        .iter()
        .map(|family| wheelhouse_net::Ruleset::new(format!("{} {TABLE}", family.keyword())).render_removal())
        .collect();
    wheelhouse_net::nft::apply(&removal).await
}
