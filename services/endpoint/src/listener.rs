//! Accepting connections, counting them, and letting them go.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::net::TcpListener;
use wheelhouse_base::{ClusterId, HostName};
use wheelhouse_runtime::Tasks;

use crate::connection;
use crate::metrics::EndpointMetrics;
use crate::table::{Candidate, Route, Table};

/// How long a host is avoided after a connection to it failed. Its stream or the next attempt says sooner if it is back.
const EJECTION: Duration = Duration::from_secs(5);

/// When accepting fails (file handles, mostly), a pause keeps the loop from spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What all connections share.
pub struct Endpoint {
    pub base_domain: String,
    pub metrics: EndpointMetrics,
    pub table: RwLock<Table>,
    limits: Limits,
    counts: Mutex<Counts>,
    turn: AtomicUsize,
}

/// Connections at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub per_cluster: usize,
    pub total: usize,
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_cluster: HashMap<ClusterId, usize>,
    by_host: HashMap<HostName, usize>,
    ejected: HashMap<HostName, Instant>,
}

impl Endpoint {
    pub fn new(base_domain: String, table: Table, limits: Limits, metrics: EndpointMetrics) -> Arc<Self> {
        Arc::new(Self { base_domain, metrics, table: RwLock::new(table), limits, counts: Mutex::default(), turn: AtomicUsize::new(0) })
    }

    /// Replicas to try for a connection, best first.
    pub fn candidates(&self, route: &Route) -> Vec<Candidate> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let counts = self.counts.lock();
        let load = |host: &HostName| counts.by_host.get(host).copied().unwrap_or(0);
        let ejected = |host: &HostName| counts.ejected.get(host).is_some_and(|since| since.elapsed() < EJECTION);
        self.table.read().candidates(route, load, ejected, turn)
    }

    pub fn eject(&self, host: &HostName) {
        self.metrics.ejections.increment();
        self.counts.lock().ejected.insert(host.clone(), Instant::now());
    }

    /// A host's stream says that it is there.
    pub fn readmit(&self, host: &HostName) {
        self.counts.lock().ejected.remove(host);
    }

    /// Room for one more connection of any kind.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Admitted> {
        let mut counts = self.counts.lock();
        if counts.total >= self.limits.total {
            return None;
        }
        counts.total += 1;
        self.metrics.open.set(counts.total as f64);
        Some(Admitted { endpoint: Arc::clone(self), cluster: None, host: None })
    }

    pub fn open_connections(&self) -> usize {
        self.counts.lock().total
    }
}

/// One connection's place in the counts, given back when it is dropped.
pub(crate) struct Admitted {
    endpoint: Arc<Endpoint>,
    cluster: Option<ClusterId>,
    host: Option<HostName>,
}

impl Admitted {
    /// Whether the cluster has room too.
    pub(crate) fn enter_cluster(&mut self, cluster: &ClusterId) -> bool {
        let mut counts = self.endpoint.counts.lock();
        let count = counts.by_cluster.entry(cluster.clone()).or_default();
        if *count >= self.endpoint.limits.per_cluster {
            return false;
        }
        *count += 1;
        self.cluster = Some(cluster.clone());
        true
    }

    pub(crate) fn enter_host(&mut self, host: &HostName) {
        *self.endpoint.counts.lock().by_host.entry(host.clone()).or_default() += 1;
        self.host = Some(host.clone());
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.endpoint.counts.lock();
        counts.total -= 1;
        self.endpoint.metrics.open.set(counts.total as f64);
        if let Some(cluster) = &self.cluster {
            leave(&mut counts.by_cluster, cluster);
        }
        if let Some(host) = &self.host {
            leave(&mut counts.by_host, host);
        }
    }
}

fn leave<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Accepts until `accepting` stops; connections run in `connections`.
pub fn serve(accepting: &Tasks, connections: &Tasks, endpoint: Arc<Endpoint>, listener: TcpListener) {
    let (mut stop, connections) = (accepting.stop_signal(), connections.clone());
    accepting.spawn("accept", async move {
        while let Some(accepted) = stop.or(listener.accept()).await {
            let (stream, client) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(admitted) = endpoint.admit() else {
                endpoint.metrics.ended("limit");
                continue;
            };
            connections.spawn("connection", connection::carry(Arc::clone(&endpoint), admitted, stream, client));
        }
    });
}
