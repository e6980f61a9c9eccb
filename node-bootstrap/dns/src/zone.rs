//! What the cluster's zone holds, and what each name in it means. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceRecord {
    ClusterIp {
        addresses: Vec<IpAddr>,
        ports: Vec<PortRecord>,
    },
    /// Its names are those of its endpoints.
    Headless,
    /// Another name.
    External(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRecord {
    pub name: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    pub port: u16,
}

/// One address behind a headless service. Only those that may be used are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: IpAddr,
    /// The pod's hostname, or the address with dashes: what it is called within its service.
    pub label: String,
    pub ports: Vec<PortRecord>,
}

impl ServiceRecord {
    pub fn of(service: &Service) -> (ServiceName, Option<Self>) {
        let name = ServiceName {
            namespace: service.metadata.namespace.clone().unwrap_or_default(),
            name: service.metadata.name.clone().unwrap_or_default(),
        };
        let Some(spec) = &service.spec else { return (name, None) };
        if spec.type_.as_deref() == Some("ExternalName") {
            return (name, spec.external_name.clone().filter(|target| !target.is_empty()).map(ServiceRecord::External));
        }
        let ips: Vec<&str> =
            spec.cluster_ips.iter().flatten().chain(spec.cluster_ip.as_ref().filter(|_| spec.cluster_ips.is_none())).map(String::as_str).collect();
        if ips == ["None"] {
            return (name, Some(ServiceRecord::Headless));
        }
        let addresses: Vec<IpAddr> = ips.iter().filter_map(|ip| ip.parse().ok()).collect();
        if addresses.is_empty() {
            return (name, None);
        }
        let ports = spec.ports.iter().flatten().filter_map(|port| PortRecord::of(port.name.as_deref(), port.protocol.as_deref(), port.port));
        (name, Some(ServiceRecord::ClusterIp { addresses, ports: ports.collect() }))
    }
}

impl PortRecord {
    fn of(name: Option<&str>, protocol: Option<&str>, port: i32) -> Option<Self> {
        let protocol = protocol.unwrap_or("TCP").to_ascii_lowercase();
        Some(Self { name: name.unwrap_or_default().to_owned(), protocol, port: u16::try_from(port).ok()? })
    }
}

impl Endpoint {
    /// The service that a slice belongs to, and its ready endpoints. Slices of services that publish unready addresses say `ready` for all.
    pub fn of(slice: &EndpointSlice) -> Option<(ServiceName, Vec<Self>)> {
        let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?.clone();
        let service = ServiceName { namespace: slice.metadata.namespace.clone().unwrap_or_default(), name };
        let ports: Vec<PortRecord> =
            slice.ports.iter().flatten().filter_map(|port| PortRecord::of(port.name.as_deref(), port.protocol.as_deref(), port.port?)).collect();
        let ready = slice.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true));
        let endpoints = ready.flat_map(|endpoint| {
            let label = endpoint.hostname.clone().filter(|hostname| !hostname.is_empty());
            let ports = &ports;
            endpoint.addresses.iter().filter_map(move |text| {
                let address: IpAddr = text.parse().ok()?;
                Some(Self { address, label: label.clone().unwrap_or_else(|| dashed(&address)), ports: ports.clone() })
            })
        });
        Some((service, endpoints.collect()))
    }
}

/// `10.244.1.2` as `10-244-1-2`.
pub fn dashed(address: &IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

/// The address that [`dashed`] made a label of.
fn undashed(label: &str) -> Option<IpAddr> {
    let four = label.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::V4);
    four.ok().or_else(|| label.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::V6).ok())
}

/// One target of a service record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvTarget {
    pub port: u16,
    /// Labels below the zone.
    pub labels: Vec<String>,
    pub addresses: Vec<IpAddr>,
}

/// What a name below the zone means, whatever type was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    Apex,
    /// The version of the specification, as text.
    Version,
    /// The zone's own name server.
    NameServer,
    Addresses(Vec<IpAddr>),
    Services(Vec<SrvTarget>),
    /// An absolute name outside of or in the zone.
    Alias(String),
    /// Nothing is here, but something is below: the name exists.
    Empty,
    Nothing,
}

