//! How fast one store's changes reach many watches: `cargo run --release -p wheelhouse-store --example fan_out`.
//!
//! Some watches follow the resource that changes, some another one, as many more writes go to that other one.

use std::sync::Arc;
use std::time::Instant;

use wheelhouse_mvcc::{Command, KeyRange, Txn};
use wheelhouse_store::{MemoryStore, Store};

const CHANGES: u64 = 5_000;
/// Changes of another resource per change that is watched.
const FOREIGN: u64 = 4;

#[tokio::main]
async fn main() {
    for watchers in [0, 1, 100, 500] {
        measure(watchers).await;
    }
}

async fn measure(watchers: usize) {
    let store = Arc::new(MemoryStore::default());
    let follow = |store: &MemoryStore| {
        let mut watch = store.watch(KeyRange::prefix("/registry/core/pods/"), 1).expect("nothing was compacted");
        tokio::spawn(async move {
            for _ in 0..CHANGES {
                watch.next().await.expect("it is retained");
            }
        })
    };
    let tasks: Vec<_> = (0..watchers).map(|_| follow(&store)).collect();
    let started = Instant::now();
    for n in 0..CHANGES {
        put(&store, format!("/registry/core/pods/default/p-{}", n % 1_000)).await;
        for _ in 0..FOREIGN {
            put(&store, format!("/registry/coordination.k8s.io/leases/kube-node-lease/n-{}", n % 1_000)).await;
        }
    }
    let written = started.elapsed();
    for task in tasks {
        task.await.expect("it does not panic");
    }
    let (told, writes) = (CHANGES * watchers as u64, CHANGES * (FOREIGN + 1));
    println!(
        "{watchers:4} watches: {:8.0} writes/s, {:9.0} events/s told",
        writes as f64 / written.as_secs_f64(),
        told as f64 / started.elapsed().as_secs_f64()
    );
}

async fn put(store: &MemoryStore, key: String) {
    let txn = Txn::default().put(key, vec![b'x'; 1024]);
    store.commit(Command::Txn { txn, fence: None }).await.expect("it is up");
}
