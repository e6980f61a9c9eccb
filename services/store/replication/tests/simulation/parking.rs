//! Many groups on three hosts that mostly rest, while links break one way and both ways, hosts stall and die, and replicas end on living hosts.
//!
//! Held: a group at rest stays at rest and its term stays as it is; its term grows only if its leader lost its quorum, its process or its replica;
//! and while a quorum is up, a request at a replica that belongs to it is answered within two seconds. Everything rests again at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};
use wheelhouse_base::{ClusterId, HostName, ManualClock, ReplicaId, Term};
use wheelhouse_mvcc::{Command, Txn};
use wheelhouse_replication::{DataKey, GroupId, GroupManager, HostParts, Limits, MemoryNetwork, ReplicaSpec, ReplicatedStore, Start};
use wheelhouse_rocks::{HostDisk, MemoryDisk};
use wheelhouse_store::Store;

const HOSTS: usize = 3;
const GROUPS: usize = 50;
const ROUNDS: usize = 8;
/// Groups of which something is asked in each round; the others go on resting if they can.
const ASKED: usize = 16;
const PARK_AFTER: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(2);
/// Trying to park, electing, and parking after that.
const TO_REST: Duration = Duration::from_secs(60);

struct World {
    network: MemoryNetwork,
    disks: Vec<MemoryDisk>,
    /// `None` while the process is dead.
    managers: Vec<Option<Arc<GroupManager>>>,
    /// By group and host; `None` while the replica does not run.
    stores: Vec<Vec<Option<ReplicatedStore>>>,
    key: DataKey,
    cuts: BTreeSet<(usize, usize)>,
    /// How many writes were made, by group; all are acknowledged.
    written: BTreeMap<usize, u64>,
}

#[derive(Debug)]
enum Fault {
    OneWay(usize, usize),
    BothWays(usize, usize),
    /// Nothing reaches the host and nothing leaves it.
    Stall(usize),
    Kill(usize),
    /// Some groups' leading replicas end, their host lives.
    End(Vec<usize>),
}

/// Who leads a group, and when its term should stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Led {
    host: usize,
    term: Term,
}

pub async fn run(seed: u64) -> Result<String, String> {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x7061_726b);
    let mut world = World::start(&mut rng).await?;
    world.rest().await?;
    let before = world.led()?;
    sleep(Duration::from_secs(600)).await;
    if let Some(group) = (0..GROUPS).find(|group| !world.is_parked(*group)) {
        return Err(format!("group {group} did not stay at rest: {}", world.describe(group)));
    }
    if world.led()? != before {
        return Err("a leader or term changed while nothing happened".to_owned());
    }
    let (mut slowest, mut terms) = (Duration::ZERO, 0);
    for round in 0..ROUNDS {
        let before = world.led()?;
        let fault = world.fault(&mut rng, &before);
        let failed = |why: String| format!("round {round}, {fault:?}: {why}");
        world.inflict(&fault, &before).await;
        slowest = slowest.max(world.ask(&mut rng, &before).await.map_err(failed)?);
        sleep(Duration::from_millis(rng.random_range(0..4000))).await;
        let keeps: Vec<bool> = before.iter().enumerate().map(|(group, led)| world.has_quorum(group, led.host)).collect();
        world.heal().await?;
        world.rest().await.map_err(failed)?;
        for (group, (was, now)) in before.iter().zip(world.led()?).enumerate() {
            let grown = now.term - was.term;
            terms += grown;
            if keeps[group] && now != *was {
                return Err(failed(format!("group {group} changed from {was:?} to {now:?}, though its leader kept its quorum")));
            }
            if grown > 3 {
                return Err(failed(format!("group {group}'s term grew by {grown}")));
            }
        }
    }
    world.judge().await?;
    world.stop().await;
    Ok(format!("slowest answer {slowest:?}, {terms} terms in {ROUNDS} rounds"))
}

fn name(host: usize) -> HostName {
    format!("host-{host}").parse().unwrap()
}

fn id(group: usize, host: usize) -> GroupId {
    GroupId::new(ClusterId::from_random(group as u64), ReplicaId(host as u64))
}