/// Everything that the zone's names follow from.
#[derive(Default)]
pub struct Zone {
    services: BTreeMap<ServiceName, ServiceRecord>,
    /// By service, then by name of the slice.
    endpoints: BTreeMap<ServiceName, BTreeMap<String, Vec<Endpoint>>>,
    /// Names of addresses: those of cluster IPs, and of endpoints of headless services, which may have several.
    reverse: HashMap<IpAddr, BTreeSet<Vec<String>>>,
}

impl Zone {
    pub fn set_service(&mut self, name: ServiceName, record: Option<ServiceRecord>) {
        self.unindex(&name);
        match record {
            Some(record) => self.services.insert(name.clone(), record),
            None => self.services.remove(&name),
        };
        self.index(&name);
    }

    pub fn set_slice(&mut self, service: ServiceName, slice: &str, endpoints: Option<Vec<Endpoint>>) {
        self.unindex(&service);
        let slices = self.endpoints.entry(service.clone()).or_default();
        match endpoints {
            Some(endpoints) => slices.insert(slice.to_owned(), endpoints),
            None => slices.remove(slice),
        };
        if slices.is_empty() {
            self.endpoints.remove(&service);
        }
        self.index(&service);
    }

    pub fn retain_services(&mut self, listed: &BTreeSet<ServiceName>) {
        let gone: Vec<ServiceName> = self.services.keys().filter(|name| !listed.contains(name)).cloned().collect();
        for name in gone {
            self.set_service(name, None);
        }
    }

    pub fn retain_slices(&mut self, listed: &BTreeSet<(ServiceName, String)>) {
        let known = self.endpoints.iter().flat_map(|(service, slices)| slices.keys().map(|slice| (service.clone(), slice.clone())));
        let gone: Vec<_> = known.filter(|pair| !listed.contains(pair)).collect();
        for (service, slice) in gone {
            self.set_slice(service, &slice, None);
        }
    }

    /// Addresses with the names that they have because of this service.
    fn reverse_of(&self, name: &ServiceName) -> Vec<(IpAddr, Vec<String>)> {
        match self.services.get(name) {
            Some(ServiceRecord::ClusterIp { addresses, .. }) => addresses.iter().map(|ip| (*ip, service_labels(name))).collect(),
            Some(ServiceRecord::Headless) => self.endpoints_of(name).map(|endpoint| (endpoint.address, endpoint_labels(name, endpoint))).collect(),
            _ => Vec::new(),
        }
    }

    fn unindex(&mut self, name: &ServiceName) {
        for (address, labels) in self.reverse_of(name) {
            if let Some(names) = self.reverse.get_mut(&address) {
                names.remove(&labels);
                if names.is_empty() {
                    self.reverse.remove(&address);
                }
            }
        }
    }

    fn index(&mut self, name: &ServiceName) {
        for (address, labels) in self.reverse_of(name) {
            self.reverse.entry(address).or_default().insert(labels);
        }
    }

