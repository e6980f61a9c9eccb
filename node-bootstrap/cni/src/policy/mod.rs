//! NetworkPolicy as nftables rules: `(policies, pods, namespaces, this node) -> ruleset`, pure.
//!
//! ```text
//! forwarded packet -- established? accept
//!                  -- source is an isolated pod of this node?      its egress chain: returns when a rule allows, else drops
//!                  -- destination is an isolated pod of this node? its ingress chain, the same
//! ```
//!
//! Pods that no policy selects cost two lookups per new connection. Peers that are selected by labels become named sets, shared by all chains, so a pod that comes or
//! goes changes elements and no rules. Rules see addresses after services were translated, as upstream's do.
//!
//! What the API leaves to implementations: this node always reaches its own pods (probes), a pod always reaches itself, pods of the
//! host's network have no policies, and DNS on the node is always allowed: policies that allow the usual DNS pods would otherwise cut it off.

mod facts;
mod plan;

pub use facts::{PodFacts, PortFacts};
pub use plan::{World, plan};

/// The table's name, in both families.
pub const TABLE: &str = "wheelhouse-policy";
