//! `--store-only`: one replicated store behind etcd's whole API, for comparing answers and speed with a real etcd and for running an upstream
//! kube-apiserver on it. No TLS, no authentication: it is no way to host anything.
//!
//! ```text
//! wheelhouse-host --store-only --store-dir d                                                  one member
//! wheelhouse-host --store-only --store-dir d --store-name b --store-members a=H:P,b=H:P,c=H:P  one of three, as etcd's --initial-cluster
//! ```

mod peers;

use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use tokio::net::TcpListener;
use wheelhouse_base::{ClusterId, HostName, ReplicaId, SystemClock};
use wheelhouse_etcd::{Identity, Member};
use wheelhouse_replication::{DataKey, FrameReceiver, GroupId, GroupManager, HostDisk, HostParts, NotSent, PeerTransport, ReplicaSpec, Start};
use wheelhouse_runtime::{Tasks, shutdown};
use wheelhouse_store::Store;

use crate::config::{StoreMember, StoreOnly};

/// All members seal with one key, and this mode protects nothing.
const KEY: [u8; 32] = [0; 32];

const GRACE: Duration = Duration::from_secs(1);

/// There is nobody else.
struct NoPeers;

impl PeerTransport for NoPeers {
    fn attach(&self, _: Weak<dyn FrameReceiver>) {}

    fn send(&self, _: &HostName, _: Bytes) -> Result<(), NotSent> {
        Err(NotSent)
    }
}

/// Serves until told to stop.
pub async fn run(flags: &StoreOnly) -> anyhow::Result<()> {
    let path = flags.store_dir.clone().context("--store-only needs --store-dir")?;
    std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    let (voters, own) = voters(flags)?;
    let tasks = Tasks::new("store");
    let transport: Arc<dyn PeerTransport> =
        if voters.len() > 1 { peers::start(&flags.store_name, &flags.store_members, &tasks).await? } else { Arc::new(NoPeers) };
    let disk = HostDisk::open(&path.join("db")).context("opening the disk")?;
    let parts = HostParts { host: flags.store_name.clone(), disk: Arc::clone(&disk), transport, clock: Arc::new(SystemClock) };
    let groups = GroupManager::new(parts);
    let id = GroupId::new(ClusterId::system(), own);
    let founds = voters.first().is_some_and(|(replica, _)| *replica == own);
    let start = if founds { Start::Found { voters: voters.clone() } } else { Start::Join };
    let spec = ReplicaSpec { cluster: id.cluster.clone(), replica: own, key: DataKey::from_bytes(KEY), start };
    let store: Arc<dyn Store> = Arc::new(groups.start(spec).await.context("starting the store")?);
    let full = wheelhouse_etcd::full(store, identity(&id, &voters, flags));

    let listener = TcpListener::bind(flags.store_listen).await.with_context(|| format!("listening on {}", flags.store_listen))?;
    tracing::info!(listen = %flags.store_listen, "the store is up");
    tasks.spawn("lease-expiry", full.expiry.run());
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    let stopped = async {
        if let Err(error) = shutdown::requested().await {
            tracing::error!(%error, "signals cannot be awaited");
        }
    };
    tonic::transport::Server::builder().add_routes(full.routes).serve_with_incoming_shutdown(incoming, stopped).await.context("serving")?;
    tasks.stop(GRACE).await;
    groups.shutdown().await;
    disk.close();
    Ok(())
}

/// The members in the order of the flag, numbered from 1, and this one's number.
fn voters(flags: &StoreOnly) -> anyhow::Result<(Vec<(ReplicaId, HostName)>, ReplicaId)> {
    let alone = [flags.store_name.clone()];
    let named = flags.store_members.iter().map(|member| &member.name);
    let names: Vec<&HostName> = if flags.store_members.is_empty() { alone.iter().collect() } else { named.collect() };
    let voters: Vec<_> = (1..).map(ReplicaId).zip(names.into_iter().cloned()).collect();
    let own = voters.iter().find(|(_, name)| *name == flags.store_name).map(|(replica, _)| *replica);
    let own = own.with_context(|| format!("--store-name {} is not among --store-members", flags.store_name))?;
    let twice = voters.iter().any(|(replica, name)| voters.iter().any(|(other, same)| other != replica && same == name));
    anyhow::ensure!(!twice, "--store-members names a member twice");
    Ok((voters, own))
}

/// The URL for clients is known of this member only: no member is told where the others serve.
fn identity(id: &GroupId, voters: &[(ReplicaId, HostName)], flags: &StoreOnly) -> Identity {
    let peers = |name: &HostName| flags.store_members.iter().find(|member| member.name == *name);
    let member = |(replica, name): &(ReplicaId, HostName)| Member {
        id: replica.0,
        name: name.to_string(),
        peer_urls: peers(name).map(|StoreMember { peers, .. }| format!("http://{peers}")).into_iter().collect(),
        client_urls: (*replica == id.replica).then(|| format!("http://{}", flags.store_listen)).into_iter().collect(),
        learner: false,
    };
    Identity { members: voters.iter().map(member).collect(), ..crate::etcd::identity(id) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn flags(more: &[&str]) -> StoreOnly {
        let all = ["wheelhouse-host", "--store-only", "--store-dir", "d"].iter().chain(more);
        crate::config::Cli::try_parse_from(all).unwrap().store_only
    }

    #[test]
    fn members_are_numbered_in_their_order() {
        assert_eq!(voters(&flags(&[])).unwrap(), (vec![(ReplicaId(1), "local".parse().unwrap())], ReplicaId(1)));
        let three = "--store-members=a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3";
        let (voters_of_three, own) = voters(&flags(&[three, "--store-name=b"])).unwrap();
        assert_eq!((voters_of_three.len(), own), (3, ReplicaId(2)));
        assert!(voters(&flags(&[three, "--store-name=d"])).is_err(), "a stranger");
        assert!(voters(&flags(&["--store-members=a=127.0.0.1:1,a=127.0.0.1:2", "--store-name=a"])).is_err(), "a name twice");
    }
}
