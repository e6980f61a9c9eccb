//! Where things lie in a node's directories, and the file that says what the node is.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};
use wheelhouse_kubelet::KubeletConfig;
use wheelhouse_kubelet::node::network::Network;

use crate::args::Place;

/// What a joined node knows of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeFile {
    /// `host:port`
    pub endpoint: String,
    pub server_name: String,
    pub node_name: String,
    pub labels: Vec<(String, String)>,
    pub taints: Vec<Taint>,
    pub node_ips: Vec<IpAddr>,
    /// A socket that somebody else serves; unset for a containerd of the node's own.
    pub runtime_socket: Option<PathBuf>,
    pub log_dir: PathBuf,
    pub manifests: Option<PathBuf>,
    pub cgroup_root: String,
    pub bridge: String,
    pub port: u16,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    pub resolv_conf: PathBuf,
    pub max_pods: u32,
    pub disk_reserve: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("{path}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("this machine has not joined a cluster: {0} is not there")]
    NotJoined(PathBuf),
    #[error("{path} is not what `join` writes")]
    Malformed {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// A node's directories.
#[derive(Clone, Debug)]
pub struct Layout {
    state: PathBuf,
    run: PathBuf,
}

impl Layout {
    pub fn new(place: &Place) -> Self {
        Self { state: place.state_dir.clone(), run: place.run_dir.clone() }
    }

    pub fn state(&self) -> &Path {
        &self.state
    }

    pub fn run(&self) -> &Path {
        &self.run
    }

    pub fn node_file(&self) -> PathBuf {
        self.state.join("node.json")
    }

    /// PEM of the cluster's CA.
    pub fn ca(&self) -> PathBuf {
        self.state.join("ca.crt")
    }

    /// Certificate and key in one file, so that they change together.
    pub fn client(&self) -> PathBuf {
        self.state.join("client.pem")
    }

    pub fn serving(&self) -> PathBuf {
        self.state.join("serving.pem")
    }

    /// The own containerd's.
    pub fn containerd_config(&self) -> PathBuf {
        self.state.join("containerd.toml")
    }

    pub fn containerd_root(&self) -> PathBuf {
        self.state.join("containerd")
    }

    pub fn containerd_state(&self) -> PathBuf {
        self.run.join("containerd")
    }

    pub fn containerd_socket(&self) -> PathBuf {
        self.run.join("containerd.sock")
    }

    pub fn containerd_log(&self) -> PathBuf {
        self.state.join("containerd.log")
    }

    /// Of the running agent.
    pub fn pid(&self) -> PathBuf {
        self.run.join("agent.pid")
    }

    pub fn cni_config(&self) -> PathBuf {
        self.state.join("cni/net.d")
    }

    pub fn kubelet_root(&self) -> PathBuf {
        self.state.join("kubelet")
    }

    pub fn read(&self) -> Result<NodeFile, LayoutError> {
        let path = self.node_file();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(LayoutError::NotJoined(path)),
            Err(source) => return Err(LayoutError::File { path, source }),
        };
        serde_json::from_slice(&text).map_err(|source| LayoutError::Malformed { path, source })
    }

    pub fn write(&self, file: &NodeFile) -> Result<(), LayoutError> {
        let text = serde_json::to_string_pretty(file).map_err(|source| LayoutError::Malformed { path: self.node_file(), source })?;
        self.save(&self.node_file(), &text)
    }

    /// Readable by root alone, and never half written.
    pub fn save(&self, path: &Path, text: &str) -> Result<(), LayoutError> {
        let failed = |source| LayoutError::File { path: path.to_owned(), source };
        fs::create_dir_all(path.parent().unwrap_or(&self.state)).map_err(failed)?;
        let next = path.with_extension("next");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&next, path).map_err(failed)
    }

    pub fn text(&self, path: &Path) -> Result<String, LayoutError> {
        fs::read_to_string(path).map_err(|source| LayoutError::File { path: path.to_owned(), source })
    }

    /// The socket of the node's runtime.
    pub fn socket(&self, file: &NodeFile) -> PathBuf {
        file.runtime_socket.clone().unwrap_or_else(|| self.containerd_socket())
    }

    pub fn kubelet(&self, file: &NodeFile) -> KubeletConfig {
        KubeletConfig {
            node_name: file.node_name.clone(),
            node_ips: file.node_ips.clone(),
            labels: file.labels.clone(),
            taints: file.taints.clone(),
            root: self.kubelet_root(),
            logs: file.log_dir.clone(),
            socket: self.socket(file),
            manifests: file.manifests.clone(),
            cgroup_root: file.cgroup_root.clone(),
            // Who runs the runtime also says how it attaches pods.
            cni: file.runtime_socket.is_none().then(|| Network {
                folder: self.cni_config(),
                bridge: file.bridge.clone(),
                state: self.state.join("cni/addresses"),
            }),
            cluster_dns: file.cluster_dns.clone(),
            cluster_domain: file.cluster_domain.clone(),
            resolv_conf: file.resolv_conf.clone(),
            max_pods: file.max_pods,
            disk_reserve: file.disk_reserve,
            port: file.port,
        }
    }
}
