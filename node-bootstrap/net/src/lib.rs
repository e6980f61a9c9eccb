//! A node's kernel networking, for the parts that write it: nftables rulesets as data, and interfaces, addresses and routes over netlink.
//!
//! ```text
//! planner (pure) -> Ruleset --diff--> Patch --text--> nft -f -        one atomic transaction
//!                   Wanted links, addresses, routes -> Netlink       idempotent calls
//! ```
//!
//! The `nft` program is the interface and not netlink: its text is stable across kernels, reads like the ruleset that operators list, and a
//! transaction of a few elements takes about 10 ms with tens of thousands of elements loaded. `iptables` is never called and its tables never touched.

mod cidr;
mod family;
pub mod nft;
mod patch;
mod ruleset;
pub mod testing;

pub use cidr::{Cidr, CidrError, alone};
pub use family::Family;
pub use patch::Patch;
pub use ruleset::{Chain, Ruleset, Set};
