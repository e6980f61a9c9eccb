//! The Raft library's own conformance suite for storage, on both engines.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use wheelhouse_base::{ClusterId, HostName, ReplicaId};
use wheelhouse_rocks::{DataKey, Expect, GroupId, HostDisk, MemoryDisk};

use crate::log::Log;
use crate::machine::Machine;
use crate::raft_types::{Peer, TypeConfig};

impl Default for Peer {
    fn default() -> Self {
        let host: HostName = "host".parse().unwrap();
        Self { host }
    }
}

struct Builder {
    on_rocks: bool,
}

impl StoreBuilder<TypeConfig, Log, Machine, Option<tempfile::TempDir>> for Builder {
    async fn build(&self) -> Result<(Option<tempfile::TempDir>, Log, Machine), StorageError<TypeConfig>> {
        let directory = self.on_rocks.then(|| tempfile::tempdir().unwrap());
        let host = match &directory {
            Some(directory) => HostDisk::open(directory.path()).unwrap(),
            None => HostDisk::simulated(&MemoryDisk::default()),
        };
        let id = GroupId::new(ClusterId::system(), ReplicaId(1));
        let disk = Arc::new(host.group(&id, DataKey::random(), Expect::MayBeNew).unwrap());
        let boot = disk.boot().unwrap();
        let machine = Machine::open(disk.clone(), &boot).unwrap();
        let log = Log::open(disk, &boot, None).unwrap();
        Ok((directory, log, machine))
    }
}

/// The suite's last case installs a snapshot that never left the process, which cannot happen here: reaching it means that all others passed.
async fn run(on_rocks: bool) {
    let ended = Suite::test_store(&Builder { on_rocks }).await;
    let last = ended.expect_err("a snapshot is installed only after it was received").to_string();
    assert!(last.contains("only a received snapshot can be installed"), "{last}");
}

#[tokio::test]
async fn log_and_state_machine_conform_in_memory() {
    run(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log_and_state_machine_conform_on_rocksdb() {
    run(true).await;
}
