//! What a host tells endpoints and other hosts: the wire form of the routes stream.
//!
//! The stream runs on the peers port under the protocol name [`ALPN`]: JSON lines, each the whole truth of one host, pushed on every change; an empty
//! line at least every [`BEAT`] says that the host is alive.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ClusterId, HostName, ReplicaId};

/// The protocol name on the peers port.
pub const ALPN: &[u8] = b"wheelhouse-routes/1";

/// How often a host writes at least.
pub const BEAT: Duration = Duration::from_secs(1);

/// A stream that is silent for so long is dead: five beats, so that a paused or busy host is not taken for one.
pub const SILENCE: Duration = Duration::from_secs(5);

/// The longest line: some 50,000 replicas.
pub const MAX_LINE: usize = 8 * 1024 * 1024;

/// One host's replicas, and the hosts that it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRoutes {
    pub host: KnownHost,
    /// New with every start of the process.
    pub incarnation: String,
    /// The host is about to exit: nothing new should come.
    #[serde(default)]
    pub draining: bool,
    pub replicas: Vec<ReplicaRoute>,
    /// Every host of the service, this one included.
    pub hosts: Vec<KnownHost>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRoute {
    pub cluster: ClusterId,
    pub replica: ReplicaId,
    /// It serves requests and has contact with its group's leader.
    pub ready: bool,
    #[serde(default)]
    pub leader: bool,
}

/// A host and how to reach it, `host:port` each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownHost {
    pub name: HostName,
    pub clients: String,
    pub peers: String,
}

/// The name in every host's certificate by which any of them may be met, before its own name is known.
pub fn peers_server_name(base_domain: &str) -> String {
    format!("peers.{base_domain}")
}

/// The name in one host's certificate.
pub fn host_server_name(host: &HostName, base_domain: &str) -> String {
    format!("{host}.hosts.{base_domain}")
}
