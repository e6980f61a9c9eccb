//! Flags.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// Serves the tenant API.
#[derive(Clone, Debug, Parser)]
#[command(name = "wheelhouse-api", version, about)]
pub struct Config {
    /// Address to serve HTTPS on.
    #[arg(long, default_value = "127.0.0.1:7443")]
    pub listen: SocketAddr,
    /// Kubeconfig of the system control plane; its user may manage tenants and impersonate them. Read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// The operator's key, which opens clusters' key bundles when a credential is issued.
    #[arg(long, value_name = "FILE")]
    pub operator_key: PathBuf,
    /// Serving certificate chain, PEM. Read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: PathBuf,
    /// Its key, PEM.
    #[arg(long, value_name = "FILE")]
    pub tls_key: PathBuf,
    /// `host:port` of the endpoint, as tenants reach it; it goes into kubeconfigs and join commands.
    #[arg(long, default_value = "127.0.0.1:6443")]
    pub endpoint: String,
    /// Domain under which clusters' server names lie.
    #[arg(long, default_value = "wheelhouse.internal")]
    pub base_domain: String,
    /// Demand this invitation code at sign-up; without it sign-up is open.
    #[arg(long, env = "WHEELHOUSE_INVITATION", hide_env_values = true)]
    pub invitation: Option<String>,
    /// Sign-ups per hour from one address.
    #[arg(long, default_value_t = 20)]
    pub signups_per_hour: u32,
    /// Requests per second from one address, with bursts of ten times as many.
    #[arg(long, default_value_t = 50)]
    pub requests_per_second: u32,
    /// Write logs as JSON lines.
    #[arg(long)]
    pub json_logs: bool,
}
