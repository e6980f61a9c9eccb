//! The promises of a host's disk, on RocksDB and on the simulated engine alike.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use bytes::Bytes;
use wheelhouse_base::{ClusterId, ReplicaId};
use wheelhouse_mvcc::{Command, State, Txn};
use wheelhouse_rocks::{
    DataKey, Driver, Durability, Engine, EngineError, Expect, Family, GroupDisk, GroupId, HostDisk, MemoryDisk, Op, OpenGroupError, Pair,
    RocksEngine, Space, StateWrite, Visit,
};

fn group(n: u64) -> GroupId {
    GroupId::new(ClusterId::from_random(n), ReplicaId(n))
}

/// Waits for one queued write.
fn wait(queue: impl FnOnce(wheelhouse_rocks::Done)) {
    let (tx, rx) = mpsc::channel();
    queue(Box::new(move |result| drop(tx.send(result))));
    rx.recv().unwrap().unwrap();
}

fn append(group: &GroupDisk, range: std::ops::RangeInclusive<u64>) {
    let entries: Vec<_> = range.map(|index| (index, format!("entry {index}").into_bytes())).collect();
    wait(|done| group.append(entries, done));
}

fn indexes(group: &GroupDisk) -> Vec<u64> {
    group.read_log(0..=u64::MAX - 1, usize::MAX).unwrap().into_iter().map(|(index, _)| index).collect()
}

/// Applies puts to a state and tells the disk about them.
fn write(group: &GroupDisk, generation: u32, state: &mut State, pairs: &[(&str, &str)], applied: &'static str) {
    let mut change = StateWrite { applied: Bytes::from_static(applied.as_bytes()), ..StateWrite::default() };
    for (key, value) in pairs {
        let txn = Txn::default().put(key.to_string(), value.to_string());
        let batch = state.apply(&Command::Txn { txn, fence: None }, 1).batch.unwrap();
        change.puts.push(batch.events[0].kv.clone());
        change.batches.push(batch);
    }
    change.header = Some(state.root().header());
    wait(|done| group.write_state(generation, &change, Some(done)));
}

