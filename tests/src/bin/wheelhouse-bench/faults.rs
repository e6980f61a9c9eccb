//! How long writes stand still when the host of a cluster's leader dies or is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::{Value, json};
use wheelhouse_client::kubeconfig::Connection;
use wheelhouse_client::{Client, PatchKind};
use wheelhouse_tests::Service;

use crate::account::Operator;
use crate::figure::{Figure, percentile};
use crate::process::Process;

/// Of each kind.
const ROUNDS: usize = 20;

/// A write without an answer by then is given up and tried again on a new connection: far above a write on a healthy cluster, and
/// what a gap may be overstated by.
const WRITE_LIMIT: Duration = Duration::from_millis(100);

/// Between a refused write and the next: far below the gaps that are measured.
const RETRY: Duration = Duration::from_millis(5);

/// Between two looks at who leads.
const LOOK: Duration = Duration::from_millis(200);

/// Until all three replicas are ready again, the killed host's restart included.
const WHOLE_LIMIT: Duration = Duration::from_secs(40);

/// All replicas were ready and the leader the same for this long: what was reported is no longer from before the last fault.
const STEADY: Duration = Duration::from_secs(2);

/// After a fault: longer than any gap that is a gap and not an outage.
const WATCHED: Duration = Duration::from_secs(5);

const REPLICAS: usize = 3;

/// Kills, then planned stops, of the host that leads the cluster `id`.
pub async fn run(service: &Service, operator: &Operator, id: &str, connection: Connection) -> Result<()> {
    let writer = Writer::start(connection)?;
    for (name, signal, target) in [("write_gap_kill", "KILL", "<= 1000"), ("write_gap_handover", "TERM", "<= 150")] {
        let mut gaps = Vec::new();
        for _ in 0..ROUNDS {
            let leader = steady_leader(service, operator, id).await?;
            let process = Process::of_host(&service.data(), &leader).with_context(|| format!("{leader} does not run"))?;
            let at = Instant::now();
            process.signal(signal)?;
            tokio::time::sleep(WATCHED).await;
            gaps.push(writer.longest_gap_after(at)?);
        }
        eprintln!("{name}: {gaps:?}");
        Figure::time(format!("{name}_p50"), percentile(&gaps, 50)).print();
        Figure::time(format!("{name}_p99"), percentile(&gaps, 99)).print();
        Figure::time(format!("{name}_max"), percentile(&gaps, 100)).target(target).print();
    }
    writer.stop();
    Ok(())
}

/// The leader's host, once the cluster is whole and has not changed its leader for a while.
async fn steady_leader(service: &Service, operator: &Operator, id: &str) -> Result<String> {
    let started = Instant::now();
    let mut steady: Option<(String, Instant)> = None;
    while started.elapsed() < WHOLE_LIMIT {
        let whole = Process::hosts(&service.data()).is_ok();
        match operator.leadership(id).await {
            Some((leader, REPLICAS)) if whole => match &steady {
                Some((known, since)) if *known == leader && since.elapsed() >= STEADY => return Ok(leader),
                Some((known, _)) if *known == leader => {}
                _ => steady = Some((leader, Instant::now())),
            },
            _ => steady = None,
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("the cluster was not whole again within {WHOLE_LIMIT:?}")
}

/// One client that writes without a pause and notes when a write was acknowledged.
struct Writer {
    acknowledged: Arc<Mutex<Vec<Instant>>>,
    stopped: Arc<AtomicBool>,
}

impl Writer {
    fn start(connection: Connection) -> Result<Self> {
        let writer = Self { acknowledged: Arc::default(), stopped: Arc::default() };
        let (acknowledged, stopped) = (Arc::clone(&writer.acknowledged), Arc::clone(&writer.stopped));
        let mut client = connection.client()?;
        tokio::spawn(async move {
            let mut number = 0u64;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                match tokio::time::timeout(WRITE_LIMIT, write(&client, number)).await {
                    Ok(Ok(())) => acknowledged.lock().push(Instant::now()),
                    Ok(Err(_)) => tokio::time::sleep(RETRY).await,
                    Err(_) => {
                        if let Ok(fresh) = connection.client() {
                            client = fresh;
                        }
                    }
                }
            }
        });
        Ok(writer)
    }

    /// The longest time between two acknowledged writes of which the second came after `at`.
    fn longest_gap_after(&self, at: Instant) -> Result<Duration> {
        let times = self.acknowledged.lock();
        let gaps = times.windows(2).filter(|pair| pair[1] >= at).map(|pair| pair[1] - pair[0]);
        let last = times.last().context("nothing was written")?.elapsed();
        // Still standing still counts as a gap so far.
        Ok(gaps.chain([last]).max().unwrap_or_default())
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Makes the written object with the first write, and whenever it is not there.
async fn write(client: &Client, number: u64) -> Result<()> {
    let maps = client.api("", "v1", "configmaps", "default");
    let patch = json!({"data": {"number": number.to_string()}});
    match maps.patch::<Value>("written", "", PatchKind::Merge, "", &patch).await {
        Err(error) if error.is_not_found() => {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "written"}});
            maps.create::<Value>(&object).await?;
        }
        other => drop(other?),
    }
    Ok(())
}
