//! What of a Pod matters to policies.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    pub namespace: String,
    pub name: String,
    pub node: String,
    pub labels: Option<BTreeMap<String, String>>,
    pub addresses: Vec<IpAddr>,
    /// Named container ports.
    pub ports: Vec<PortFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    pub name: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    pub port: u16,
}

impl PodFacts {
    /// None for a pod without an address of its own: not started, ended, or in the host's network.
    pub fn of(pod: &Pod) -> Option<Self> {
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
        let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if has_ended || spec.host_network == Some(true) {
            return None;
        }
        let mut addresses: Vec<IpAddr> = status.pod_ips.iter().flatten().filter_map(|ip| ip.ip.parse().ok()).collect();
        if addresses.is_empty() {
            addresses.extend(status.pod_ip.as_ref().and_then(|ip| ip.parse::<IpAddr>().ok()));
        }
        if addresses.is_empty() {
            return None;
        }
        // Sidecars are init containers that go on.
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let ports = containers.flat_map(|container| container.ports.iter().flatten()).filter_map(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
            Some(PortFacts { name: port.name.clone()?, protocol, port: u16::try_from(port.container_port).ok()? })
        });
        Some(Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            node: spec.node_name.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone(),
            addresses,
            ports: ports.collect(),
        })
    }
}
