//! The node itself: what the machine is, the Node object that says so, and the lease that says it still lives.

pub mod admit;
pub mod eviction;
pub mod garbage;
pub mod heartbeat;
pub mod housekeeping;
pub mod machine;
pub mod network;
pub mod object;
