//! What an endpoint counts.

use wheelhouse_base::ClusterId;
use wheelhouse_runtime::metrics::{Counter, Gauge, Metrics};

#[derive(Clone)]
pub struct EndpointMetrics {
    metrics: Metrics,
    /// Connections that are open.
    pub open: Gauge,
    /// Hosts whose routes stream is up.
    pub hosts: Gauge,
    /// Attempts to reach a replica that failed.
    pub ejections: Counter,
}

impl EndpointMetrics {
    pub fn new(metrics: Metrics) -> Self {
        Self {
            open: metrics.gauge("wheelhouse_endpoint_connections", "Open client connections.", &[]),
            hosts: metrics.gauge("wheelhouse_endpoint_hosts", "Hosts whose routes stream is up.", &[]),
            ejections: metrics.counter("wheelhouse_endpoint_ejections_total", "Attempts to reach a replica that failed.", &[]),
            metrics,
        }
    }

    pub fn render(&self) -> String {
        self.metrics.render()
    }

    /// A connection ended with this result: `ok`, `unknown_name`, `no_replica`, `limit`, `slow`, `plain_http`, `malformed`.
    pub fn ended(&self, result: &'static str) {
        let help = "Client connections by how they ended.";
        self.metrics.counter("wheelhouse_endpoint_connections_total", help, &[("result", result)]).increment();
    }

    /// Bytes of one cluster, from clients and to clients.
    pub fn bytes(&self, cluster: &ClusterId) -> (Counter, Counter) {
        let help = "Bytes carried.";
        let of =
            |direction| self.metrics.counter("wheelhouse_endpoint_bytes_total", help, &[("cluster", cluster.as_str()), ("direction", direction)]);
        (of("in"), of("out"))
    }

    pub fn drop_cluster(&self, cluster: &ClusterId) {
        self.metrics.drop_cluster(cluster.as_str());
    }
}
