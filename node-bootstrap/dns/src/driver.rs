//! Binds the addresses, keeps the zone, serves.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use wheelhouse_client::informer::{Change, Resource, follow};
use wheelhouse_client::{Client, ListOptions};
use wheelhouse_runtime::{Metrics, Stop, Tasks};

use crate::answer::{Origin, OriginError};
use crate::forward::Upstreams;
use crate::interface::{self, InterfaceError};
use crate::server::Server;
use crate::transport::{serve_datagrams, serve_streams};
use crate::zone::{Endpoint, ServiceRecord};

/// Changes that wait; more hold the watches up.
const CHANGES: usize = 64;

/// Time for questions under way at the end.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How often addresses of IPv6 are tried to be bound while the interface comes up.
const BIND_ATTEMPTS: usize = 20;
const BIND_WAIT: Duration = Duration::from_millis(100);

const SERVICES: Resource = Resource { group: "", version: "v1", plural: "services" };
const SLICES: Resource = Resource { group: "discovery.k8s.io", version: "v1", plural: "endpointslices" };

#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's domain, usually `cluster.local`.
    pub domain: String,
    /// The DNS service's addresses: put on an interface of their own and served at port 53.
    pub addresses: Vec<IpAddr>,
    /// Networks of the cluster's pods and services, in CIDR notation: names of their addresses are asked of nobody else.
    pub cluster_networks: Vec<String>,
    /// The file with the node's own resolvers, usually `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// 53 but in tests.
    pub port: u16,
}

#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error("cannot make the interface of the DNS service")]
    Interface(#[from] InterfaceError),
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
}

/// Runs until it is told to stop. Fails at once where it cannot bind; everything else is tried again for ever.
pub async fn run(client: Client, config: Config, metrics: &Metrics, mut stop: Stop) -> Result<(), DnsError> {
    let origin = Origin::new(&config.domain, config.addresses.clone(), &config.cluster_networks)?;
    interface::ensure(&config.addresses).await?;
    let upstreams = Upstreams::new(config.resolv_conf.clone(), config.addresses.clone());
    let server = Arc::new(Server::new(origin, upstreams, metrics));
    let tasks = Tasks::new("dns");
    for address in &config.addresses {
        let (socket, listener) = bind(SocketAddr::new(*address, config.port)).await?;
        serve_datagrams(&tasks, socket, Arc::clone(&server));
        serve_streams(&tasks, listener, Arc::clone(&server));
    }
    let (services, mut service_changes) = mpsc::channel(CHANGES);
    let (slices, mut slice_changes) = mpsc::channel(CHANGES);
    let following = async {
        tokio::join!(
            follow::<Service>(client.clone(), SERVICES, ListOptions::default(), services),
            follow::<EndpointSlice>(client.clone(), SLICES, ListOptions::default(), slices),
        )
    };
    let learning = async {
        loop {
            tokio::select! {
                Some(change) = service_changes.recv() => learn_service(&server, change),
                Some(change) = slice_changes.recv() => learn_slice(&server, change),
                else => return,
            }
        }
    };
    stop.or(async { tokio::join!(following, learning) }).await;
    tasks.stop(STOP_GRACE).await;
    Ok(())
}

/// A fresh IPv6 address is tentative for a moment, and cannot be bound meanwhile.
async fn bind(address: SocketAddr) -> Result<(UdpSocket, TcpListener), DnsError> {
    let mut attempt = 0;
    loop {
        let bound = async { Ok::<_, std::io::Error>((UdpSocket::bind(address).await?, TcpListener::bind(address).await?)) };
        match bound.await {
            Ok(pair) => return Ok(pair),
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable && attempt < BIND_ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(BIND_WAIT).await;
            }
            Err(source) => return Err(DnsError::Listen(address, source)),
        }
    }
}

fn learn_service(server: &Server, change: Change<Service>) {
    let mut state = server.zone.write();
    match change {
        Change::Listed(services) => {
            let records: Vec<_> = services.iter().map(ServiceRecord::of).collect();
            state.zone.retain_services(&records.iter().map(|(name, _)| name.clone()).collect());
            for (name, record) in records {
                state.zone.set_service(name, record);
            }
            state.has_services = true;
        }
        Change::Stored(service) => {
            let (name, record) = ServiceRecord::of(&service);
            state.zone.set_service(name, record);
        }
        Change::Deleted(service) => state.zone.set_service(ServiceRecord::of(&service).0, None),
    }
}

fn learn_slice(server: &Server, change: Change<EndpointSlice>) {
    let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap_or_default();
    let mut state = server.zone.write();
    match change {
        Change::Listed(slices) => {
            let known: Vec<_> =
                slices.iter().filter_map(|slice| Endpoint::of(slice).map(|(service, endpoints)| (service, name(slice), endpoints))).collect();
            state.zone.retain_slices(&known.iter().map(|(service, name, _)| (service.clone(), name.clone())).collect());
            for (service, name, endpoints) in known {
                state.zone.set_slice(service, &name, Some(endpoints));
            }
            state.has_slices = true;
        }
        Change::Stored(slice) => {
            if let Some((service, endpoints)) = Endpoint::of(&slice) {
                state.zone.set_slice(service, &name(&slice), Some(endpoints));
            }
        }
        Change::Deleted(slice) => {
            if let Some((service, _)) = Endpoint::of(&slice) {
                state.zone.set_slice(service, &name(&slice), None);
            }
        }
    }
}
