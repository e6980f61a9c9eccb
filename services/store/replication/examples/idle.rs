//! What idle groups cost: three hosts in one process on a network and disks in memory, so that only Raft's own work and the hosts' is measured.
//!
//! `cargo run --release --example idle -- [groups] [seconds] [park|never]` prints one JSON line.

use std::sync::Arc;
use std::time::Duration;

use wheelhouse_base::{ClusterId, HostName, ReplicaId, SystemClock};
use wheelhouse_mvcc::{Command, Txn};
use wheelhouse_replication::{DataKey, GroupManager, HostDisk, HostParts, Limits, MemoryNetwork, ReplicaSpec, ReplicatedStore, Start};
use wheelhouse_rocks::MemoryDisk;
use wheelhouse_store::Store;

const HOSTS: u64 = 3;

/// Short, so that a measurement need not wait for the usual half minute.
const PARK_AFTER: Duration = Duration::from_secs(1);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize, default: &str| arguments.get(i).cloned().unwrap_or_else(|| default.to_owned());
    let (groups, seconds): (u64, u64) = (argument(0, "31").parse()?, argument(1, "20").parse()?);
    let parks = argument(2, "park") == "park";
    let network = MemoryNetwork::default();
    network.set_delay(Duration::from_micros(200));
    let limits = Limits { park_after: parks.then_some(PARK_AFTER), ..Limits::default() };
    let managers: Vec<Arc<GroupManager>> = (0..HOSTS)
        .map(|i| {
            let disk = HostDisk::simulated(&MemoryDisk::default());
            let parts = HostParts { host: name(i), disk, transport: network.host(name(i)), clock: Arc::new(SystemClock) };
            GroupManager::with_limits(parts, limits)
        })
        .collect();
    let voters: Vec<_> = (0..HOSTS).map(|i| (ReplicaId(i), name(i))).collect();
    let mut stores: Vec<ReplicatedStore> = Vec::new();
    for group in 0..groups {
        for (i, manager) in (0..HOSTS).zip(&managers) {
            let start = if group % HOSTS == i { Start::Found { voters: voters.clone() } } else { Start::Join };
            let spec = ReplicaSpec { cluster: ClusterId::from_random(group), replica: ReplicaId(i), key: DataKey::from_bytes([7; 32]), start };
            stores.push(manager.start(spec).await?);
        }
    }
    for store in stores.iter().step_by(HOSTS as usize) {
        store.commit(Command::Txn { txn: Txn::default().put("/a", "1"), fence: None }).await?;
    }
    while parks && !stores.iter().all(ReplicatedStore::is_parked) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let before = cpu()?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let percent = (cpu()? - before) / seconds as f64 * 100.0;
    println!("{{\"groups\":{groups},\"parks\":{parks},\"cpu_percent_of_one_core\":{percent:.2}}}");
    Ok(())
}

fn name(i: u64) -> HostName {
    format!("host-{i}").parse().expect("a host name")
}

/// This process's user and system time in seconds. Linux counts it in hundredths.
fn cpu() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().ok_or("no process name")?;
    let field = |i: usize| after_name.split_whitespace().nth(i).ok_or("a short line")?.parse::<f64>().map_err(Failure::from);
    Ok((field(11)? + field(12)?) / 100.0)
}
