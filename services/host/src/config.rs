//! Commands and flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use wheelhouse_base::{ClusterId, HostName};
use wheelhouse_fleet::host::Patience;
use wheelhouse_replication::PARK_AFTER;

/// Runs replicas of hosted control planes.
#[derive(Clone, Debug, Parser)]
#[command(name = "wheelhouse-host", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub store_only: StoreOnly,
    /// `human` or `json`.
    #[arg(long, global = true, default_value = "human")]
    pub log_format: String,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Makes a new service: the operator's authority and key, this first host, and the system cluster with this host as its founder.
    Init(Init),
    /// Makes this machine a further host of a running service.
    Join(Join),
    /// Runs the host.
    Run(Run),
    /// Prints a token for `join`, with the authority's hash.
    Token(Token),
    /// Writes a certificate for an endpoint, the tenant API, an operator, or an administrator of a cluster that has a replica here.
    Credentials(Credentials),
}

/// Who this host is and where it listens. Kept in the data directory.
#[derive(Clone, Debug, Args)]
pub struct Identity {
    /// Where everything is kept.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// This host's name, a DNS label; also the name of its Host object.
    #[arg(long)]
    pub name: HostName,
    /// What fails together with this host, e.g. an availability zone.
    #[arg(long, default_value = "")]
    pub zone: String,
    /// What server names end with.
    #[arg(long, default_value = "wheelhouse.internal")]
    pub base_domain: String,
    /// For endpoints.
    #[arg(long, default_value = "0.0.0.0:6444")]
    pub clients_listen: SocketAddr,
    /// For other hosts, and for endpoints' routes streams.
    #[arg(long, default_value = "0.0.0.0:6445")]
    pub peers_listen: SocketAddr,
    /// Plain HTTP: /metrics and /healthz.
    #[arg(long, default_value = "127.0.0.1:9444")]
    pub metrics_listen: SocketAddr,
    /// Name or address under which other hosts and endpoints reach this one.
    #[arg(long, default_value = "127.0.0.1")]
    pub advertise: String,
}

#[derive(Clone, Debug, Args)]
pub struct Init {
    #[command(flatten)]
    pub identity: Identity,
    /// How tenants reach the endpoint.
    #[arg(long, default_value = "https://127.0.0.1:6443")]
    pub endpoint: String,
}

#[derive(Clone, Debug, Args)]
pub struct Join {
    #[command(flatten)]
    pub identity: Identity,
    /// Peers address of a running host.
    #[arg(long, value_name = "HOST:PORT")]
    pub host: String,
    /// From `wheelhouse-host token`.
    #[arg(long)]
    pub token: String,
    /// `sha256:…`, from the same.
    #[arg(long)]
    pub ca_cert_hash: String,
}

#[derive(Clone, Debug, Args)]
pub struct Run {
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Must be this host's name, if given; shows it in process lists.
    #[arg(long)]
    pub name: Option<HostName>,
    /// Which controllers run at leaders, as kube-controller-manager takes it: `*`, names, and `-name`.
    #[arg(long, default_value = "*", value_delimiter = ',')]
    pub controllers: Vec<String>,
    /// Leaders run no scheduler.
    #[arg(long)]
    pub no_scheduler: bool,
    /// Seconds without writes after which a cluster's Raft rests; 0: never.
    #[arg(long, default_value_t = PARK_AFTER.as_secs())]
    pub park_after_seconds: u64,
    /// Seconds that leaderships and connections get to leave after SIGTERM.
    #[arg(long, default_value_t = 10)]
    pub drain_seconds: u64,
    /// Seconds between this host's heartbeats; a host that misses four is not ready. The same on every host.
    #[arg(long, env = "WHEELHOUSE_HEARTBEAT_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub heartbeat_seconds: u64,
    /// Seconds after which a host that is not ready is given up and its replicas are replaced. The same on every host.
    #[arg(long, env = "WHEELHOUSE_GONE_SECONDS", default_value_t = 600)]
    pub gone_seconds: u64,
    /// Seconds that this host's and its replicas' certificates live; they are renewed at two thirds of that.
    #[arg(long, env = "WHEELHOUSE_CERTIFICATE_SECONDS", default_value_t = 90 * 86_400, value_parser = clap::value_parser!(u64).range(10..))]
    pub certificate_seconds: u64,
    /// MiB that stay free on the data directory's disk: below, writes other than deletes are refused. Default: 5 % of the disk, 1 GiB at least.
    #[arg(long, env = "WHEELHOUSE_DISK_RESERVE_MIB", value_name = "MIB")]
    pub disk_reserve_mib: Option<u64>,
}

impl Run {
    pub fn park_after(&self) -> Option<Duration> {
        (self.park_after_seconds > 0).then(|| Duration::from_secs(self.park_after_seconds))
    }

    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }

    pub fn patience(&self) -> Patience {
        Patience { heartbeat: Duration::from_secs(self.heartbeat_seconds), gone_after: Duration::from_secs(self.gone_seconds) }
    }

    pub fn certificate_life(&self) -> Duration {
        Duration::from_secs(self.certificate_seconds)
    }
}

#[derive(Clone, Debug, Args)]
pub struct Token {
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Hours until the token is void.
    #[arg(long, default_value_t = 24)]
    pub hours: u32,
}

#[derive(Clone, Debug, Args)]
pub struct Credentials {
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// For whom.
    #[arg(value_enum)]
    pub kind: CredentialKind,
    /// With cluster-admin: the cluster's id.
    #[arg(long, required_if_eq("kind", "cluster-admin"))]
    pub cluster: Option<ClusterId>,
    /// Seconds that the certificate lives: a year.
    #[arg(long, default_value_t = crate::init::CREDENTIAL_LIFE.as_secs())]
    pub life_seconds: u64,
    /// A directory for `endpoint`, a kubeconfig file otherwise.
    #[arg(long, value_name = "PATH")]
    pub out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CredentialKind {
    Endpoint,
    TenantApi,
    Operator,
    /// An administrator of one hosted cluster that has a replica here.
    ClusterAdmin,
}

/// The store alone, behind etcd's API.
#[derive(Clone, Debug, Args)]
pub struct StoreOnly {
    /// Serve the complete etcd v3 API over one store and nothing else.
    #[arg(long)]
    pub store_only: bool,
    /// With --store-only: where the store lies.
    #[arg(long, value_name = "DIR", requires = "store_only")]
    pub store_dir: Option<PathBuf>,
    /// With --store-only: plain-text gRPC.
    #[arg(long, default_value = "127.0.0.1:2379", requires = "store_only")]
    pub store_listen: SocketAddr,
    /// With --store-only: this member's name among --store-members.
    #[arg(long, value_name = "NAME", default_value = "local", requires = "store_only")]
    pub store_name: HostName,
    /// With --store-only: all members and where each listens for the others, in plain text; the first one founds the store. None is a store of
    /// one member.
    #[arg(long, value_name = "NAME=ADDRESS,...", value_delimiter = ',', requires = "store_only")]
    pub store_members: Vec<StoreMember>,
}

/// One of `--store-members`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreMember {
    pub name: HostName,
    pub peers: SocketAddr,
}

impl FromStr for StoreMember {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, peers) = text.split_once('=').ok_or("a member is NAME=ADDRESS, as in a=127.0.0.1:2380")?;
        let name = name.parse().map_err(|error| format!("the name {name}: {error}"))?;
        let peers = peers.parse().map_err(|error| format!("the address {peers}: {error}"))?;
        Ok(Self { name, peers })
    }
}
