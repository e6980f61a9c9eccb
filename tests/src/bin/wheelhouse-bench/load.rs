//! Many workers doing the same for some time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

/// One of the requests that a load is made of.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub worker: usize,
    /// Counts up over all workers.
    pub number: u64,
}

/// Runs `work` in `workers` at once, each starting anew when it is done, for `time`; answers how many succeeded per second. Fails with
/// the first error if more than one in a hundred failed: then the rate would say nothing.
pub async fn rate<W, F>(workers: usize, time: Duration, work: W) -> Result<f64>
where
    W: Fn(Turn) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let numbers = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for worker in 0..workers {
        let (work, numbers) = (work.clone(), Arc::clone(&numbers));
        tasks.spawn(async move {
            let (mut done, mut failed) = (0u64, Vec::new());
            while started.elapsed() < time {
                match work(Turn { worker, number: numbers.fetch_add(1, Ordering::Relaxed) }).await {
                    Ok(()) => done += 1,
                    Err(error) => failed.push(error),
                }
            }
            (done, failed)
        });
    }
    let (mut done, mut failed) = (0, Vec::new());
    while let Some(ended) = tasks.join_next().await {
        let (of_one, errors) = ended?;
        done += of_one;
        failed.extend(errors);
    }
    let elapsed = started.elapsed().as_secs_f64();
    let failures = failed.len() as u64;
    if let Some(first) = failed.into_iter().next() {
        ensure!(failures * 100 <= done, first.context(format!("{failures} of {} requests failed", done + failures)));
        eprintln!("{failures} of {} requests failed, one with: {first:#}", done + failures);
    }
    Ok(done as f64 / elapsed)
}

/// Does `work` once for each number below `count`, by `workers` at once.
pub async fn all<W, F>(workers: usize, count: u64, work: W) -> Result<()>
where
    W: Fn(u64) -> F,
    F: Future<Output = Result<()>>,
{
    use futures::{StreamExt, TryStreamExt};
    futures::stream::iter(0..count).map(work).buffer_unordered(workers).try_collect().await
}
