//! One group of three replicas on a simulated network and simulated disks, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use wheelhouse_base::{ClusterId, HostName, ManualClock, ReplicaId};
use wheelhouse_mvcc::{Command, Outcome, Txn};
use wheelhouse_replication::{
    DataKey, GroupId, GroupManager, HostParts, Limits, LogLimits, MembershipError, MemoryNetwork, ReplicaSpec, ReplicaState, ReplicatedStore, Role,
    Start, StartError,
};
use wheelhouse_rocks::{HostDisk, MemoryDisk};
use wheelhouse_store::Store;

struct World {
    network: MemoryNetwork,
    disks: Vec<MemoryDisk>,
    key: DataKey,
    cluster: ClusterId,
}

fn host(i: usize) -> HostName {
    format!("host-{i}").parse().unwrap()
}

impl World {
    fn new(hosts: usize) -> Self {
        let network = MemoryNetwork::default();
        network.set_delay(Duration::from_millis(1));
        Self { network, disks: (0..hosts).map(|_| MemoryDisk::default()).collect(), key: DataKey::random(), cluster: ClusterId::from_random(9) }
    }

    fn manager(&self, i: usize) -> Arc<GroupManager> {
        let transport = self.network.host(host(i));
        let parts = HostParts { host: host(i), disk: HostDisk::simulated(&self.disks[i]), transport, clock: Arc::new(ManualClock::default()) };
        GroupManager::with_limits(parts, Limits { log: LogLimits { entries: 100, kept: 20 }, ..Limits::default() })
    }

    fn spec(&self, i: usize, start: Start) -> ReplicaSpec {
        ReplicaSpec { cluster: self.cluster.clone(), replica: ReplicaId(i as u64), key: self.key.clone(), start }
    }

    fn id(&self, i: usize) -> GroupId {
        GroupId::new(self.cluster.clone(), ReplicaId(i as u64))
    }

    fn founding(&self) -> Start {
        Start::Found { voters: (0..3).map(|i| (ReplicaId(i as u64), host(i))).collect() }
    }
}

async fn three(world: &World) -> (Vec<Arc<GroupManager>>, Vec<ReplicatedStore>) {
    let managers: Vec<_> = (0..3).map(|i| world.manager(i)).collect();
    let mut stores = Vec::new();
    for (i, manager) in managers.iter().enumerate() {
        let start = if i == 0 { world.founding() } else { Start::Join };
        stores.push(manager.start(world.spec(i, start)).await.unwrap());
    }
    (managers, stores)
}

fn put(key: &str, value: &str) -> Command {
    Command::Txn { txn: Txn::default().put(key.to_owned(), value.to_owned()), fence: None }
}

async fn leader(stores: &[ReplicatedStore]) -> usize {
    let waits = stores.iter().map(|store| {
        let mut leadership = store.leadership();
        Box::pin(async move { leadership.wait_for(|leadership| leadership.here).await.map(|_| ()) })
    });
    let (_, index, _) = futures::future::select_all(waits).await;
    index
}

