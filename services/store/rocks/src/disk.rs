//! A host's disk: all groups' logs and states on one engine.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::{Durability, Engine, Family, Op};
use crate::group::GroupId;
use crate::group_disk::{self, GroupDisk};
use crate::memory::MemoryDisk;
use crate::rocksdb_engine::RocksEngine;
use crate::seal::DataKey;
use crate::writer::{DiskError, Done, Driver, Job, Writer};

/// How often the free space is looked at. A host that writes 500 MB/s cannot use up the reserve of 1 GiB in between.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a group may be new to this disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Created if it is not there.
    MayBeNew,
    /// It was here before: if it is not, its data is lost.
    Existing,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenGroupError {
    /// The replica cannot prove that it holds what it acknowledged. It must be removed from its group and added anew under another id.
    #[error("the replica's data is lost: {0}")]
    Lost(String),
    #[error("the data key does not open this group's values")]
    WrongKey,
    #[error("the group is already open")]
    AlreadyOpen,
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// One host's disk. Groups open on it; one writer serves them all.
pub struct HostDisk {
    engine: Arc<dyn Engine>,
    writer: Arc<Writer>,
    open: Mutex<HashSet<GroupId>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    on_thread: bool,
}

impl HostDisk {
    /// Opens the RocksDB database in `path`, creating it if there is none.
    pub fn open(path: &Path) -> Result<Arc<Self>, DiskError> {
        Self::open_reserving(path, None)
    }

    /// The same with a reserve of so many bytes instead of the usual share of the disk.
    pub fn open_reserving(path: &Path, reserve: Option<u64>) -> Result<Arc<Self>, DiskError> {
        Ok(Self::start_reserving(Arc::new(RocksEngine::open(path)?), Driver::Thread, reserve))
    }

    /// A process's view of a simulated disk. Must be called inside a tokio runtime.
    pub fn simulated(disk: &MemoryDisk) -> Arc<Self> {
        let delays = disk.clone();
        Self::start(Arc::new(disk.engine()), Driver::Task { sync_delay: Box::new(move || delays.sync_delay()) })
    }

    pub fn start(engine: Arc<dyn Engine>, driver: Driver) -> Arc<Self> {
        Self::start_reserving(engine, driver, None)
    }

    fn start_reserving(engine: Arc<dyn Engine>, driver: Driver, reserve: Option<u64>) -> Arc<Self> {
        let on_thread = matches!(driver, Driver::Thread);
        let writer = Writer::new(engine.clone(), if on_thread { SPACE_INTERVAL } else { Duration::ZERO }, reserve);
        let thread = match driver {
            Driver::Thread => {
                let writer = writer.clone();
                let thread = std::thread::Builder::new().name("disk-writer".to_owned()).spawn(move || writer.run_on_thread());
                Some(thread.expect("a host starts with enough resources for one thread"))
            }
            Driver::Task { sync_delay } => {
                tokio::spawn(writer.clone().run_as_task(sync_delay));
                None
            }
        };
        Arc::new(Self { engine, writer, open: Mutex::default(), thread: Mutex::new(thread), on_thread })
    }

    /// Opens a group's part of the disk. A group is open at most once.
    pub fn group(self: &Arc<Self>, id: &GroupId, key: DataKey, expect: Expect) -> Result<GroupDisk, OpenGroupError> {
        if !self.open.lock().insert(id.clone()) {
            return Err(OpenGroupError::AlreadyOpen);
        }
        // The name is given back when the `GroupDisk` is dropped, which a failed opening does as well.
        group_disk::open(self.clone(), id.clone(), key, expect)
    }

    /// Every group that has something on this disk.
    pub fn groups(&self) -> Result<Vec<GroupId>, DiskError> {
        let mut groups = Vec::new();
        self.engine.scan(Family::Meta, &[], &[0xff], &mut |key, _| {
            if let Some(group) = GroupId::of_key(key)
                && groups.last() != Some(&group)
            {
                groups.push(group);
            }
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(groups)
    }

    /// Removes everything a group has on this disk, down to the files, and calls `done` when it is gone (tens of milliseconds). The group
    /// must be closed. Destroying the wrapped copies of its data key is the caller's part.
    pub fn destroy(&self, id: &GroupId, done: Done) {
        if self.open.lock().contains(id) {
            return done(Err(DiskError::Corrupt(format!("{id} is still open"))));
        }
        let prefix = id.prefix();
        let (from, to) = (prefix.clone(), group_disk::after(&prefix));
        let ops = Family::ALL.map(|family| Op::DeleteRange { family, from: from.clone(), to: to.clone() }).to_vec();
        let engine = self.engine.clone();
        let reclaim = move || engine.reclaim(&[(from, to)]).map_err(DiskError::from);
        let on_thread = self.on_thread;
        let then: Done = Box::new(move |deleted| match deleted {
            Err(error) => done(Err(error)),
            Ok(()) if !on_thread => done(reclaim()),
            Ok(()) => {
                // Compaction would hold up every group's writes if it ran on the writer.
                let spawned = std::thread::Builder::new().name("disk-reclaim".to_owned()).spawn(move || done(reclaim()));
                if let Err(error) = spawned {
                    tracing::warn!(%error, "a deleted group's files are reclaimed by later compactions only");
                }
            }
        });
        self.submit(ops, Durability::Synced, Some(then));
    }

    /// Whether less than the reserve of the disk is free, max(5 %, 1 GiB) unless it was opened with another: writes are refused, deletes and reads go on.
    pub fn is_low_on_space(&self) -> bool {
        self.writer.is_low_on_space()
    }

    /// Makes the next question about space look at the file system.
    pub fn refresh_space(&self) {
        self.writer.refresh_space();
    }

    /// Whether a write failed. Nothing is written any more: the process must open the disk again.
    pub fn has_failed(&self) -> bool {
        self.writer.is_poisoned()
    }

    /// Writes what waits, then stops. Later writes are refused.
    pub fn close(&self) {
        self.writer.close();
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A writer that panicked has nothing left to write.
            let _ = thread.join();
        }
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    pub(crate) fn submit(&self, ops: Vec<Op>, durability: Durability, done: Option<Done>) {
        self.writer.submit(Job { ops, durability, done });
    }

    pub(crate) fn closed(&self, id: &GroupId) {
        self.open.lock().remove(id);
    }
}

impl Drop for HostDisk {
    fn drop(&mut self) {
        self.close();
    }
}