impl World {
    async fn start(rng: &mut StdRng) -> Result<Self, String> {
        let network = MemoryNetwork::default();
        network.set_delay(Duration::from_micros(rng.random_range(100..3000)));
        let mut world = Self {
            network,
            disks: (0..HOSTS).map(|_| MemoryDisk::default()).collect(),
            managers: vec![None; HOSTS],
            stores: vec![vec![None; HOSTS]; GROUPS],
            key: DataKey::random(),
            cuts: BTreeSet::new(),
            written: BTreeMap::new(),
        };
        for host in 0..HOSTS {
            world.boot(host);
            for group in 0..GROUPS {
                let voters = (0..HOSTS).map(|host| (ReplicaId(host as u64), name(host))).collect();
                let start = if group % HOSTS == host { Start::Found { voters } } else { Start::Join };
                world.start_replica(group, host, start).await?;
            }
        }
        Ok(world)
    }

    fn boot(&mut self, host: usize) {
        let (transport, disk) = (self.network.host(name(host)), HostDisk::simulated(&self.disks[host]));
        let parts = HostParts { host: name(host), disk, transport, clock: Arc::new(ManualClock::default()) };
        let limits = Limits { park_after: Some(PARK_AFTER), ..Limits::default() };
        self.managers[host] = Some(GroupManager::with_limits(parts, limits));
    }

    async fn start_replica(&mut self, group: usize, host: usize, start: Start) -> Result<(), String> {
        let manager = self.managers[host].clone().ok_or("the host is dead")?;
        let id = id(group, host);
        let spec = ReplicaSpec { cluster: id.cluster, replica: id.replica, key: self.key.clone(), start };
        self.stores[group][host] = Some(manager.start(spec).await.map_err(|e| e.to_string())?);
        Ok(())
    }

    fn running(&self, group: usize) -> impl Iterator<Item = (usize, &ReplicatedStore)> {
        self.stores[group].iter().enumerate().filter_map(|(host, store)| store.as_ref().map(|store| (host, store)))
    }

    fn is_parked(&self, group: usize) -> bool {
        self.running(group).count() == HOSTS && self.running(group).all(|(_, store)| store.is_parked())
    }

