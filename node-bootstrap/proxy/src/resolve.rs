//! Which endpoints a port of a service has on this node: readiness, termination, topology hints and traffic policies (KEP-1669, KEP-2433, KEP-4444).

use std::net::SocketAddr;

use wheelhouse_net::Family;

use crate::facts::{EndpointFacts, NodeFacts, PortFacts, ServiceFacts, SliceFacts};

/// One port of one service in one family, ready to be written as rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPort {
    pub family: Family,
    pub port: PortFacts,
    /// For traffic that may go to any node; sorted.
    pub cluster: Vec<SocketAddr>,
    /// For traffic that must stay on this node; sorted, and only filled where a policy asks for it.
    pub local: Vec<SocketAddr>,
    /// Endpoints among all of these that run on this node: those may call their own service and need to be told apart.
    pub on_this_node: Vec<SocketAddr>,
}

/// The ports of `service`, for each family that it has an address in.
pub fn resolve<'a>(service: &ServiceFacts, slices: impl Iterator<Item = &'a SliceFacts> + Clone, node: &NodeFacts) -> Vec<ResolvedPort> {
    let families = Family::BOTH.into_iter().filter(|family| service.cluster_ips.iter().any(|ip| Family::of(ip) == *family));
    families
        .flat_map(|family| service.ports.iter().map(|port| resolve_port(service, slices.clone(), node, family, port)).collect::<Vec<_>>())
        .collect()
}

fn resolve_port<'a>(
    service: &ServiceFacts,
    slices: impl Iterator<Item = &'a SliceFacts>,
    node: &NodeFacts,
    family: Family,
    port: &PortFacts,
) -> ResolvedPort {
    let mut candidates: Vec<(SocketAddr, &EndpointFacts)> = Vec::new();
    for slice in slices {
        for slice_port in slice.ports.iter().filter(|known| known.name == port.name && known.protocol == port.protocol) {
            let here = slice.endpoints.iter().filter(|endpoint| Family::of(&endpoint.address) == family);
            candidates.extend(here.map(|endpoint| (SocketAddr::new(endpoint.address, slice_port.port), endpoint)));
        }
    }
    // While an endpoint moves between slices it may be in both. The better state wins.
    candidates.sort_by_key(|(address, endpoint)| (*address, !endpoint.is_ready, !endpoint.is_serving));
    candidates.dedup_by_key(|(address, _)| *address);

    let is_local = |endpoint: &EndpointFacts| endpoint.node.as_deref() == Some(node.name.as_str());
    let hints = Hints::of(&candidates, node);
    let cluster = ready_or_terminating(candidates.iter().filter(|(_, endpoint)| !endpoint.is_ready || hints.admit(endpoint, node)), &candidates);
    let local = if service.internal_local || service.external_local {
        let here: Vec<_> = candidates.iter().filter(|(_, endpoint)| is_local(endpoint)).copied().collect();
        ready_or_terminating(here.iter(), &here)
    } else {
        Vec::new()
    };
    let used = |address: &SocketAddr| cluster.contains(address) || local.contains(address);
    let on_this_node = candidates.iter().filter(|(address, endpoint)| is_local(endpoint) && used(address)).map(|(address, _)| *address).collect();
    ResolvedPort { family, port: port.clone(), cluster, local, on_this_node }
}

/// The ready ones of `preferred`, or where there is none, whatever of `all` still serves while it terminates.
fn ready_or_terminating<'a>(
    preferred: impl Iterator<Item = &'a (SocketAddr, &'a EndpointFacts)>,
    all: &[(SocketAddr, &EndpointFacts)],
) -> Vec<SocketAddr> {
    let ready: Vec<SocketAddr> = preferred.filter(|(_, endpoint)| endpoint.is_ready).map(|(address, _)| *address).collect();
    if !ready.is_empty() {
        return ready;
    }
    all.iter().filter(|(_, endpoint)| endpoint.is_serving && endpoint.is_terminating).map(|(address, _)| *address).collect()
}

/// Which topology hints hold. They are followed only if every ready endpoint has them and one is for us: half-written hints would overload some.
enum Hints {
    None,
    Zone,
    Node,
}