#[tokio::test(start_paused = true)]
async fn writes_on_any_replica_are_read_on_any() {
    let world = World::new(3);
    let (_managers, stores) = three(&world).await;
    for round in 0..3 {
        for (i, store) in stores.iter().enumerate() {
            let key = format!("/registry/core/x/{round}-{i}");
            let outcome = store.commit(put(&key, "value")).await.unwrap();
            assert!(matches!(outcome, Outcome::Txn(txn) if txn.succeeded));
            for other in &stores {
                assert!(other.barrier().await.unwrap().get(key.as_bytes()).is_some());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_replica_and_a_restarted_group_hold_everything() {
    let world = World::new(3);
    let (managers, stores) = three(&world).await;
    for i in 0..50 {
        stores[0].commit(put(&format!("/k/{i}"), "value")).await.unwrap();
    }
    managers[1].stop(&world.id(1)).await;
    for i in 50..100 {
        stores[0].commit(put(&format!("/k/{i}"), "value")).await.unwrap();
    }
    let back = managers[1].start(world.spec(1, Start::Resume)).await.unwrap();
    assert_eq!(back.barrier().await.unwrap().len(), 100);

    for (i, manager) in managers.iter().enumerate() {
        manager.shutdown().await;
        world.network.down(&host(i));
        manager.disk().close();
        world.disks[i].crash(0);
    }
    let managers: Vec<_> = (0..3).map(|i| world.manager(i)).collect();
    let mut stores = Vec::new();
    for (i, manager) in managers.iter().enumerate() {
        stores.push(manager.start(world.spec(i, Start::Resume)).await.unwrap());
    }
    for store in &stores {
        assert_eq!(store.barrier().await.unwrap().len(), 100);
    }
}

#[tokio::test(start_paused = true)]
async fn the_leadership_moves_within_150_ms_when_it_is_handed_over() {
    let world = World::new(3);
    let (_managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    let first = leader(&stores).await;
    let began = tokio::time::Instant::now();
    let successor = stores[first].transfer_leadership(None).await.unwrap();
    stores[successor.0 as usize].leadership().wait_for(|leadership| leadership.here).await.unwrap();
    assert_ne!(successor.0 as usize, first);
    assert!(began.elapsed() <= Duration::from_millis(150), "{:?}", began.elapsed());
    stores[first].commit(put("/a", "2")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_of_three_passes_the_stores_suite() {
    wheelhouse_store::suite::run(|| async {
        let world = World::new(3);
        let (managers, stores) = three(&world).await;
        let first = leader(&stores).await;
        // The group lives as long as the test.
        std::mem::forget(managers);
        Arc::new(stores[first].clone()) as Arc<dyn Store>
    })
    .await;
}

/// Asks until the answer is not that the change must wait for something that comes by itself.
async fn until_done<F>(mut change: impl FnMut() -> F)
where
    F: Future<Output = Result<(), MembershipError>>,
{
    for _ in 0..200 {
        match change().await {
            Ok(()) => return,
            Err(MembershipError::Lagging { .. } | MembershipError::InProgress) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the change is not done");
}

#[tokio::test(start_paused = true)]
async fn a_group_grows_to_five_and_shrinks_to_three() {
    let world = World::new(5);
    let (managers, stores) = three(&world).await;
    // More than the log keeps, so that the new members need a snapshot.
    for i in 0..400 {
        stores[0].commit(put(&format!("/k/{i}"), "value")).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let first = leader(&stores).await;
    let mut joined = Vec::new();
    for i in [3, 4] {
        let manager = world.manager(i);
        joined.push((manager.start(world.spec(i, Start::Join)).await.unwrap(), manager));
        stores[first].add_learner(ReplicaId(i as u64), host(i)).await.unwrap();
        until_done(|| stores[first].promote(ReplicaId(i as u64))).await;
    }
    let members = stores[first].members();
    assert_eq!(members.iter().filter(|member| member.role == Role::Voter).count(), 5);
    assert!(members.iter().all(|member| member.lag.is_some()), "the leader knows everyone's progress: {members:?}");
    for (store, _) in &joined {
        let snapshot = store.barrier().await.unwrap();
        assert_eq!(snapshot.len(), 400);
        assert_eq!(snapshot.history_start(), stores[first].snapshot().history_start(), "the history came along");
        store.check().unwrap();
    }
    // The first two leave, the leader among them if it is one of them.
    let all: Vec<_> = stores.iter().chain(joined.iter().map(|(store, _)| store)).cloned().collect();
    for gone in [0, 1] {
        for _ in 0..50 {
            let remaining = &all[gone..];
            match remaining[leader(remaining).await].remove(ReplicaId(gone as u64)).await {
                Ok(()) => break,
                Err(MembershipError::LeaderLeaves | MembershipError::NotLeader { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
        managers[gone].destroy(&world.id(gone)).await.unwrap();
        assert!(world.disks[gone].is_empty(), "nothing of the replica is left");
    }
    joined[0].0.commit(put("/k/last", "value")).await.unwrap();
    assert_eq!(joined[1].0.barrier().await.unwrap().len(), 401);
    let left: Vec<_> = joined[1].0.members().iter().map(|member| member.replica.0).collect();
    assert_eq!(left, [2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_voter_stays_if_the_others_cannot_prove_a_quorum() {
    let world = World::new(3);
    let (managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    let first = leader(&stores).await;
    let others: Vec<usize> = (0..3).filter(|i| *i != first).collect();
    managers[others[0]].stop(&world.id(others[0])).await;
    // The leader and the stopped one would remain.
    let refused = stores[first].remove(ReplicaId(others[1] as u64)).await;
    assert!(matches!(refused, Err(MembershipError::QuorumNotProven(_))), "{refused:?}");
    // The stopped one may go.
    stores[first].remove(ReplicaId(others[0] as u64)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_disk_was_lost_says_so() {
    let mut world = World::new(3);
    let (managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    managers[2].shutdown().await;
    world.network.down(&host(2));
    world.disks[2] = MemoryDisk::default();
    let lost = world.manager(2).start(world.spec(2, Start::Resume)).await;
    assert!(matches!(lost, Err(StartError::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_writes_and_serves_deletes() {
    let world = World::new(3);
    let (_managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    world.disks.iter().for_each(|disk| disk.set_full(true));
    assert!(matches!(stores[0].commit(put("/a", "2")).await, Err(wheelhouse_store::CommitError::DiskFull)));
    let delete = Command::Txn { txn: Txn::default().delete("/a"), fence: None };
    stores[1].commit(delete).await.unwrap();
    assert!(stores[2].barrier().await.unwrap().is_empty());
    world.disks.iter().for_each(|disk| disk.set_full(false));
    stores[0].commit(put("/a", "2")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_disk_faults_the_replica_and_the_others_go_on() {
    let world = World::new(3);
    let (_managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    let first = leader(&stores).await;
    world.disks[first].set_failing(true);
    let other = &stores[(first + 1) % 3];
    for n in 0.. {
        assert!(n < 100, "the others take over");
        if other.commit(put("/a", "2")).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stores[first].fault().wait_for(Option::is_some).await.unwrap();
    assert!(matches!(stores[first].state(), ReplicaState::Faulted { .. }));
    assert!(!stores[first].leadership().borrow().here);
    // A follower's failure shows as well, although nobody may be waiting for its disk.
    let second = (0..3).find(|i| *i != first && !stores[*i].leadership().borrow().here).unwrap();
    world.disks[second].set_failing(true);
    tokio::time::timeout(Duration::from_secs(5), async {
        while stores[second].fault().borrow().is_none() {
            let _ = tokio::time::timeout(Duration::from_millis(100), other.commit(put("/a", "3"))).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn leases_end_at_the_leader() {
    let world = World::new(3);
    let (_managers, stores) = three(&world).await;
    stores[0].commit(Command::LeaseGrant { id: 7, ttl_secs: 5 }).await.unwrap();
    let put = wheelhouse_mvcc::Put { key: "/leased".into(), value: "v".into(), lease: 7, prev_kv: false, ignore_value: false, ignore_lease: false };
    let txn = Txn { success: vec![wheelhouse_mvcc::Op::Put(put)], ..Txn::default() };
    stores[1].commit(Command::Txn { txn, fence: None }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    stores[2].commit(Command::LeaseRenew { id: 7 }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(stores[0].barrier().await.unwrap().len(), 1, "the renewal counts");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(stores[0].barrier().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_nobody_hears_stops_acting_and_refuses_at_once() {
    let world = World::new(3);
    let (_managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    let first = leader(&stores).await;
    for other in (0..3).filter(|other| *other != first) {
        world.network.cut(&host(first), &host(other));
        world.network.cut(&host(other), &host(first));
    }
    stores[first].leadership().wait_for(|leadership| !leadership.here).await.unwrap();
    let refused = stores[first].commit(put("/a", "2")).await;
    assert!(matches!(refused, Err(wheelhouse_store::CommitError::Unavailable)), "certainly not done: {refused:?}");
    stores[(first + 1) % 3].commit(put("/a", "3")).await.unwrap();
    world.network.mend_all();
    let snapshot = stores[first].barrier().await.unwrap();
    assert_eq!(snapshot.get(b"/a").unwrap().value, "3");
}

#[tokio::test(start_paused = true)]
async fn the_leader_moves_to_a_host_with_room() {
    let world = World::new(3);
    let (_managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    let first = leader(&stores).await;
    let second = (first + 1) % 3;
    world.disks[first].set_full(true);
    world.disks[second].set_full(true);
    let third = (first + 2) % 3;
    stores[third].leadership().wait_for(|leadership| leadership.here).await.unwrap();
    stores[first].commit(put("/a", "2")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_founder_that_was_stopped_at_once_founds_later_and_only_once() {
    let world = World::new(3);
    let Start::Found { voters } = world.founding() else { unreachable!() };
    // It has opened its disk and come no further.
    let managers: Vec<_> = (0..3).map(|i| world.manager(i)).collect();
    managers[0].start(world.spec(0, Start::Join)).await.unwrap();
    managers[0].stop(&world.id(0)).await;
    let again = Start::ResumeFounder { voters };
    let first = managers[0].start(world.spec(0, again.clone())).await.unwrap();
    for i in [1, 2] {
        managers[i].start(world.spec(i, Start::Join)).await.unwrap();
    }
    first.commit(put("/a", "1")).await.unwrap();
    managers[0].stop(&world.id(0)).await;
    let first = managers[0].start(world.spec(0, again.clone())).await.unwrap();
    assert_eq!(first.barrier().await.unwrap().len(), 1);
    let mut lost = World::new(1);
    lost.cluster = world.cluster.clone();
    let refused = lost.manager(0).start(lost.spec(0, again)).await;
    assert!(matches!(refused, Err(StartError::Lost(_))));
}

/// How long until the others take a write after the leader's host was taken away.
async fn gap_after(take_away: impl Fn(&World, usize, &[Arc<GroupManager>])) -> Duration {
    let world = World::new(3);
    let (managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    let first = leader(&stores).await;
    // The hosts come to know each other.
    tokio::time::sleep(Duration::from_secs(2)).await;
    take_away(&world, first, &managers);
    let began = tokio::time::Instant::now();
    let other = &stores[(first + 1) % 3];
    while other.commit(put("/a", "2")).await.is_err() {}
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_followed_at_once_and_a_silent_one_soon() {
    let killed = gap_after(|world, leader, _| world.network.down(&host(leader))).await;
    assert!(killed <= Duration::from_millis(200), "{killed:?}");
    let silent = gap_after(|world, leader, _| {
        for other in (0..3).filter(|other| *other != leader) {
            world.network.cut(&host(leader), &host(other));
            world.network.cut(&host(other), &host(leader));
        }
    });
    let silent = silent.await;
    assert!(silent <= Duration::from_millis(1300), "{silent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_replica_ended_on_a_living_host_is_followed_at_once() {
    let world = World::new(3);
    let (managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    let first = leader(&stores).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    managers[first].stop(&world.id(first)).await;
    let began = tokio::time::Instant::now();
    stores[(first + 1) % 3].commit(put("/a", "2")).await.unwrap();
    assert!(began.elapsed() <= Duration::from_millis(200), "{:?}", began.elapsed());
}

async fn until_parked(stores: &[ReplicatedStore]) {
    let parked = async {
        while !stores.iter().all(ReplicatedStore::is_parked) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), parked).await.expect("an idle group parks");
}

#[tokio::test(start_paused = true)]
async fn an_idle_group_parks_reads_leave_it_parked_and_a_write_wakes_it() {
    let world = World::new(3);
    let (_managers, stores) = three(&world).await;
    stores[0].commit(put("/a", "1")).await.unwrap();
    until_parked(&stores).await;
    let term = stores[0].leadership().borrow().term;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    for store in &stores {
        assert_eq!(store.barrier().await.unwrap().get(b"/a").unwrap().value, "1");
    }
    assert!(stores.iter().all(ReplicatedStore::is_parked), "reads wake nobody");
    let began = tokio::time::Instant::now();
    stores[1].commit(put("/a", "2")).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
    assert!(!stores.iter().any(ReplicatedStore::is_parked));
    until_parked(&stores).await;
    let lead = leader(&stores).await;
    stores[lead].transfer_leadership(None).await.unwrap();
    until_parked(&stores).await;
    assert_eq!(stores[0].leadership().borrow().term, term + 1, "only the hand-over changed it");
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_while_its_group_is_parked() {
    let world = World::new(3);
    let (_managers, stores) = three(&world).await;
    stores[0].commit(Command::LeaseGrant { id: 7, ttl_secs: 600 }).await.unwrap();
    until_parked(&stores).await;
    tokio::time::sleep(Duration::from_secs(540)).await;
    assert!(stores.iter().all(ReplicatedStore::is_parked));
    assert!(stores[0].barrier().await.unwrap().lease(7).is_some());
    tokio::time::sleep(Duration::from_secs(62)).await;
    assert!(stores[0].barrier().await.unwrap().lease(7).is_none());
    until_parked(&stores).await;
}
