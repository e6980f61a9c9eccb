//! Flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Takes TLS connections for every cluster and passes them to a replica's host.
#[derive(Clone, Debug, Parser)]
#[command(name = "wheelhouse-endpoint", version)]
pub struct Config {
    /// Where clients connect.
    #[arg(long, default_value = "0.0.0.0:6443")]
    pub listen: SocketAddr,
    /// Plain HTTP: /metrics and /healthz.
    #[arg(long, default_value = "127.0.0.1:9443")]
    pub metrics_listen: SocketAddr,
    /// Peers addresses of some hosts, to learn of the others from; not needed once the table is on disk.
    #[arg(long = "host", value_name = "HOST:PORT", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Holds ca.crt, tls.crt and tls.key: the operator's authority and this endpoint's certificate (`wheelhouse-host credentials endpoint`).
    /// The certificate is read again when it changes.
    #[arg(long, value_name = "DIR")]
    pub credentials: PathBuf,
    /// Where the last routing table is kept.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// What clusters' server names end with.
    #[arg(long, default_value = "wheelhouse.internal")]
    pub base_domain: String,
    /// Connections of one cluster at a time.
    #[arg(long, default_value_t = 10_000)]
    pub cluster_connections: usize,
    /// Connections in all; each takes two file handles.
    #[arg(long, default_value_t = 50_000)]
    pub connections: usize,
    /// Seconds that open connections get to end after SIGTERM.
    #[arg(long, default_value_t = 30)]
    pub drain_seconds: u64,
    /// `human` or `json`.
    #[arg(long, default_value = "human")]
    pub log_format: String,
}

impl Config {
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}
