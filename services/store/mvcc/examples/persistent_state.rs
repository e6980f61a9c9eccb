//! Measures the persistent state against an ordinary map behind a lock. The findings are in `docs/decisions/persistent-state.md`.
//!
//! `cargo run --release -p wheelhouse-mvcc --example persistent_state` runs every case in a process of its own, so that each one's memory
//! is its own, and prints one line per case.

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::process::Command as Process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use std::sync::Arc;
use wheelhouse_mvcc::{Batch, Command, Event, EventKind, KeyValue, Snapshot, State, Txn};

const LARGE_RECORDS: u64 = 150_000;
const LARGE_BODY: usize = 3 * 1024;
const SMALL_STORES: usize = 1_000;
/// What a cluster with nothing in it holds: about the bootstrap objects.
const SMALL_RECORDS: u64 = 150;
const SMALL_BODY: usize = 1024;
const RUN: Duration = Duration::from_secs(4);
/// Batches of history kept while writing.
const HISTORY: u64 = 10_000;

const CASES: [&str; 8] =
    ["persistent", "persistent-held", "persistent-listed", "locked", "locked-listed", "locked-copied", "small-persistent", "small-locked"];

fn main() {
    match std::env::args().nth(1).as_deref() {
        None => CASES.iter().for_each(|case| run_apart(case)),
        Some("small-persistent") => small("small-persistent", || Persistent::new(false)),
        Some("small-locked") => small("small-locked", Locked::default),
        Some("persistent") => large("persistent", Persistent::new(false), Lister::None),
        Some("persistent-held") => large("persistent-held", Persistent::new(true), Lister::None),
        Some("persistent-listed") => large("persistent-listed", Persistent::new(true), Lister::Lists),
        Some("locked") => large("locked", Locked::default(), Lister::None),
        Some("locked-listed") => large("locked-listed", Locked::default(), Lister::Lists),
        Some("locked-copied") => large("locked-copied", Locked { copied: true, ..Locked::default() }, Lister::Lists),
        Some(other) => eprintln!("no case {other}; there are {CASES:?}"),
    }
}

fn run_apart(case: &str) {
    let program = std::env::current_exe().expect("this program has a path");
    let ended = Process::new(program).arg(case).status().expect("this program can be started again");
    assert!(ended.success(), "{case} fails");
}

/// One store, written by one thread and listed by another.
trait Store: Sync {
    fn put(&self, key: &Bytes, value: Bytes);
    /// Calls `each` for every record of one consistent state, in order.
    fn list(&self, each: &mut dyn FnMut(&KeyValue));
}

/// The crate's own state, published after every apply as a replica does.
struct Persistent {
    state: Mutex<State>,
    published: RwLock<Snapshot>,
    /// A snapshot from before, as a slow reader holds it, renewed every 1,000 applies.
    held: Option<Mutex<Snapshot>>,
}

impl Persistent {
    fn new(hold: bool) -> Self {
        let state = State::new();
        Self { published: RwLock::new(state.snapshot()), held: hold.then(|| Mutex::new(state.snapshot())), state: Mutex::new(state) }
    }
}

impl Store for Persistent {
    fn put(&self, key: &Bytes, value: Bytes) {
        let mut state = self.state.lock().expect("nobody panics");
        let revision = state.root().get(key).map_or(0, |kv| kv.mod_revision);
        let txn = Txn::default().if_mod_revision(key.clone(), revision).put(key.clone(), value);
        black_box(state.apply(&Command::Txn { txn, fence: None }, 1));
        let newest = state.root().revision();
        if newest.is_multiple_of(HISTORY / 10) {
            if newest > HISTORY {
                state.apply(&Command::Compact { revision: newest - HISTORY }, 1);
            }
            if let Some(held) = &self.held {
                *held.lock().expect("nobody panics") = state.snapshot();
            }
        }
        *self.published.write().expect("nobody panics") = state.snapshot();
    }

    fn list(&self, each: &mut dyn FnMut(&KeyValue)) {
        let snapshot = self.published.read().expect("nobody panics").clone();
        snapshot.range(b"", None).for_each(|kv| each(kv));
    }
}

/// The alternative: an ordinary map behind a reader-writer lock, with the same records and the same history.
#[derive(Default)]
struct Locked {
    inner: RwLock<LockedInner>,
    /// A list copies the references out under the lock and reads the records after, so that writers wait less.
    copied: bool,
}

#[derive(Default)]
struct LockedInner {
    live: BTreeMap<Bytes, Arc<KeyValue>>,
    history: VecDeque<Arc<Batch>>,
    revision: u64,
}

impl Store for Locked {
    fn put(&self, key: &Bytes, value: Bytes) {
        let mut inner = self.inner.write().expect("nobody panics");
        inner.revision += 1;
        let revision = inner.revision;
        let prev = inner.live.get(key).cloned();
        let kv = Arc::new(KeyValue {
            key: prev.as_ref().map_or_else(|| key.clone(), |prev| prev.key.clone()),
            value,
            create_revision: prev.as_ref().map_or(revision, |prev| prev.create_revision),
            mod_revision: revision,
            version: prev.as_ref().map_or(1, |prev| prev.version + 1),
            lease: 0,
        });
        inner.live.insert(kv.key.clone(), kv.clone());
        inner.history.push_back(Arc::new(Batch { revision, events: vec![Event { kind: EventKind::Put, kv, prev }] }));
        if inner.history.len() as u64 > HISTORY {
            inner.history.pop_front();
        }
    }

