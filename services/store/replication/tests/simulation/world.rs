//! The hosts, the clients and the trouble.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};
use wheelhouse_base::{ClusterId, HostName, ManualClock, ReplicaId};
use wheelhouse_history::{Claim, Mark, Read, Step, Write, WriteResult};
use wheelhouse_mvcc::{Command, Fence, KeyRange, Outcome, Snapshot, Txn};
use wheelhouse_replication::{DataKey, GroupManager, HostParts, Limits, LogLimits, MemoryNetwork, ReplicaSpec, ReplicatedStore, Start};
use wheelhouse_rocks::{HostDisk, MemoryDisk};
use wheelhouse_store::{CommitError, Store};

use crate::oracle::{CLAIMS, Oracle, content, encode, step};

const CLIENTS: usize = 4;
const KEYS: usize = 5;
/// How long trouble lasts, in virtual time.
const TROUBLE: Duration = Duration::from_secs(30);
/// Short, so that replicas that were away need snapshots.
const LIMITS: Limits = Limits { log: LogLimits { entries: 40, kept: 10 }, park_after: Some(Duration::from_secs(1)) };
/// Between what a client asks while nobody writes.
const LULL_PAUSE: Duration = Duration::from_millis(200);
/// Longer than a write is waited for.
const SETTLING: Duration = Duration::from_secs(11);
/// How long a healed group may take until every replica answers.
const RECOVERY: Duration = Duration::from_secs(60);

pub struct World {
    network: MemoryNetwork,
    hosts: RefCell<Vec<Host>>,
    key: DataKey,
    cluster: ClusterId,
    pub oracle: RefCell<Oracle>,
    over: RefCell<bool>,
    /// Until then nobody writes, so that the group parks.
    lull: Cell<Instant>,
}

struct Host {
    name: HostName,
    disk: MemoryDisk,
    /// `None` while its process is dead.
    running: Option<Running>,
    /// Lives so far: what a process answers after its death does not count.
    life: u64,
}

#[derive(Clone)]
struct Running {
    manager: Arc<GroupManager>,
    store: ReplicatedStore,
}

pub async fn run(seed: u64, hosts: usize) -> Result<String, String> {
    let local = LocalSet::new();
    local.run_until(simulate(seed, hosts)).await
}

async fn simulate(seed: u64, count: usize) -> Result<String, String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let network = MemoryNetwork::default();
    network.set_delay(Duration::from_micros(rng.random_range(100..3000)));
    let name = |i: usize| format!("host-{i}").parse::<HostName>().expect("a host name");
    let hosts = (0..count).map(|i| Host { name: name(i), disk: MemoryDisk::default(), running: None, life: 0 }).collect();
    let world = Rc::new(World {
        network,
        hosts: RefCell::new(hosts),
        key: DataKey::random(),
        cluster: ClusterId::from_random(seed),
        oracle: RefCell::default(),
        over: RefCell::new(false),
        lull: Cell::new(Instant::now()),
    });
    let voters: Vec<_> = (0..count).map(|i| (ReplicaId(i as u64), name(i))).collect();
    for i in 0..count {
        let start = if i == 0 { Start::Found { voters: voters.clone() } } else { Start::Join };
        world.start(i, start).await?;
    }
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        tasks.push(tokio::task::spawn_local(client_loop(world.clone(), client, StdRng::seed_from_u64(seed ^ (client as u64 + 1) << 32))));
    }
    trouble(&world, &mut rng).await?;
    *world.over.borrow_mut() = true;
    for task in tasks {
        task.await.map_err(|e| format!("a client failed: {e}"))?;
    }
    world.heal().await?;
    let snapshots = world.agree().await?;
    world.finish().await;
    let mut oracle = world.oracle.borrow_mut();
    oracle.judge(&snapshots)?;
    Ok(format!("revision {}, {}", snapshots[0].revision(), oracle.seen.summary()))
}

