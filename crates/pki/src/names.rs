//! The names that a cluster's API certificate carries.

use std::net::{IpAddr, Ipv4Addr};

use wheelhouse_base::ClusterId;

use crate::AltName;

/// Where in-cluster clients find the API: the endpoints of `default/kubernetes`, bound on every node by the agent.
pub const API_SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 127, 255, 1);

/// `<cluster>.<base>` for the endpoint, `*.<cluster>.<base>` for replicas by name, the in-cluster names, the first service address,
/// the API address of nodes, and the loopback for what runs beside the server. One set serves all replicas and all membership changes.
pub fn server_names(cluster: &ClusterId, base_domain: &str, service_address: IpAddr) -> Vec<AltName> {
    let dns = [
        format!("{cluster}.{base_domain}"),
        format!("*.{cluster}.{base_domain}"),
        "kubernetes".to_owned(),
        "kubernetes.default".to_owned(),
        "kubernetes.default.svc".to_owned(),
        "kubernetes.default.svc.cluster.local".to_owned(),
        "localhost".to_owned(),
    ];
    let ips = [service_address, IpAddr::V4(API_SERVICE_ADDRESS), IpAddr::V4(Ipv4Addr::LOCALHOST)];
    dns.into_iter().map(AltName::Dns).chain(ips.into_iter().map(AltName::Ip)).collect()
}
