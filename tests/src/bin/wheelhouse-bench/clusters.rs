//! Making clusters, and what they cost while nothing happens in them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::Runtime;
use wheelhouse_tests::{Service, process};

use crate::account::{Account, Operator};
use crate::figure::{Figure, percentile};

/// Made one after the other and timed.
const TIMED: usize = 10;

/// Made at once, and what the slope of the memory is taken over.
const FURTHER: usize = 100;

/// After the last request until memory is read: the new clusters' caches and logs have been written by then.
const SETTLE: Duration = Duration::from_secs(10);

/// A cluster that nobody writes to is parked by then.
const PARKED: Duration = Duration::from_secs(45);

/// Over which idle processor time is taken.
const IDLE: Duration = Duration::from_secs(20);

const MIB: f64 = 1024.0 * 1024.0;

pub fn run(runtime: &Runtime) -> Result<()> {
    let service = Service::start();
    let account = Account::sign_up(&service, "bench")?;
    runtime.block_on(async {
        Operator::of(&service)?.lift_quotas().await?;
        let data = service.data();
        idle_memory(&data, 0).await?;

        let (mut ready, mut usable) = (Vec::new(), Vec::new());
        for i in 0..TIMED {
            let created = account.create(&format!("timed-{i}")).await?;
            ready.push(created.ready);
            usable.push(created.usable);
        }
        Figure::time("create_to_ready_p50", percentile(&ready, 50)).print();
        Figure::time("create_to_ready_p99", percentile(&ready, 99)).print();
        Figure::time("create_to_first_list_p50", percentile(&usable, 50)).target("<= 500").print();
        Figure::time("create_to_first_list_p99", percentile(&usable, 99)).print();
        let few = idle_memory(&data, TIMED).await?;

        let names: Vec<_> = (0..FURTHER).map(|i| format!("further-{i}")).collect();
        Figure::time(format!("create_{FURTHER}_at_once"), account.create_at_once(&names).await?).target("<= 30000").print();
        let all = idle_memory(&data, TIMED + FURTHER).await?;
        let slope = (all - few) / FURTHER as f64;
        Figure::new("memory_per_idle_cluster", slope / MIB, "MiB PSS over three hosts").target("<= 12").print();

        // Parking begins after a while without writes; what idles before is the same work for a short time.
        tokio::time::sleep(PARKED).await;
        let before = process::cpu(&data)?;
        let started = Instant::now();
        tokio::time::sleep(IDLE).await;
        let used = process::cpu(&data)?.saturating_sub(before).as_secs_f64() / started.elapsed().as_secs_f64();
        Figure::new(format!("idle_cpu_{}_clusters", TIMED + FURTHER), used * 100.0, "% of one core over three hosts")
            .target("<= 10 with 1,000")
            .print();
        Ok(())
    })
}

/// Prints what the hosts hold now; answers their PSS in bytes.
async fn idle_memory(data: &Path, clusters: usize) -> Result<f64> {
    tokio::time::sleep(SETTLE).await;
    let memory = process::memory(data)?;
    let (rss, pss) = (memory.rss as f64, memory.pss as f64);
    Figure::new(format!("memory_{clusters}_clusters_rss"), rss / MIB, "MiB over three hosts").print();
    Figure::new(format!("memory_{clusters}_clusters_pss"), pss / MIB, "MiB over three hosts").print();
    Ok(pss)
}