    fn endpoints_of<'a>(&'a self, name: &ServiceName) -> impl Iterator<Item = &'a Endpoint> {
        self.endpoints.get(name).into_iter().flat_map(|slices| slices.values().flatten())
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        let first = ServiceName { namespace: namespace.to_owned(), name: String::new() };
        self.services.range(first..).next().is_some_and(|(name, _)| name.namespace == namespace)
    }

    /// Names of an address, as labels below the zone.
    pub fn names_of(&self, address: &IpAddr) -> impl Iterator<Item = &Vec<String>> {
        self.reverse.get(address).into_iter().flatten()
    }

    /// What a name means; `labels` are lower case, first label first, without the zone's own.
    pub fn meaning(&self, labels: &[&str]) -> Meaning {
        match labels {
            [] => Meaning::Apex,
            ["dns-version"] => Meaning::Version,
            ["dns"] | ["svc"] | ["pod"] => Meaning::Empty,
            ["ns", "dns"] => Meaning::NameServer,
            [namespace, "svc" | "pod"] => self.exists(self.has_namespace(namespace)),
            // Answered from the name alone, as the specification allows: pods are not watched for it.
            [label, namespace, "pod"] => match undashed(label) {
                Some(address) if self.has_namespace(namespace) => Meaning::Addresses(vec![address]),
                _ => Meaning::Nothing,
            },
            [below @ .., name, namespace, "svc"] => {
                let name = ServiceName { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
                match self.services.get(&name) {
                    None => Meaning::Nothing,
                    Some(record) => self.service(&name, record, below),
                }
            }
            _ => Meaning::Nothing,
        }
    }

    fn exists(&self, exists: bool) -> Meaning {
        if exists { Meaning::Empty } else { Meaning::Nothing }
    }

    fn service(&self, name: &ServiceName, record: &ServiceRecord, below: &[&str]) -> Meaning {
        match (record, below) {
            (ServiceRecord::External(target), []) => Meaning::Alias(target.clone()),
            (ServiceRecord::External(_), _) => Meaning::Nothing,
            (ServiceRecord::ClusterIp { addresses, .. }, []) => Meaning::Addresses(addresses.clone()),
            (ServiceRecord::Headless, []) => {
                let addresses: BTreeSet<IpAddr> = self.endpoints_of(name).map(|endpoint| endpoint.address).collect();
                // A headless service without endpoints has no address: the specification wants "no such name" there.
                if addresses.is_empty() { Meaning::Nothing } else { Meaning::Addresses(addresses.into_iter().collect()) }
            }
            (_, [protocol]) if protocol.starts_with('_') => {
                self.exists(self.targets(name, record).iter().any(|(port, _)| port.protocol == protocol[1..]))
            }
            (_, [port_name, protocol]) if port_name.starts_with('_') && protocol.starts_with('_') => {
                let asked = |port: &PortRecord| port.name == port_name[1..] && port.protocol == protocol[1..];
                let targets: Vec<SrvTarget> =
                    self.targets(name, record).into_iter().filter(|(port, _)| asked(port)).map(|(_, target)| target).collect();
                if targets.is_empty() { Meaning::Nothing } else { Meaning::Services(targets) }
            }
            (ServiceRecord::Headless, [label]) => {
                let addresses: BTreeSet<IpAddr> = self.endpoints_of(name).filter(|e| e.label == *label).map(|e| e.address).collect();
                if addresses.is_empty() { Meaning::Nothing } else { Meaning::Addresses(addresses.into_iter().collect()) }
            }
            _ => Meaning::Nothing,
        }
    }

    /// Every named port with where it is served.
    fn targets(&self, name: &ServiceName, record: &ServiceRecord) -> Vec<(PortRecord, SrvTarget)> {
        match record {
            ServiceRecord::External(_) => Vec::new(),
            ServiceRecord::ClusterIp { addresses, ports } => ports
                .iter()
                .map(|port| (port.clone(), SrvTarget { port: port.port, labels: service_labels(name), addresses: addresses.clone() }))
                .collect(),
            ServiceRecord::Headless => {
                let mut targets: Vec<(PortRecord, SrvTarget)> = Vec::new();
                for endpoint in self.endpoints_of(name) {
                    for port in &endpoint.ports {
                        let labels = endpoint_labels(name, endpoint);
                        // Both addresses of a dual-stack pod have one name.
                        match targets.iter_mut().find(|(known, target)| known == port && target.labels == labels) {
                            Some((_, target)) if target.addresses.contains(&endpoint.address) => {}
                            Some((_, target)) => target.addresses.push(endpoint.address),
                            None => targets.push((port.clone(), SrvTarget { port: port.port, labels, addresses: vec![endpoint.address] })),
                        }
                    }
                }
                targets
            }
        }
    }
}

fn service_labels(name: &ServiceName) -> Vec<String> {
    vec![name.name.clone(), name.namespace.clone(), "svc".to_owned()]
}

fn endpoint_labels(name: &ServiceName, endpoint: &Endpoint) -> Vec<String> {
    [vec![endpoint.label.clone()], service_labels(name)].concat()
}
