//! What of a Service, an EndpointSlice and a Node matters here. Everything else is dropped on arrival, which keeps ten thousand services small.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};

/// A service with this label is another proxy's.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const ZONE: &str = "topology.kubernetes.io/zone";

/// `sessionAffinityConfig.clientIP.timeoutSeconds` where it is not set, from the API's documentation.
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// The map from (service id, slot) to endpoint.
    pub fn endpoints_map(self) -> &'static str {
        match self {
            Protocol::Tcp => "endpoints-tcp",
            Protocol::Udp => "endpoints-udp",
            Protocol::Sctp => "endpoints-sctp",
        }
    }

    /// None for a word that is no protocol of the API. Absence means TCP.
    pub fn parse(word: Option<&str>) -> Option<Self> {
        match word {
            None | Some("TCP" | "") => Some(Protocol::Tcp),
            Some("UDP") => Some(Protocol::Udp),
            Some("SCTP") => Some(Protocol::Sctp),
            Some(_) => None,
        }
    }

    /// As nftables and conntrack write it.
    pub fn keyword(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}

/// A service that has a virtual address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    pub name: ServiceName,
    pub ports: Vec<PortFacts>,
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// From `status.loadBalancer`, those alone whose traffic arrives with its destination unchanged.
    pub load_balancer_ips: Vec<IpAddr>,
    /// `spec.loadBalancerSourceRanges` as written; empty allows everybody.
    pub source_ranges: Vec<String>,
    /// Seconds that a client stays with its endpoint.
    pub affinity: Option<u32>,
    pub internal_local: bool,
    pub external_local: bool,
    /// 0: none.
    pub health_check_port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
    /// 0: none.
    pub node_port: u16,
}

impl ServiceFacts {
    pub fn name_of(service: &Service) -> ServiceName {
        ServiceName { namespace: service.metadata.namespace.clone().unwrap_or_default(), name: service.metadata.name.clone().unwrap_or_default() }
    }

    /// None for a service that needs no rules: headless, an external name, or another proxy's.
    pub fn of(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
        if kind == "ExternalName" || service.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(OTHER_PROXY)) {
            return None;
        }
        let first = spec.cluster_ip.as_slice();
        let cluster_ips: Vec<IpAddr> = spec.cluster_ips.as_deref().unwrap_or(first).iter().filter_map(|ip| ip.parse().ok()).collect();
        if cluster_ips.is_empty() {
            return None;
        }
        let has_node_ports = matches!(kind, "NodePort" | "LoadBalancer");
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            Some(PortFacts {
                name: port.name.clone().unwrap_or_default(),
                protocol: Protocol::parse(port.protocol.as_deref())?,
                port: u16::try_from(port.port).ok()?,
                node_port: port.node_port.filter(|_| has_node_ports).and_then(|port| u16::try_from(port).ok()).unwrap_or(0),
            })
        });
        let is_external = has_node_ports || spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty());
        Some(Self {
            name: Self::name_of(service),
            ports: ports.collect(),
            cluster_ips,
            external_ips: spec.external_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect(),
            load_balancer_ips: if kind == "LoadBalancer" { load_balancer_ips(service) } else { Vec::new() },
            source_ranges: if kind == "LoadBalancer" { spec.load_balancer_source_ranges.clone().unwrap_or_default() } else { Vec::new() },
            affinity: (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
                let configured = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
                configured.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(DEFAULT_AFFINITY_SECONDS)
            }),
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_local: is_external && spec.external_traffic_policy.as_deref() == Some("Local"),
            health_check_port: spec.health_check_node_port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0),
        })
    }
}

fn load_balancer_ips(service: &Service) -> Vec<IpAddr> {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    let unchanged = ingress.into_iter().flatten().filter(|entry| entry.ip_mode.as_deref() != Some("Proxy"));
    unchanged.filter_map(|entry| entry.ip.as_deref()?.parse().ok()).collect()
}

/// One slice of one service's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceFacts {
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<EndpointFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointFacts {
    pub address: IpAddr,
    pub node: Option<String>,
    pub is_ready: bool,
    pub is_serving: bool,
    pub is_terminating: bool,
    /// Zones and nodes that should use it; empty means no hint.
    pub zone_hints: BTreeSet<String>,
    pub node_hints: BTreeSet<String>,
}

impl SliceFacts {
    /// The service that the slice belongs to; none for a slice that nobody's service owns.
    pub fn service_of(slice: &EndpointSlice) -> Option<ServiceName> {
        let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
        Some(ServiceName { namespace: slice.metadata.namespace.clone().unwrap_or_default(), name: name.clone() })
    }

    /// A slice of names (address type FQDN) has no endpoints here.
    pub fn of(slice: &EndpointSlice) -> Self {
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            Some(SlicePort {
                name: port.name.clone().unwrap_or_default(),
                protocol: Protocol::parse(port.protocol.as_deref())?,
                port: u16::try_from(port.port?).ok()?,
            })
        });
        let endpoints = slice.endpoints.iter().flatten().filter_map(|endpoint| {
            let no_conditions = EndpointConditions::default();
            let conditions = endpoint.conditions.as_ref().unwrap_or(&no_conditions);
            let is_ready = conditions.ready.unwrap_or(true);
            let hints = endpoint.hints.as_ref();
            Some(EndpointFacts {
                // The API fixes that all addresses of an endpoint are interchangeable and that only the first is used.
                address: endpoint.addresses.first()?.parse().ok()?,
                node: endpoint.node_name.clone(),
                is_ready,
                is_serving: conditions.serving.unwrap_or(is_ready),
                is_terminating: conditions.terminating.unwrap_or(false),
                zone_hints: hints.into_iter().flat_map(|hints| hints.for_zones.iter().flatten()).map(|zone| zone.name.clone()).collect(),
                node_hints: hints.into_iter().flat_map(|hints| hints.for_nodes.iter().flatten()).map(|node| node.name.clone()).collect(),
            })
        });
        Self { ports: ports.collect(), endpoints: endpoints.collect() }
    }
}

/// The node that rules are planned for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: String,
    pub zone: Option<String>,
}

impl NodeFacts {
    pub fn of(node: &Node) -> Self {
        let zone = node.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE).cloned());
        Self { name: node.metadata.name.clone().unwrap_or_default(), zone }
    }
}
