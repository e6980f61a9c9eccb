//! Pod networking: a CNI plugin that the container runtime calls, and a daemon part that joins the nodes.
//!
//! ```text
//!  containerd --ADD/DEL/…--> plugin: veth, address, routes, host ports          one short process per call, nothing shared but files under a lock
//!  Nodes --watch--> daemon:  bridge, routes or VXLAN to every other node, masquerade to the outside, the runtime's network configuration
//!  Pods, Namespaces, NetworkPolicies --watch--> daemon: one nftables table
//! ```
//!
//! **A bridge whose ports are isolated.** Every pod has an address of its own with an all-ones mask and reaches everything, its neighbours too, through the
//! gateway: ports do not forward to one another. So every packet between pods is routed by the node, where services' answers are translated
//! back and network policies hold, without bridge netfilter and whatever a pod sends on its link.
//!
//! **No address is translated between pods.** Between nodes of one link the kernel routes a pod network to the node's own address; other nodes are reached
//! through VXLAN. Link addresses of the tunnel follow from pod networks, so nodes publish nothing to one another.

pub mod daemon;
pub mod plugin;
pub mod policy;
mod programs;

/// The plugin's name: its `type` in a network configuration, and of the program that the runtime looks for.
pub const PLUGIN: &str = "wheelhouse-cni";

/// The network's name in the runtime's configuration.
pub const NETWORK: &str = "wheelhouse";

/// The bridge that pods are attached to.
pub const BRIDGE: &str = "wheelhouse0";
