//! What the disk needs of a key-value engine: four ordered families, atomic batches, and an honest answer about durability.
//!
//! Two engines exist: [`RocksEngine`](crate::RocksEngine), and [`MemoryEngine`](crate::MemoryEngine) for simulation, which loses what was
//! not synced when it is told to crash. All rules about logs, state and purging live above, in one place for both.

use std::ops::ControlFlow;

/// The fixed column families. One family per cluster would take minutes to create a thousand of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Raft log entries by index.
    Log,
    /// Live records and leases, by generation.
    State,
    /// What each revision replaced, by generation and revision.
    History,
    /// A few small records per replica: vote, committed, purged, applied.
    Meta,
}

impl Family {
    pub const ALL: [Self; 4] = [Self::Log, Self::State, Self::History, Self::Meta];

    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::State => "state",
            Self::History => "history",
            Self::Meta => "meta",
        }
    }
}

/// One change. Ranges are `[from, to)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put { family: Family, key: Vec<u8>, value: Vec<u8> },
    Delete { family: Family, key: Vec<u8> },
    DeleteRange { family: Family, from: Vec<u8>, to: Vec<u8> },
}

impl Op {
    /// Bytes that this change brings to the disk, for sizing batches.
    pub fn size(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key, .. } => key.len(),
            Self::DeleteRange { from, to, .. } => from.len() + to.len(),
        }
    }
}

/// Whether a batch has reached the disk when the write returns. A batch is atomic either way, and batches are lost only from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    Unsynced,
    Synced,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{action}: {cause}")]
pub struct EngineError {
    pub action: &'static str,
    pub cause: String,
}

/// Sizes of the file system that holds the data, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    /// What an unprivileged process may still write.
    pub free: u64,
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Sees a key and its value; says whether to go on.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

pub trait Engine: Send + Sync + 'static {
    fn write(&self, ops: Vec<Op>, durability: Durability) -> Result<(), EngineError>;

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

    /// Visits `[from, to)` in key order until told to stop.
    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<(), EngineError>;

    /// The last key of `[from, to)` with its value.
    fn last(&self, family: Family, from: &[u8], to: &[u8]) -> Result<Option<Pair>, EngineError>;

    /// Makes deleted ranges `[from, to)` vanish from the files themselves, the write-ahead log included. Slow; not called on the writer.
    fn reclaim(&self, ranges: &[(Vec<u8>, Vec<u8>)]) -> Result<(), EngineError>;

    fn space(&self) -> Result<Space, EngineError>;
}
