//! What a kubelet is told at its start. Every path is a setting, so that several nodes can live on one machine.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Upstream's `--max-pods`.
pub const MAX_PODS: u32 = 110;
/// How often the node's lease is renewed: a quarter of the 40 s after which a node is given up.
pub const LEASE_EVERY: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct KubeletConfig {
    pub node_name: String,
    /// Empty: the address that leads to the API server.
    pub node_ips: Vec<IpAddr>,
    pub labels: Vec<(String, String)>,
    pub taints: Vec<k8s_openapi::api::core::v1::Taint>,
    /// Volumes and what else pods have on disk, `/var/lib/kubelet`.
    pub root: PathBuf,
    /// Containers' logs, `/var/log/pods`.
    pub logs: PathBuf,
    /// The runtime's socket.
    pub socket: PathBuf,
    /// Manifests of static pods; none is watched when unset.
    pub manifests: Option<PathBuf>,
    /// Cgroup below which pods lie, `/kubepods`.
    pub cgroup_root: String,
    /// How pods are attached to the network; unset where somebody else writes the runtime's network configuration.
    pub cni: Option<crate::node::network::Network>,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    pub resolv_conf: PathBuf,
    pub max_pods: u32,
    /// Per cent of the disk, and half as much of its inodes, below which the node is short of it and evicts.
    pub disk_reserve: u64,
    /// Where the kubelet serves logs, exec and metrics.
    pub port: u16,
}

impl KubeletConfig {
    pub fn pod_folder(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    pub fn pod_logs(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.logs.join(format!("{namespace}_{name}_{uid}"))
    }
}
