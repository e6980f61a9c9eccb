//! How long writes stand still when the host of a cluster's leader dies or is stopped.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use wheelhouse_client::kubeconfig::Connection;
use wheelhouse_tests::{Process, Service, Writer};

use crate::account::Operator;
use crate::figure::{Figure, percentile};

/// Of each kind.
const ROUNDS: usize = 20;

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
