//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

/// Hosted Kubernetes control planes.
#[derive(Debug, Parser)]
#[command(name = "wheelhouse", version, about, propagate_version = true, arg_required_else_help = true)]
pub struct Args {
    #[command(flatten)]
    pub connection: Connection,
    /// How to print answers.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub output: Output,
    #[command(subcommand)]
    pub command: Command,
}

/// Which tenant API to talk to; what is not given comes from the profile in ~/.config/wheelhouse/config.json.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Connection {
    /// Address of the tenant API, e.g. https://127.0.0.1:7443
    #[arg(long, global = true, env = "WHEELHOUSE_ENDPOINT", value_name = "URL")]
    pub endpoint: Option<String>,
    /// API key.
    #[arg(long, global = true, env = "WHEELHOUSE_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub api_key: Option<String>,
    /// File with the CA certificate of the tenant API, PEM.
    #[arg(long, global = true, env = "WHEELHOUSE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Profile to use instead of the selected one.
    #[arg(long, global = true, env = "WHEELHOUSE_PROFILE", value_name = "NAME")]
    pub profile: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables for people.
    #[default]
    Table,
    /// The answer of the API.
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a whole service on this machine: hosts, endpoint and tenant API.
    Up(Up),
    /// Become a tenant; saves the API key and selects it.
    Signup(Signup),
    /// Clusters: create, list, get, delete, scale, kubeconfig, etcd.
    Cluster {
        #[command(subcommand)]
        command: Cluster,
    },
    /// Tokens that nodes join a cluster with.
    NodeToken {
        #[command(subcommand)]
        command: NodeToken,
    },
    /// API keys of this tenant.
    ApiKey {
        #[command(subcommand)]
        command: ApiKey,
    },
    /// Hosts of the service; for operators.
    Host {
        /// Kubeconfig of the system control plane.
        #[arg(long, global = true, env = "WHEELHOUSE_SYSTEM_KUBECONFIG", value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        #[command(subcommand)]
        command: Host,
    },
    /// Print a completion script: `source <(wheelhouse completion bash)`.
    Completion { shell: clap_complete::Shell },
}

#[derive(Debug, clap::Args)]
pub struct Up {
    /// Where everything is kept; starting again on the same directory resumes.
    #[arg(long, value_name = "DIR", default_value = ".wheelhouse")]
    pub data_dir: PathBuf,
    /// Hosts to run.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub hosts: u8,
    /// Address of the endpoint for kubectl.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6443")]
    pub endpoint_listen: SocketAddr,
    /// Address of the tenant API.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7443")]
    pub api_listen: SocketAddr,
    /// First port of the hosts: host i uses this + 10·i for clients, + 1 for peers.
    #[arg(long, value_name = "PORT", default_value_t = 6444)]
    pub host_port: u16,
}

