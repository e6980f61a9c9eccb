//! How long writes stand still: one client that writes all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use wheelhouse_client::kubeconfig::Connection;
use wheelhouse_client::{Client, PatchKind};

/// A write without an answer by then is given up and tried again on a new connection: far above a write on a healthy cluster, and
/// what a gap may be overstated by.
const WRITE_LIMIT: Duration = Duration::from_millis(100);

/// Between a refused write and the next: far below the gaps that are measured.
const RETRY: Duration = Duration::from_millis(5);

/// One client that writes without a pause and notes when a write was acknowledged.
pub struct Writer {
    acknowledged: Arc<Mutex<Vec<Instant>>>,
    stopped: Arc<AtomicBool>,
}

impl Writer {
    /// Must be called inside a tokio runtime.
    pub fn start(connection: Connection) -> Result<Self> {
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
    pub fn longest_gap_after(&self, at: Instant) -> Result<Duration> {
        let times = self.acknowledged.lock();
        let gaps = times.windows(2).filter(|pair| pair[1] >= at).map(|pair| pair[1] - pair[0]);
        let last = times.last().context("nothing was written")?.elapsed();
        // Still standing still counts as a gap so far.
        Ok(gaps.chain([last]).max().unwrap_or_default())
    }

    pub fn stop(&self) {
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