/// A copy of a live database's files is what a killed process leaves behind.
fn crash_image(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "LOCK" {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

#[test]
fn a_killed_host_finds_what_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let (live, image) = (directory.path().join("live"), directory.path().join("image"));
    let key = DataKey::random();
    let disk = HostDisk::open(&live).unwrap();
    let one = disk.group(&group(1), key.clone(), Expect::MayBeNew).unwrap();
    append(&one, 1..=10);
    wait(|done| one.save_vote(b"vote".to_vec(), done));
    wait(|done| one.truncate(8, done));
    append(&one, 8..=9);
    let mut state = State::new();
    write(&one, 0, &mut state, &[("/a", "1"), ("/b", "1"), ("/a", "2")], "applied 5");
    wait(|done| one.purge(4, b"purged", done));
    wait(|done| one.save_vote(b"later vote".to_vec(), done));
    crash_image(&live, &image);

    let disk = HostDisk::open(&image).unwrap();
    assert_eq!(disk.groups().unwrap(), [group(1)]);
    let again = disk.group(&group(1), key.clone(), Expect::Existing).unwrap();
    let boot = again.boot().unwrap();
    assert_eq!(boot.vote.as_deref(), Some(&b"later vote"[..]));
    assert_eq!(boot.purged, Some((4, Bytes::from_static(b"purged"))));
    assert_eq!(boot.log, Some((5, 9)));
    assert_eq!(boot.applied.as_deref(), Some(&b"applied 5"[..]));
    assert_eq!(indexes(&again), [5, 6, 7, 8, 9]);
    let loaded = again.load(boot.generation).unwrap();
    loaded.check().unwrap();
    assert_eq!(loaded.root().header(), state.root().header());
    assert_eq!(loaded.root().get(b"/a").unwrap().value, "2");
    let told: Vec<_> = loaded.root().history_since(1).unwrap().cloned().collect();
    assert_eq!(told, state.root().history_since(1).unwrap().cloned().collect::<Vec<_>>(), "the history comes back in full");
}

#[test]
fn a_missing_or_foreign_group_does_not_open() {
    let directory = tempfile::tempdir().unwrap();
    let disk = HostDisk::open(directory.path()).unwrap();
    let key = DataKey::random();
    assert!(matches!(disk.group(&group(1), key.clone(), Expect::Existing), Err(OpenGroupError::Lost(_))));
    let one = disk.group(&group(1), key.clone(), Expect::MayBeNew).unwrap();
    assert!(matches!(disk.group(&group(1), key.clone(), Expect::MayBeNew), Err(OpenGroupError::AlreadyOpen)));
    drop(one);
    assert!(matches!(disk.group(&group(1), DataKey::random(), Expect::Existing), Err(OpenGroupError::WrongKey)));
    disk.group(&group(1), key, Expect::Existing).unwrap();
}

#[test]
fn a_snapshot_lands_beside_the_state_and_replaces_it_by_one_write() {
    let platter = MemoryDisk::default();
    let disk = HostDisk::start(Arc::new(platter.engine()), Driver::Thread);
    let key = DataKey::random();
    let one = disk.group(&group(1), key.clone(), Expect::MayBeNew).unwrap();
    let mut old = State::new();
    write(&one, 0, &mut old, &[("/old", "1")], "old");
    let generation = one.begin_generation();
    let mut new = State::new();
    let txn = Txn::default().put("/new", "2");
    let batch = new.apply(&Command::Txn { txn, fence: None }, 1).batch.unwrap();
    let part =
        StateWrite { puts: vec![batch.events[0].kv.clone()], batches: vec![batch], header: Some(new.root().header()), ..StateWrite::default() };
    wait(|done| one.fill_generation(generation, &part, Some(done)));
    wait(|done| one.save_vote(b"sync".to_vec(), done));
    drop(one);
    drop(disk);

    // A crash before the switch leaves the old state, and the half-received one is gone.
    platter.crash(0);
    let disk = HostDisk::start(Arc::new(platter.engine()), Driver::Thread);
    let one = disk.group(&group(1), key.clone(), Expect::Existing).unwrap();
    let boot = one.boot().unwrap();
    assert_eq!((boot.generation, boot.applied.as_deref()), (0, Some(&b"old"[..])));
    assert!(one.load(0).unwrap().root().get(b"/old").is_some());

    let generation = one.begin_generation();
    wait(|done| one.fill_generation(generation, &part, Some(done)));
    wait(|done| one.switch_generation(0, generation, b"new", done));
    drop(one);
    drop(disk);
    platter.crash(0);
    let disk = HostDisk::start(Arc::new(platter.engine()), Driver::Thread);
    let one = disk.group(&group(1), key, Expect::Existing).unwrap();
    let boot = one.boot().unwrap();
    assert_eq!((boot.generation, boot.applied.as_deref()), (generation, Some(&b"new"[..])));
    let loaded = one.load(generation).unwrap();
    assert!(loaded.root().get(b"/old").is_none() && loaded.root().get(b"/new").is_some());
}

#[test]
fn a_crash_loses_only_what_was_not_synced_and_only_from_the_end() {
    for kept in 0..4 {
        let platter = MemoryDisk::default();
        let disk = HostDisk::start(Arc::new(platter.engine()), Driver::Thread);
        let key = DataKey::random();
        let one = disk.group(&group(1), key.clone(), Expect::MayBeNew).unwrap();
        append(&one, 1..=3);
        let mut state = State::new();
        write(&one, 0, &mut state, &[("/a", "1")], "applied 1");
        wait(|done| one.purge(1, b"1", done));
        write(&one, 0, &mut state, &[("/a", "2")], "applied 2");
        drop(one);
        drop(disk);
        platter.crash(kept);
        let disk = HostDisk::start(Arc::new(platter.engine()), Driver::Thread);
        let one = disk.group(&group(1), key, Expect::Existing).unwrap();
        let boot = one.boot().unwrap();
        let applied = boot.applied.clone();
        assert_eq!(applied.as_deref(), [None, Some(&b"applied 1"[..]), Some(b"applied 1"), Some(b"applied 2")][kept]);
        assert_eq!(boot.log, Some(if kept < 2 { (1, 3) } else { (2, 3) }), "the log is purged only behind the state");
        assert_eq!(one.load(0).unwrap().root().revision(), [1, 2, 2, 3][kept], "state and its claim agree");
    }
}

#[test]
fn a_destroyed_group_leaves_no_readable_byte_and_its_neighbour_alone() {
    let directory = tempfile::tempdir().unwrap();
    let disk = HostDisk::open(directory.path()).unwrap();
    let (key, other_key) = (DataKey::random(), DataKey::random());
    let one = disk.group(&group(1), key, Expect::MayBeNew).unwrap();
    let two = disk.group(&group(2), other_key.clone(), Expect::MayBeNew).unwrap();
    let (mut state, mut other) = (State::new(), State::new());
    write(&one, 0, &mut state, &[("/registry/core/secrets/default/name-of-it", "plain text of it")], "1");
    write(&two, 0, &mut other, &[("/kept", "kept")], "2");
    append(&one, 1..=3);
    append(&two, 1..=3);
    let holds = |needle: &[u8]| {
        std::fs::read_dir(directory.path()).unwrap().any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
            bytes.windows(needle.len()).any(|window| window == needle)
        })
    };
    let id = group(1).cluster.to_string();
    assert!(holds(id.as_bytes()), "the test looks at the right files");
    assert!(!holds(b"name-of-it") && !holds(b"plain text of it"), "nothing is ever written in plain text");
    drop(one);
    wait(|done| disk.destroy(&group(1), done));
    // RocksDB notes a compaction's outcome in its own log file, whose lines quote key ranges.
    assert_eq!(disk.groups().unwrap(), [group(2)]);
    let data_holds = |needle: &[u8]| {
        std::fs::read_dir(directory.path()).unwrap().any(|file| {
            let path = file.unwrap().path();
            let data = path.extension().is_some_and(|extension| extension == "sst" || extension == "log");
            data && std::fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle)
        })
    };
    assert!(!data_holds(id.as_bytes()), "table files and write-ahead logs hold nothing of it");
    assert_eq!(indexes(&two), [1, 2, 3]);
    drop(two);
    let two = disk.group(&group(2), other_key, Expect::Existing).unwrap();
    assert_eq!(two.load(0).unwrap().root().get(b"/kept").unwrap().value, "kept");
}