#[derive(Debug, clap::Args)]
pub struct Signup {
    /// Name of the tenant.
    #[arg(long)]
    pub name: String,
    /// Where the tenant can be reached.
    #[arg(long)]
    pub email: String,
    /// Invitation code, where the service asks for one.
    #[arg(long)]
    pub invitation: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Ask for a cluster.
    // Its own `--version` is Kubernetes'.
    #[command(disable_version_flag = true)]
    Create {
        name: String,
        /// Control-plane replicas: 3 or 5.
        #[arg(long, default_value_t = 3)]
        replicas: u8,
        /// Kubernetes version.
        #[arg(long)]
        version: Option<String>,
        #[command(flatten)]
        wait: Wait,
    },
    /// List clusters.
    #[command(visible_alias = "ls")]
    List,
    /// Show one cluster.
    Get {
        name: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Delete a cluster and everything in it.
    #[command(visible_alias = "rm")]
    Delete {
        name: String,
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        wait: Wait,
    },
    /// Change the number of control-plane replicas.
    Scale {
        name: String,
        /// 3 or 5.
        #[arg(long)]
        replicas: u8,
        #[command(flatten)]
        wait: Wait,
    },
    /// Print a new kubeconfig; or list and revoke those made before.
    Kubeconfig {
        name: String,
        /// How long it is valid, e.g. 8h or 30d.
        #[arg(long, value_parser = duration)]
        ttl: Option<Duration>,
        /// List the cluster's kubeconfigs instead.
        #[arg(long, conflicts_with_all = ["ttl", "revoke"])]
        list: bool,
        /// Revoke the kubeconfig with this id instead.
        #[arg(long, value_name = "ID", conflicts_with = "ttl")]
        revoke: Option<String>,
    },
    /// Serve the cluster's etcd API (read-only) on a local port, for etcdctl.
    Etcd {
        name: String,
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2379")]
        listen: SocketAddr,
    },
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Wait {
    /// Wait until it is done, at most this long (5m if not given).
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "5m", value_parser = duration)]
    pub wait: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub enum NodeToken {
    /// Make a token and print the join command.
    Create {
        cluster: String,
        /// How long it is valid, e.g. 1h or 24h.
        #[arg(long, value_parser = duration)]
        ttl: Option<Duration>,
        #[arg(long, default_value = "")]
        description: String,
    },
    /// List a cluster's tokens.
    #[command(visible_alias = "ls")]
    List { cluster: String },
    /// Revoke a token.
    Revoke { cluster: String, id: String },
}

#[derive(Debug, Subcommand)]
pub enum ApiKey {
    /// Make an API key; it is printed once.
    Create {
        #[arg(long, default_value = "")]
        description: String,
    },
    /// List API keys.
    #[command(visible_alias = "ls")]
    List,
    /// Revoke an API key.
    Revoke { id: String },
}

#[derive(Debug, Subcommand)]
pub enum Host {
    /// List hosts.
    #[command(visible_alias = "ls")]
    List,
    /// Take no further replicas.
    Cordon { name: String },
    /// Take replicas again; also ends an evacuation.
    Uncordon { name: String },
    /// Take no further replicas and move those that are there to other hosts, as far as there is room.
    Evacuate {
        name: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Print a token that a further machine joins the service with, as `wheelhouse-host join` takes it.
    Token {
        /// Data directory of a host on this machine.
        #[arg(long, value_name = "DIR", default_value = ".wheelhouse/host-a")]
        data_dir: PathBuf,
        /// Hours until the token is void.
        #[arg(long, default_value_t = 24)]
        hours: u32,
    },
}

/// `90s`, `5m`, `8h`, `30d`, or several in a row: `1h30m`. A bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration; write it like 90s, 5m, 8h or 30d");
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut total, mut digits) = (0u64, String::new());
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let unit = match letter {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return Err(bad()),
        };
        let number: u64 = digits.parse().map_err(|_| bad())?;
        total = number.checked_mul(unit).and_then(|seconds| total.checked_add(seconds)).ok_or_else(bad)?;
        digits.clear();
    }
    if digits.is_empty() && total > 0 { Ok(Duration::from_secs(total)) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5_400), ("30d", 2_592_000)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "m", "5x", "1h30", "99999999999999999999d", "-5m"].into_iter().filter(|t| *t != "5") {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wait_takes_its_default_or_a_value_with_an_equals_sign() {
        let wait = |list: &[&str]| match Args::try_parse_from(list).map(|args| args.command) {
            Ok(Command::Cluster { command: Cluster::Create { wait, name, .. } }) => Some((name, wait.wait)),
            _ => None,
        };
        let five = Some(Duration::from_secs(300));
        assert_eq!(wait(&["wheelhouse", "cluster", "create", "--wait", "demo"]), Some(("demo".into(), five)));
        assert_eq!(wait(&["wheelhouse", "cluster", "create", "demo", "--wait=10s"]), Some(("demo".into(), Some(Duration::from_secs(10)))));
        assert_eq!(wait(&["wheelhouse", "cluster", "create", "demo"]), Some(("demo".into(), None)));
    }
}