impl Hints {
    fn of(candidates: &[(SocketAddr, &EndpointFacts)], node: &NodeFacts) -> Self {
        let ready = || candidates.iter().map(|(_, endpoint)| *endpoint).filter(|endpoint| endpoint.is_ready);
        let holds = |hints: fn(&EndpointFacts) -> &std::collections::BTreeSet<String>, wanted: &str| {
            ready().all(|endpoint| !hints(endpoint).is_empty()) && ready().any(|endpoint| hints(endpoint).contains(wanted))
        };
        if holds(|endpoint| &endpoint.node_hints, &node.name) {
            return Hints::Node;
        }
        match &node.zone {
            Some(zone) if holds(|endpoint| &endpoint.zone_hints, zone) => Hints::Zone,
            _ => Hints::None,
        }
    }

    fn admit(&self, endpoint: &EndpointFacts, node: &NodeFacts) -> bool {
        match self {
            Hints::None => true,
            Hints::Node => endpoint.node_hints.contains(&node.name),
            Hints::Zone => node.zone.as_ref().is_some_and(|zone| endpoint.zone_hints.contains(zone)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::facts::{Protocol, ServiceName, SlicePort};

    fn endpoint(last: u8, node: &str, states: &str) -> EndpointFacts {
        EndpointFacts {
            address: format!("10.244.0.{last}").parse().unwrap(),
            node: Some(node.into()),
            is_ready: states.contains('r'),
            is_serving: states.contains('s'),
            is_terminating: states.contains('t'),
            zone_hints: BTreeSet::new(),
            node_hints: BTreeSet::new(),
        }
    }

    fn service(internal_local: bool) -> ServiceFacts {
        ServiceFacts {
            name: ServiceName { namespace: "d".into(), name: "s".into() },
            ports: vec![PortFacts { name: "http".into(), protocol: Protocol::Tcp, port: 80, node_port: 0 }],
            cluster_ips: vec!["10.96.0.5".parse().unwrap()],
            external_ips: vec![],
            load_balancer_ips: vec![],
            source_ranges: vec![],
            affinity: None,
            internal_local,
            external_local: false,
            health_check_port: 0,
        }
    }

    fn endings(service: &ServiceFacts, endpoints: Vec<EndpointFacts>, zone: &str) -> (Vec<u8>, Vec<u8>) {
        let slice = SliceFacts { ports: vec![SlicePort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 }], endpoints };
        let node = NodeFacts { name: "n1".into(), zone: Some(zone.into()) };
        let [port] = resolve(service, [&slice].into_iter(), &node).try_into().unwrap();
        let last =
            |list: &[SocketAddr]| list.iter().map(|a| if let std::net::IpAddr::V4(ip) = a.ip() { ip.octets()[3] } else { 0 }).collect::<Vec<_>>();
        (last(&port.cluster), last(&port.local))
    }

    #[test]
    fn terminating_endpoints_serve_only_where_nothing_is_ready() {
        let mixed = vec![endpoint(1, "n1", "st"), endpoint(2, "n2", "rs"), endpoint(3, "n2", "")];
        assert_eq!(endings(&service(true), mixed, "a"), (vec![2], vec![1]));
        let leaving = vec![endpoint(1, "n1", "st"), endpoint(2, "n2", "st"), endpoint(3, "n2", "t")];
        assert_eq!(endings(&service(false), leaving, "a"), (vec![1, 2], vec![]));
    }

    #[test]
    fn hints_are_followed_only_when_complete_and_for_us() {
        let hinted = |last, zone: &str, node: &str| {
            let mut endpoint = endpoint(last, "n9", "rs");
            endpoint.zone_hints.insert(zone.into());
            endpoint.node_hints.extend((!node.is_empty()).then(|| node.to_owned()));
            endpoint
        };
        let both = || vec![hinted(1, "a", ""), hinted(2, "b", "")];
        assert_eq!(endings(&service(false), both(), "a").0, [1]);
        assert_eq!(endings(&service(false), both(), "c").0, [1, 2]);
        let mut partly = both();
        partly.push(endpoint(3, "n2", "rs"));
        assert_eq!(endings(&service(false), partly, "a").0, [1, 2, 3]);
        let nodes = vec![hinted(1, "a", "n2"), hinted(2, "b", "n1")];
        assert_eq!(endings(&service(false), nodes, "a").0, [2]);
    }

    #[test]
    fn an_endpoint_in_two_slices_counts_once_and_as_ready() {
        let twice = vec![endpoint(1, "n1", "st"), endpoint(1, "n1", "rs")];
        assert_eq!(endings(&service(true), twice, "a"), (vec![1], vec![1]));
    }
}
