//! The disk of a host: the logs and states of all its replicas in one RocksDB, behind one writer.
//!
//! ```text
//! replica of cluster 1 --- GroupDisk ---\
//! replica of cluster 2 --- GroupDisk ----+--> HostDisk: one writer, one batch, one sync --> Engine (RocksDB | memory)
//! replica of cluster 3 --- GroupDisk ---/
//! ```
//!
//! This is the only crate that links RocksDB. It knows nothing of Raft: it appends entries and tells when they are synced, keeps the state
//! that the entries produced, and deletes a group without a trace. Every value is sealed before it comes here or while it is queued.
//!
//! What it promises: a batch is written whole or not at all; batches are lost only from the end, and only if they were not synced; after a
//! failed write nothing more is written until the disk is opened again; a group that was here before and is not complete any more does not
//! open ([`OpenGroupError::Lost`]).

pub mod codec;
mod disk;
mod engine;
mod group;
mod group_disk;
mod memory;
mod rocksdb_engine;
mod seal;
mod writer;

pub use disk::{Expect, HostDisk, OpenGroupError};
pub use engine::{Durability, Engine, EngineError, Family, Op, Pair, Space, Visit};
pub use group::GroupId;
pub use group_disk::{Boot, Generation, GroupDisk, StateWrite};
pub use memory::{MemoryDisk, MemoryEngine};
pub use rocksdb_engine::RocksEngine;
pub use seal::{DataKey, OpenError, Sealer};
pub use writer::{DiskError, Done, Driver};