impl World {
    async fn start(self: &Rc<Self>, i: usize, start: Start) -> Result<(), String> {
        let (name, disk, life) = {
            let mut hosts = self.hosts.borrow_mut();
            hosts[i].life += 1;
            (hosts[i].name.clone(), hosts[i].disk.clone(), hosts[i].life)
        };
        let transport = self.network.host(name.clone());
        let parts = HostParts { host: name, disk: HostDisk::simulated(&disk), transport, clock: Arc::new(ManualClock::default()) };
        let manager = GroupManager::with_limits(parts, LIMITS);
        let spec = ReplicaSpec { cluster: self.cluster.clone(), replica: ReplicaId(i as u64), key: self.key.clone(), start };
        let store = manager.start(spec).await.map_err(|e| format!("host {i} does not start: {e}"))?;
        self.hosts.borrow_mut()[i].running = Some(Running { manager, store: store.clone() });
        tokio::task::spawn_local(watch_loop(self.clone(), i, life, store.clone()));
        tokio::task::spawn_local(controller_loop(self.clone(), i, life, store.clone()));
        tokio::task::spawn_local(sample_loop(self.clone(), i, life, store));
        Ok(())
    }

    /// The process dies; of what it had not synced, `kept` batches are on disk all the same.
    fn kill(&self, i: usize, kept: usize) {
        let running = {
            let mut hosts = self.hosts.borrow_mut();
            let host = &mut hosts[i];
            host.life += 1;
            self.network.down(&host.name);
            host.disk.crash(kept);
            host.running.take()
        };
        if let Some(running) = running {
            // Only to give its memory back: nothing of it reaches the disk or the network any more.
            tokio::task::spawn_local(async move { running.manager.shutdown().await });
        }
    }

    fn store(&self, i: usize) -> Option<(ReplicatedStore, u64)> {
        let hosts = self.hosts.borrow();
        hosts[i].running.as_ref().map(|running| (running.store.clone(), hosts[i].life))
    }

    /// Whether the process is dead, or would end itself: its disk failed or its replica stopped.
    fn has_failed(&self, i: usize) -> bool {
        let hosts = self.hosts.borrow();
        hosts[i].running.as_ref().is_none_or(|running| running.manager.disk().has_failed() || running.store.fault().borrow().is_some())
    }

    fn lives(&self, i: usize, life: u64) -> bool {
        self.hosts.borrow()[i].life == life
    }

    fn count(&self) -> usize {
        self.hosts.borrow().len()
    }

    async fn heal(self: &Rc<Self>) -> Result<(), String> {
        self.network.mend_all();
        for i in 0..self.count() {
            {
                let hosts = self.hosts.borrow();
                hosts[i].disk.set_full(false);
                hosts[i].disk.set_failing(false);
                hosts[i].disk.set_sync_delay(Duration::ZERO);
            }
            if self.has_failed(i) {
                self.kill(i, usize::MAX);
                self.start(i, Start::Resume).await?;
            }
        }
        Ok(())
    }