/// Counts writes and syncs, and holds the first one back until it is told to go on.
struct Counting {
    inner: RocksEngine,
    synced: AtomicUsize,
    gate: std::sync::Mutex<Option<mpsc::Receiver<()>>>,
}

impl Engine for Counting {
    fn write(&self, ops: Vec<Op>, durability: Durability) -> Result<(), EngineError> {
        if durability == Durability::Synced && self.synced.fetch_add(1, Ordering::SeqCst) == 10 {
            self.gate.lock().unwrap().take().unwrap().recv().unwrap();
        }
        self.inner.write(ops, durability)
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.inner.get(family, key)
    }

    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<(), EngineError> {
        self.inner.scan(family, from, to, visit)
    }

    fn last(&self, family: Family, from: &[u8], to: &[u8]) -> Result<Option<Pair>, EngineError> {
        self.inner.last(family, from, to)
    }

    fn reclaim(&self, ranges: &[(Vec<u8>, Vec<u8>)]) -> Result<(), EngineError> {
        self.inner.reclaim(ranges)
    }

    fn space(&self) -> Result<Space, EngineError> {
        self.inner.space()
    }
}

#[test]
fn the_appends_of_all_groups_share_one_sync() {
    let directory = tempfile::tempdir().unwrap();
    let (go, gate) = mpsc::channel();
    let inner = RocksEngine::open(directory.path()).unwrap();
    let engine = Arc::new(Counting { inner, synced: AtomicUsize::new(0), gate: std::sync::Mutex::new(Some(gate)) });
    let disk = HostDisk::start(engine.clone(), Driver::Thread);
    // Opening ten groups takes the first ten syncs; the eleventh is held back.
    let groups: Vec<_> = (0..10).map(|n| disk.group(&group(n), DataKey::random(), Expect::MayBeNew).unwrap()).collect();
    let (tx, rx) = mpsc::channel();
    let queue = |group: &GroupDisk| {
        let tx = tx.clone();
        group.append([(1, b"entry".to_vec())], Box::new(move |result| tx.send(result.is_ok()).unwrap()));
    };
    queue(&groups[0]);
    while engine.synced.load(Ordering::SeqCst) < 11 {
        std::thread::yield_now();
    }
    groups[1..].iter().for_each(queue);
    go.send(()).unwrap();
    for _ in 0..10 {
        assert!(rx.recv().unwrap());
    }
    assert_eq!(engine.synced.load(Ordering::SeqCst), 12, "the nine that waited went together");
}

#[test]
fn nothing_is_written_after_a_failure() {
    let platter = MemoryDisk::default();
    let disk = HostDisk::start(Arc::new(platter.engine()), Driver::Thread);
    let one = disk.group(&group(1), DataKey::random(), Expect::MayBeNew).unwrap();
    platter.set_failing(true);
    let (tx, rx) = mpsc::channel();
    let again = tx.clone();
    one.append([(1, b"entry".to_vec())], Box::new(move |result| tx.send(result.is_err()).unwrap()));
    assert!(rx.recv().unwrap());
    platter.set_failing(false);
    one.append([(1, b"entry".to_vec())], Box::new(move |result| again.send(result.is_err()).unwrap()));
    assert!(rx.recv().unwrap() && disk.has_failed());
}

#[test]
fn the_reserve_is_noticed() {
    let platter = MemoryDisk::default();
    let disk = HostDisk::start(Arc::new(platter.engine()), Driver::Thread);
    assert!(!disk.is_low_on_space());
    platter.set_full(true);
    disk.refresh_space();
    assert!(disk.is_low_on_space());
}
