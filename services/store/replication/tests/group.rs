//! One group of three replicas on a simulated network and simulated disks, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use wheelhouse_base::{ClusterId, HostName, ManualClock, ReplicaId};
use wheelhouse_mvcc::{Command, Outcome, Txn};
use wheelhouse_replication::{DataKey, GroupId, GroupManager, HostParts, MemoryNetwork, ReplicaSpec, ReplicatedStore, Start};
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
        GroupManager::new(HostParts { host: host(i), disk: HostDisk::simulated(&self.disks[i]), transport, clock: Arc::new(ManualClock::default()) })
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