    /// Every replica's state once all have reached the same revision.
    async fn agree(&self) -> Result<Vec<Snapshot>, String> {
        // What controllers had proposed is through by then, or given up.
        sleep(SETTLING).await;
        let give_up = Instant::now() + RECOVERY;
        loop {
            let mut snapshots = Vec::new();
            for i in 0..self.count() {
                let (store, _) = self.store(i).ok_or("a healed host does not run")?;
                if let Ok(snapshot) = store.barrier().await {
                    snapshots.push(snapshot);
                }
            }
            for i in 0..self.count() {
                if let Some((store, _)) = self.store(i) {
                    store.check().map_err(|broken| format!("host {i}: {broken}"))?;
                }
            }
            if snapshots.len() == self.count() && snapshots.iter().all(|s| s.revision() == snapshots[0].revision()) {
                return Ok(snapshots);
            }
            if Instant::now() > give_up {
                return Err(format!("a healed group does not come together: {:#?}", self.describe()));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// What each host says of itself.
    fn describe(&self) -> Vec<String> {
        let hosts = self.hosts.borrow();
        let running = hosts.iter().filter_map(|host| host.running.as_ref().map(|running| (host, running)));
        let one = |(host, running): (&Host, &Running)| {
            let (store, failed) = (&running.store, running.manager.disk().has_failed());
            let (revision, leadership) = (store.snapshot().revision(), *store.leadership().borrow());
            format!("{}: {:?}, disk failed: {failed}, revision {revision}, {leadership:?}, {:?}", host.name, store.state(), store.members())
        };
        running.map(one).collect()
    }

    /// Lets the watches read to the end, then stops everything.
    async fn finish(&self) {
        sleep(Duration::from_secs(1)).await;
        for i in 0..self.count() {
            let running = self.hosts.borrow_mut()[i].running.take();
            self.hosts.borrow_mut()[i].life += 1;
            if let Some(running) = running {
                running.manager.shutdown().await;
            }
        }
    }
}

async fn trouble(world: &Rc<World>, rng: &mut StdRng) -> Result<(), String> {
    let count = world.count();
    let end = Instant::now() + TROUBLE;
    while Instant::now() < end {
        sleep(Duration::from_millis(rng.random_range(100..1500))).await;
        if rng.random_bool(0.15) {
            world.lull.set(Instant::now() + Duration::from_millis(rng.random_range(1500..6000)));
        }
        let i = rng.random_range(0..count);
        let j = (i + rng.random_range(1..count)) % count;
        let (a, b, disk) = {
            let hosts = world.hosts.borrow();
            (hosts[i].name.clone(), hosts[j].name.clone(), hosts[i].disk.clone())
        };
        if rng.random_bool(0.45) {
            relieve(world, rng).await?;
            continue;
        }
        match rng.random_range(0..8) {
            0 | 1 => world.kill(i, rng.random_range(0..4)),
            2 => world.network.cut(&a, &b),
            3 => {
                world.network.cut(&a, &b);
                world.network.cut(&b, &a);
            }
            4 => disk.set_full(true),
            5 => disk.set_sync_delay(Duration::from_millis(rng.random_range(0..400))),
            6 => {
                // A host that stalls: silent for a while, then as if nothing had been.
                for other in 0..count {
                    let other = world.hosts.borrow()[other].name.clone();
                    world.network.cut(&a, &other);
                    world.network.cut(&other, &a);
                }
            }
            _ => disk.set_failing(rng.random_bool(0.3)),
        }
    }
    Ok(())
}

/// Ends some of the trouble: processes come back, links are mended, disks get room.
async fn relieve(world: &Rc<World>, rng: &mut StdRng) -> Result<(), String> {
    world.network.mend_all();
    for i in 0..world.count() {
        let disk = world.hosts.borrow()[i].disk.clone();
        if rng.random_bool(0.7) {
            disk.set_full(false);
            disk.set_sync_delay(Duration::ZERO);
        }
        match world.store(i) {
            None if rng.random_bool(0.7) => world.start(i, Start::Resume).await?,
            Some(_) if world.has_failed(i) => {
                // A host whose disk failed ends and is started again.
                world.kill(i, 0);
                world.start(i, Start::Resume).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn key(i: usize) -> Bytes {
    Bytes::from(format!("/registry/core/things/{i}"))
}

async fn client_loop(world: Rc<World>, client: usize, mut rng: StdRng) {
    for n in 0.. {
        if *world.over.borrow() {
            return;
        }
        sleep(Duration::from_millis(rng.random_range(0..30))).await;
        let host = rng.random_range(0..world.count());
        let Some((store, life)) = world.store(host) else { continue };
        let key = key(rng.random_range(0..KEYS));
        let lull = world.lull.get() > Instant::now();
        if lull {
            sleep(LULL_PAUSE).await;
        }
        if lull || rng.random_bool(0.3) {
            read(&world, host, life, &store, key).await;
        } else {
            write(&world, host, life, &store, key, format!("{client}-{n}"), &mut rng).await;
        }
    }
}

async fn read(world: &World, host: usize, life: u64, store: &ReplicatedStore, key: Bytes) {
    let invoked = world.oracle.borrow_mut().seen.tick();
    let result = store.barrier().await;
    let seen = &mut world.oracle.borrow_mut().seen;
    let completed = seen.tick();
    if let Ok(snapshot) = result
        && world.lives(host, life)
    {
        let found = snapshot.get(&key).map(|kv| (kv.value.clone(), kv.mod_revision));
        seen.reads.push(Read { invoked, completed, revision: Some(snapshot.revision()), key, found });
    }
}

async fn write(world: &World, host: usize, life: u64, store: &ReplicatedStore, key: Bytes, value: String, rng: &mut StdRng) {
    let seen = store.snapshot().get(&key).map_or(0, |kv| kv.mod_revision);
    let compare = rng.random_bool(0.5).then_some(seen);
    let delete = rng.random_bool(0.15);
    let mut txn = Txn::default();
    if let Some(revision) = compare {
        txn = txn.if_mod_revision(key.clone(), revision);
    }
    // A marker of its own makes every write recognisable in the history, deletions included.
    let marker = Bytes::from(format!("/registry/core/markers/{value}"));
    txn = txn.put(marker.clone(), value.clone());
    txn = if delete { txn.delete(key.clone()) } else { txn.put(key.clone(), value.clone()) };
    let invoked = world.oracle.borrow_mut().seen.tick();
    let result = store.commit(Command::Txn { txn, fence: None }).await;
    let seen = &mut world.oracle.borrow_mut().seen;
    let completed = seen.tick();
    let result = match result {
        _ if !world.lives(host, life) => WriteResult::Unknown,
        Ok(Outcome::Txn(outcome)) if outcome.succeeded => WriteResult::Done(Some(outcome.revision)),
        Ok(Outcome::Txn(outcome)) => WriteResult::Lost(outcome.revision),
        Ok(_) | Err(CommitError::Unknown(_)) => WriteResult::Unknown,
        Err(_) => WriteResult::NotDone,
    };
    let (name, value) = (value.clone(), (!delete).then(|| value.into()));
    seen.writes.push(Write { invoked, completed, name, key, value, compare, mark: Mark::Key(marker), result });
}

/// Acts only while its replica leads, as a controller does: every write is fenced to the leadership it saw.
async fn controller_loop(world: Rc<World>, host: usize, life: u64, store: ReplicatedStore) {
    let mut leadership = store.leadership();
    for n in 0.. {
        if !world.lives(host, life) || *world.over.borrow() {
            return;
        }
        let seen = *leadership.borrow_and_update();
        if !seen.here {
            let _ = tokio::time::timeout(Duration::from_millis(200), leadership.changed()).await;
            continue;
        }
        if world.lull.get() > Instant::now() {
            sleep(LULL_PAUSE).await;
            continue;
        }
        let claim = Claim { holder: host.to_string(), term: seen.term };
        let txn = Txn::default().put(format!("{CLAIMS}{}-{host}-{life}-{n}", seen.term), encode(&claim));
        // Whatever comes of it, the history tells.
        let _ = store.commit(Command::Txn { txn, fence: Some(Fence { term: seen.term }) }).await;
        sleep(Duration::from_millis(40)).await;
    }
}

/// Watches everything from where this host's former watch ended.
async fn watch_loop(world: Rc<World>, host: usize, life: u64, store: ReplicatedStore) {
    let name = format!("host {host}");
    let after = world.oracle.borrow().seen.watched.get(&name).and_then(|told: &Vec<Step>| told.last()).map_or(1, |step| step.revision);
    let mut watch = match store.watch(KeyRange::prefix("/registry/"), after) {
        Ok(watch) => watch,
        Err(error) => {
            world.oracle.borrow_mut().seen.broken.push(format!("{name} cannot watch after {after}: {error}"));
            return;
        }
    };
    while let Ok(changes) = watch.next().await {
        if !world.lives(host, life) {
            return;
        }
        world.oracle.borrow_mut().seen.watched.entry(name.clone()).or_default().push(step(changes.revision, &changes.events));
    }
}

/// Looks at the local state now and then: replicas must not differ at the same revision.
async fn sample_loop(world: Rc<World>, host: usize, life: u64, store: ReplicatedStore) {
    while world.lives(host, life) {
        sleep(Duration::from_millis(97)).await;
        let snapshot = store.snapshot();
        world.oracle.borrow_mut().sample(host, snapshot.revision(), content(&snapshot));
    }
}
