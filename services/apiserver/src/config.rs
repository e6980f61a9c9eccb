//! What one cluster's API server is told when it is made.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::registry::service_network::ServiceNetwork;

/// Where the API is inside every cluster, unless it is configured otherwise.
pub const API_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 127, 255, 1);
pub const API_PORT: u16 = 6443;

#[derive(Clone, Debug)]
pub struct Config {
    pub services: ServiceNetwork,
    /// Where clients inside the cluster reach the API: the endpoints of `default/kubernetes`.
    pub api_address: Ipv4Addr,
    pub api_port: u16,
    /// The cluster's CA in PEM, for `extension-apiserver-authentication`.
    pub client_ca_pem: String,
    /// The authority of the client certificate that this server shows to extension API servers, in PEM; empty if it calls none.
    pub front_proxy_ca_pem: String,
    pub limits: Limits,
}

/// Per-cluster limits, so that one cluster at full load leaves its neighbours usable.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Ordinary requests that run at once, shared out by priority levels; upstream's `--max-requests-inflight` and
    /// `--max-mutating-requests-inflight` together.
    pub in_flight: usize,
    /// Open watches and other streams. Each costs a cursor and a task; upstream has no limit, so this is generous.
    pub long_running: usize,
    /// How long an ordinary request may take; upstream's `--request-timeout`.
    pub request_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { in_flight: 600, long_running: 20_000, request_timeout: Duration::from_secs(60) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            services: ServiceNetwork::default(),
            api_address: API_ADDRESS,
            api_port: API_PORT,
            client_ca_pem: String::new(),
            front_proxy_ca_pem: String::new(),
            limits: Limits::default(),
        }
    }
}
