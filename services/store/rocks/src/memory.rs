//! An engine in memory that behaves like a disk: what was not synced may be lost in a crash, from the end.
//!
//! A [`MemoryDisk`] is the platter and outlives its process; a [`MemoryEngine`] is one process's view of it. Crashing the disk makes every
//! older view useless, so that a "killed" process that still runs in the simulation writes nothing more.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::{Durability, Engine, EngineError, Family, Op, Pair, Space, Visit};

type Tables = BTreeMap<Family, BTreeMap<Vec<u8>, Vec<u8>>>;

/// A simulated disk.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Platter>>);

#[derive(Default)]
struct Platter {
    /// Raised by every crash; views of an older epoch are dead.
    epoch: u64,
    current: Tables,
    synced: Tables,
    unsynced: VecDeque<Vec<Op>>,
    full: bool,
    failing: bool,
    sync_delay: Duration,
}

impl MemoryDisk {
    /// The view of a process that starts now.
    pub fn engine(&self) -> MemoryEngine {
        MemoryEngine { disk: self.clone(), epoch: self.0.lock().epoch }
    }

    /// The process dies and the power with it: of the batches that were not synced, only the first `kept` survive.
    pub fn crash(&self, kept: usize) {
        let mut platter = self.0.lock();
        platter.epoch += 1;
        let batches: Vec<_> = platter.unsynced.drain(..).take(kept).collect();
        for ops in &batches {
            apply(&mut platter.synced, ops);
        }
        platter.current = platter.synced.clone();
        platter.failing = false;
    }

    /// Batches that a crash could lose now.
    pub fn unsynced(&self) -> usize {
        self.0.lock().unsynced.len()
    }

    /// Makes the disk report hardly any free space.
    pub fn set_full(&self, full: bool) {
        self.0.lock().full = full;
    }

    /// Makes every write fail until it is unset or the disk crashes.
    pub fn set_failing(&self, failing: bool) {
        self.0.lock().failing = failing;
    }

    pub fn set_sync_delay(&self, delay: Duration) {
        self.0.lock().sync_delay = delay;
    }

    pub fn sync_delay(&self) -> Duration {
        self.0.lock().sync_delay
    }

    /// Whether `needle` occurs in any key or value, deleted or not synced ones included.
    pub fn contains(&self, needle: &[u8]) -> bool {
        let platter = self.0.lock();
        let found = |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        [&platter.current, &platter.synced].iter().any(|tables| tables.values().flatten().any(|(k, v)| found(k) || found(v)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().current.values().all(BTreeMap::is_empty)
    }
}

/// One process's view of a [`MemoryDisk`].
pub struct MemoryEngine {
    disk: MemoryDisk,
    epoch: u64,
}

impl MemoryEngine {
    fn platter(&self, action: &'static str) -> Result<parking_lot::MutexGuard<'_, Platter>, EngineError> {
        let platter = self.disk.0.lock();
        if platter.epoch == self.epoch { Ok(platter) } else { Err(EngineError { action, cause: "the process has crashed".to_owned() }) }
    }
}

fn apply(tables: &mut Tables, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Put { family, key, value } => {
                tables.entry(*family).or_default().insert(key.clone(), value.clone());
            }
            Op::Delete { family, key } => {
                tables.entry(*family).or_default().remove(key);
            }
            Op::DeleteRange { family, from, to } => {
                let table = tables.entry(*family).or_default();
                let doomed: Vec<_> = table.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
                for key in doomed {
                    table.remove(&key);
                }
            }
        }
    }
}

impl Engine for MemoryEngine {
    fn write(&self, ops: Vec<Op>, durability: Durability) -> Result<(), EngineError> {
        let mut platter = self.platter("write")?;
        if platter.failing {
            return Err(EngineError { action: "write", cause: "injected failure".to_owned() });
        }
        apply(&mut platter.current, &ops);
        platter.unsynced.push_back(ops);
        if durability == Durability::Synced {
            let batches: Vec<_> = platter.unsynced.drain(..).collect();
            for ops in &batches {
                apply(&mut platter.synced, ops);
            }
        }
        Ok(())
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.platter("get")?.current.get(&family).and_then(|table| table.get(key)).cloned())
    }

    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<(), EngineError> {
        let platter = self.platter("scan")?;
        let Some(table) = platter.current.get(&family) else { return Ok(()) };
        for (key, value) in table.range(from.to_vec()..to.to_vec()) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, family: Family, from: &[u8], to: &[u8]) -> Result<Option<Pair>, EngineError> {
        let platter = self.platter("last")?;
        let last = platter.current.get(&family).and_then(|table| table.range(from.to_vec()..to.to_vec()).next_back());
        Ok(last.map(|(key, value)| (key.clone(), value.clone())))
    }

    fn reclaim(&self, _ranges: &[(Vec<u8>, Vec<u8>)]) -> Result<(), EngineError> {
        self.write(Vec::new(), Durability::Synced)
    }

    fn space(&self) -> Result<Space, EngineError> {
        let full = self.platter("space")?.full;
        Ok(Space { total: 100 << 30, free: if full { 1 << 20 } else { 50 << 30 } })
    }
}
