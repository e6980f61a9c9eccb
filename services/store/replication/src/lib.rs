//! A cluster's store, replicated: one Raft group per cluster, many groups per host.
//!
//! ```text
//!            ReplicatedStore (wheelhouse_store::Store)          one per replica
//!   commit -> Proposals -> Raft -> Log --------------> GroupDisk --\
//!   barrier -> ReadIndex    |      Machine -> WatchHub               +--> HostDisk: one writer, one sync per host
//!                           v         (lazily) ------> GroupDisk --/
//!                        Network -> Peers -> PeerTransport          one connection per pair of hosts
//! ```
//!
//! The Raft library is an implementation detail: nothing of it is in the public interface. A host builds one [`GroupManager`] over its disk
//! and its transport and starts replicas on it; everything else happens through [`ReplicatedStore`].

mod agenda;
mod beats;
mod blocking;
mod election;
mod encode;
mod group;
mod liveness;
mod log;
mod machine;
mod maintain;
mod manager;
mod membership;
mod memory_network;
mod network;
mod outcome;
mod parking;
mod peers;
mod proposal;
mod propose;
mod raft_runtime;
mod raft_types;
mod read_index;
mod rest;
mod snapshot;
#[cfg(test)]
mod storage_suite;
mod store;
mod stream_transport;
mod transport;

pub use maintain::LogLimits;
pub use manager::{GroupManager, HostParts, Limits, ReplicaSpec, Start, StartError};
pub use membership::{Member, MembershipError, PROMOTE_WITHIN, Role, TransferError};
pub use memory_network::{MemoryNetwork, MemoryTransport};
pub use parking::PARK_AFTER;
pub use raft_runtime::seed;
pub use store::{ReplicaState, ReplicatedStore};
pub use stream_transport::{BoxedIo, Dial, Io, StreamTransport};
pub use transport::{FrameReceiver, MAX_FRAME_BYTES, NotSent, PeerTransport};
pub use wheelhouse_rocks::{DataKey, GroupId, HostDisk};
