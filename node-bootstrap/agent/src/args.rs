//! Commands and flags.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use k8s_openapi::api::core::v1::Taint;

/// Makes this machine a node of a hosted cluster.
#[derive(Clone, Debug, Parser)]
#[command(name = "wheelhouse-node", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// `human` or `json`.
    #[arg(long, global = true, default_value = "human")]
    pub log_format: String,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Joins a cluster with a token from `wheelhouse node-token create`, then runs the node. Doing it again resumes.
    Join(Box<Join>),
    /// Runs a node that has joined.
    Run(Run),
    /// Moves the pods away, takes the node out of its cluster and removes what it left on this machine.
    Leave(Leave),
    /// Looks whether this machine can be a node and says what is missing.
    Check(Check),
    /// Prints a systemd unit that runs the node.
    Unit(Run),
    /// Prints cloud-init user data that joins a new machine.
    CloudInit,
}

/// Where a node keeps what it has.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// Credentials, images and volumes; survives a reboot.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/wheelhouse-node")]
    pub state_dir: PathBuf,
    /// Sockets and the runtime's state; gone after a reboot.
    #[arg(long, value_name = "DIR", default_value = "/run/wheelhouse-node")]
    pub run_dir: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub place: Place,
}

#[derive(Clone, Debug, Args)]
pub struct Join {
    /// The service's endpoint, `https://host:port`.
    pub endpoint: String,
    /// The cluster's name at the endpoint, `<cluster>.<base domain>`.
    #[arg(long)]
    pub server_name: String,
    /// `id.secret`
    #[arg(long, env = "WHEELHOUSE_NODE_TOKEN", hide_env_values = true)]
    pub token: String,
    /// `sha256:…` of the cluster CA's public key: whom to trust with the token.
    #[arg(long)]
    pub ca_cert_hash: String,
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub node: Node,
    /// Only get the certificates and write the configuration; `wheelhouse-node run` starts the node.
    #[arg(long)]
    pub no_start: bool,
}

/// What the node is. Kept in the state directory.
#[derive(Clone, Debug, Args)]
pub struct Node {
    /// Default: the machine's host name.
    #[arg(long)]
    pub node_name: Option<String>,
    /// `key=value`, several with commas.
    #[arg(long, value_delimiter = ',', value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// `key=value:Effect`, several with commas.
    #[arg(long, value_delimiter = ',', value_parser = taint)]
    pub taints: Vec<Taint>,
    /// Default: the address that leads to the endpoint.
    #[arg(long, value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// A CRI socket that is there already. Default: the node runs a containerd of its own.
    #[arg(long, value_name = "unix://PATH")]
    pub runtime_endpoint: Option<String>,
    /// Where containers' logs lie.
    #[arg(long, value_name = "DIR", default_value = "/var/log/pods")]
    pub log_dir: PathBuf,
    /// Manifests of pods that run without the API server.
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Cgroup that pods lie in.
    #[arg(long, default_value = "/kubepods")]
    pub cgroup_root: String,
    /// The bridge that pods hang on.
    #[arg(long, default_value = "wheelhouse0")]
    pub bridge: String,
    /// Where the kubelet serves logs and metrics.
    #[arg(long, default_value_t = 10250)]
    pub port: u16,
    #[arg(long, value_delimiter = ',', default_value = "10.96.0.10")]
    pub cluster_dns: Vec<IpAddr>,
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,
    #[arg(long, default_value_t = wheelhouse_kubelet::config::MAX_PODS)]
    pub max_pods: u32,
    /// Per cent of the disk below which pods are evicted.
    #[arg(long, value_name = "PERCENT", default_value_t = wheelhouse_kubelet::node::eviction::DISK_RESERVE)]
    pub disk_reserve: u64,
}

#[derive(Clone, Debug, Args)]
pub struct Leave {
    #[command(flatten)]
    pub place: Place,
    /// Seconds to wait for pods to move.
    #[arg(long, default_value_t = 120)]
    pub timeout: u64,
    /// Do not wait for pods.
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub place: Place,
    #[arg(long, default_value_t = 10250)]
    pub port: u16,
    /// Also look whether this endpoint can be reached.
    pub endpoint: Option<String>,
}

fn label(text: &str) -> Result<(String, String), String> {
    text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| "a label is key=value".to_owned())
}

fn taint(text: &str) -> Result<Taint, String> {
    let (rest, effect) = text.rsplit_once(':').ok_or("a taint is key=value:Effect")?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(format!("{effect} is no effect; there are NoSchedule, PreferNoSchedule and NoExecute"));
    }
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Ok(Taint { key: key.to_owned(), value: Some(value.to_owned()).filter(|value| !value.is_empty()), effect: effect.to_owned(), time_added: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        let words = "wheelhouse-node join https://h:6443 --server-name c --token a.b --ca-cert-hash sha256:0 --labels a=1,b=2 --taints k=v:NoSchedule,l:NoExecute";
        let Command::Join(join) = Cli::parse_from(words.split(' ')).command else { panic!("not join") };
        assert_eq!(join.node.labels, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        assert_eq!((join.node.taints[0].value.as_deref(), join.node.taints[1].value.as_deref()), (Some("v"), None));
        assert!(taint("k=v").is_err() && taint("k:No").is_err() && label("x").is_err());
    }
}