    fn list(&self, each: &mut dyn FnMut(&KeyValue)) {
        let inner = self.inner.read().expect("nobody panics");
        if self.copied {
            let records: Vec<_> = inner.live.values().cloned().collect();
            drop(inner);
            records.iter().for_each(|kv| each(kv));
        } else {
            inner.live.values().for_each(|kv| each(kv));
        }
    }
}

#[derive(PartialEq)]
enum Lister {
    None,
    Lists,
}

fn large(case: &str, store: impl Store, lister: Lister) {
    let keys: Vec<_> = (0..LARGE_RECORDS).map(|n| Bytes::from(format!("/registry/core/pods/namespace-{}/pod-{n:06}", n % 100))).collect();
    let body = vec![b'x'; LARGE_BODY];
    let before = resident();
    keys.iter().for_each(|key| store.put(key, Bytes::copy_from_slice(&body)));
    let loaded = resident() - before;

    let (stop, listed) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut worst, mut applied, cpu) = (Duration::ZERO, 0_u64, thread_cpu());
    let started = Instant::now();
    let (cpu, list_time) = std::thread::scope(|scope| {
        let reader = (lister == Lister::Lists).then(|| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    listed.fetch_add(list_once(&store), Ordering::Relaxed);
                }
                started.elapsed()
            })
        });
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        while started.elapsed() < RUN {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, value) = (&keys[(random >> 33) as usize % keys.len()], Bytes::copy_from_slice(&body));
            let begun = Instant::now();
            store.put(key, value);
            worst = worst.max(begun.elapsed());
            applied += 1;
        }
        let cpu = thread_cpu() - cpu;
        stop.store(true, Ordering::Relaxed);
        (cpu, reader.map(|reader| reader.join().expect("it does not panic")))
    });
    let list_rate = match list_time {
        Some(time) => listed.load(Ordering::Relaxed) as f64 / time.as_secs_f64() / 1e6,
        None => {
            let started = Instant::now();
            list_once(&store) as f64 / started.elapsed().as_secs_f64() / 1e6
        }
    };
    println!(
        "{case:18} {:9.0} applies/s, {:5.1} us of CPU each, worst {:8.2} ms, list {list_rate:7.0} MB/s, {:4} MiB loaded, {:4} MiB in the end",
        applied as f64 / RUN.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / applied as f64,
        worst.as_secs_f64() * 1e3,
        loaded >> 20,
        (resident() - before) >> 20,
    );
}

/// Copies every body into an answer's buffer, as a list does. Returns the bytes.
fn list_once(store: &impl Store) -> u64 {
    let (mut buffer, mut bytes) = (Vec::with_capacity(1 << 20), 0);
    store.list(&mut |kv| {
        if buffer.len() + kv.value.len() > buffer.capacity() {
            buffer.clear();
        }
        buffer.extend_from_slice(&kv.value);
        bytes += kv.value.len() as u64;
    });
    black_box(&buffer);
    bytes
}

fn small<S: Store>(case: &str, make: impl Fn() -> S) {
    let keys: Vec<_> = (0..SMALL_RECORDS).map(|n| Bytes::from(format!("/registry/rbac.authorization.k8s.io/clusterroles/role-{n:04}"))).collect();
    let body = vec![b'x'; SMALL_BODY];
    let before = resident();
    let stores: Vec<S> = (0..SMALL_STORES).map(|_| make()).collect();
    for store in &stores {
        keys.iter().for_each(|key| store.put(&Bytes::copy_from_slice(key), Bytes::copy_from_slice(&body)));
    }
    let loaded = resident() - before;
    let (started, cpu, mut applied) = (Instant::now(), thread_cpu(), 0_usize);
    while started.elapsed() < RUN {
        for _ in 0..1_000 {
            stores[applied % SMALL_STORES].put(&keys[applied / SMALL_STORES % keys.len()], Bytes::copy_from_slice(&body));
            applied += 1;
        }
    }
    let cpu = thread_cpu() - cpu;
    let net = SMALL_RECORDS * SMALL_BODY as u64;
    println!(
        "{case:18} {:9.0} applies/s, {:5.1} us of CPU each, over {SMALL_STORES} stores, {} KiB a store, of which {} KiB bodies",
        applied as f64 / RUN.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / applied as f64,
        (loaded / SMALL_STORES as u64) >> 10,
        net >> 10
    );
}

/// CPU time of this thread. It tells what an apply costs also on a machine that is busy with other work.
fn thread_cpu() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(schedstat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).expect("nanoseconds"))
}

/// This process's resident bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("every process has one");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number of KiB") << 10
}