    /// Waits until every group rests everywhere.
    async fn rest(&self) -> Result<(), String> {
        let give_up = Instant::now() + TO_REST;
        while let Some(group) = (0..GROUPS).find(|group| !self.is_parked(*group)) {
            if Instant::now() > give_up {
                return Err(format!("group {group} does not come to rest: {}", self.describe(group)));
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn describe(&self, group: usize) -> String {
        let one = |(host, store): (usize, &ReplicatedStore)| {
            format!("host {host}: parked {}, {:?}, {:?}, {:?}", store.is_parked(), *store.leadership().borrow(), store.state(), store.members())
        };
        self.running(group).map(one).collect::<Vec<_>>().join("; ")
    }

    /// Each group's one leader, on which all agree.
    fn led(&self) -> Result<Vec<Led>, String> {
        let of = |group: usize| {
            let all: Vec<_> = self.running(group).map(|(host, store)| (host, *store.leadership().borrow())).collect();
            let (host, leads) = *all.iter().find(|(_, seen)| seen.here).ok_or_else(|| format!("group {group} has no leader: {all:?}"))?;
            if all.iter().any(|(_, seen)| (seen.term, seen.leader) != (leads.term, leads.leader)) {
                return Err(format!("group {group} does not agree on its leader: {all:?}"));
            }
            Ok(Led { host, term: leads.term })
        };
        (0..GROUPS).map(of).collect()
    }

    fn fault(&self, rng: &mut StdRng, led: &[Led]) -> Fault {
        let a = rng.random_range(0..HOSTS);
        let b = (a + rng.random_range(1..HOSTS)) % HOSTS;
        match rng.random_range(0..6) {
            0 | 1 => Fault::OneWay(a, b),
            2 => Fault::BothWays(a, b),
            3 => Fault::Stall(a),
            4 => Fault::Kill(a),
            _ => Fault::End((0..led.len()).filter(|_| rng.random_bool(0.2)).collect()),
        }
    }

    async fn inflict(&mut self, fault: &Fault, led: &[Led]) {
        let cuts: Vec<(usize, usize)> = match fault {
            Fault::OneWay(a, b) => vec![(*a, *b)],
            Fault::BothWays(a, b) => vec![(*a, *b), (*b, *a)],
            Fault::Stall(a) => (0..HOSTS).filter(|b| b != a).flat_map(|b| [(*a, b), (b, *a)]).collect(),
            Fault::Kill(host) => {
                self.network.down(&name(*host));
                self.disks[*host].crash(0);
                self.stores.iter_mut().for_each(|stores| stores[*host] = None);
                if let Some(manager) = self.managers[*host].take() {
                    // Only to give its memory back: nothing of it reaches the disk or the network any more.
                    tokio::spawn(async move { manager.shutdown().await });
                }
                Vec::new()
            }
            Fault::End(groups) => {
                for group in groups {
                    let host = led[*group].host;
                    self.stores[*group][host] = None;
                    if let Some(manager) = &self.managers[host] {
                        manager.stop(&id(*group, host)).await;
                    }
                }
                Vec::new()
            }
        };
        for (a, b) in cuts {
            self.network.cut(&name(a), &name(b));
            self.cuts.insert((a, b));
        }
    }

    async fn heal(&mut self) -> Result<(), String> {
        self.network.mend_all();
        self.cuts.clear();
        for host in 0..HOSTS {
            if self.managers[host].is_none() {
                self.boot(host);
            }
            for group in 0..GROUPS {
                if self.stores[group][host].is_none() {
                    self.start_replica(group, host, Start::Resume).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether both replicas run and reach each other.
    fn linked(&self, group: usize, a: usize, b: usize) -> bool {
        let runs = |host: usize| self.stores[group][host].is_some();
        runs(a) && runs(b) && (a == b || (!self.cuts.contains(&(a, b)) && !self.cuts.contains(&(b, a))))
    }

    fn has_quorum(&self, group: usize, host: usize) -> bool {
        (0..HOSTS).filter(|other| self.linked(group, host, *other)).count() > HOSTS / 2
    }

    /// Whether a request at this host is to be answered: it reaches the leader, who has a quorum, or a quorum that can elect another one.
    fn is_served(&self, group: usize, host: usize, leader: usize) -> bool {
        if self.has_quorum(group, leader) { self.linked(group, host, leader) } else { self.has_quorum(group, host) }
    }

    /// Reads and writes some groups, all at once, from the moment of the fault on.
    async fn ask(&mut self, rng: &mut StdRng, led: &[Led]) -> Result<Duration, String> {
        let mut asked = Vec::new();
        for _ in 0..ASKED {
            let (group, host) = (rng.random_range(0..GROUPS), rng.random_range(0..HOSTS));
            let Some(store) = self.stores[group][host].clone().filter(|_| self.is_served(group, host, led[group].host)) else { continue };
            let wait = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..2000) };
            let (write, wait) = (rng.random_bool(0.5), Duration::from_millis(wait));
            let number = self.written.get(&group).copied().unwrap_or(0) + 1;
            if write {
                self.written.insert(group, number);
            }
            asked.push(async move {
                sleep(wait).await;
                let began = Instant::now();
                while !answers(&store, write, number).await {
                    if began.elapsed() > 10 * LIMIT {
                        break;
                    }
                }
                let took = began.elapsed();
                if took > LIMIT {
                    let what = if write { "write" } else { "read" };
                    return Err(format!("a {what} of group {group} at host {host} took {took:?}"));
                }
                Ok(took)
            });
        }
        let all = futures::future::join_all(asked).await;
        all.into_iter().try_fold(Duration::ZERO, |slowest, took| took.map(|took| slowest.max(took)))
    }

    /// Nothing that was acknowledged is missing anywhere.
    async fn judge(&self) -> Result<(), String> {
        for (group, number) in &self.written {
            for (host, store) in self.running(*group) {
                let state = store.barrier().await.map_err(|e| format!("group {group} at host {host}: {e}"))?;
                if let Some(missing) = (1..=*number).find(|number| state.get(key(*number).as_bytes()).is_none()) {
                    return Err(format!("group {group} at host {host} lacks write {missing} of {number}"));
                }
            }
        }
        Ok(())
    }

    async fn stop(self) {
        for manager in self.managers.into_iter().flatten() {
            manager.shutdown().await;
        }
    }
}

fn key(number: u64) -> String {
    format!("/n/{number}")
}

/// One try. Writing the same again is harmless.
async fn answers(store: &ReplicatedStore, write: bool, number: u64) -> bool {
    if !write {
        return store.barrier().await.is_ok();
    }
    let txn = Txn::default().put(key(number), "");
    let done = store.commit(Command::Txn { txn, fence: None }).await.is_ok();
    if !done {
        sleep(Duration::from_millis(10)).await;
    }
    done
}
