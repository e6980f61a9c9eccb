//! The kubelet: runs the pods that are bound to its node in a container runtime and tells the API server how they are.
//!
//! ```text
//! API server --watch pods of this node--> pods::Manager --> one Worker per pod
//!                                                             | lifecycle::step (pure): spec, runtime, memory, now -> actions
//! container runtime <--CRI-- Executor <--actions--------------+
//!                   --relist each second--> changed pods -----^        status -> API server
//! node: Node object, status, lease        eviction, garbage collection: measured, decided purely, carried out
//! ```
//!
//! Everything that decides is pure and is told the time: `lifecycle`, `spec`, `probes`, the plans of `volumes`, `node` and `eviction`. Around them stand
//! thin shells that watch, call the runtime and write files. State on disk is what containers need (volumes, logs) and never a record of decisions:
//! after a restart the runtime's containers and the API's pods say everything again, and containers run on meanwhile.

pub mod config;
pub mod cri;
pub mod lifecycle;
pub mod logs;
pub mod node;
pub mod observed;
pub mod pods;
pub mod probes;
pub mod spec;
pub mod volumes;

mod kubelet;

pub use config::KubeletConfig;
pub use kubelet::{Kubelet, STOP_GRACE, StartError, start};
