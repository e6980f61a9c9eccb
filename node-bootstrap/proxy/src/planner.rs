//! From changes of objects to changes of rules: pure, and by one service at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use wheelhouse_net::{Family, Patch, Ruleset};

use crate::claims::Claims;
use crate::facts::{NodeFacts, ServiceFacts, ServiceName, SliceFacts};
use crate::resolve::{ResolvedPort, resolve};
use crate::rules::{self, Frontends, PortId};

/// Knows every service and slice, and what rules follow. Two planners that know the same plan the same, in whatever order they learned it
/// (but for ids of ports whose names hash alike).
pub struct Planner {
    node: NodeFacts,
    /// Addresses that this node answers at itself: they get no rules, whatever service has them.
    own: BTreeSet<IpAddr>,
    services: BTreeMap<ServiceName, Known>,
    ids: BTreeSet<PortId>,
    dirty: BTreeSet<ServiceName>,
    claims: [Claims; 2],
}

/// One service with its slices; either may be known first.
#[derive(Default)]
struct Known {
    facts: Option<ServiceFacts>,
    slices: BTreeMap<String, SliceFacts>,
    planned: Option<Planned>,
}

/// What the rules in the claims were made from.
struct Planned {
    facts: ServiceFacts,
    ports: Vec<(PortId, ResolvedPort)>,
}

/// A flow that conntrack may still send to where nothing answers any more: UDP to `address` (none: any address of this node) and `port` that
/// is answered from `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaleFlow {
    pub address: Option<IpAddr>,
    pub port: u16,
    pub from: IpAddr,
}

/// What to do about the changes since the last commit.
pub struct Commit {
    /// For IPv4 and IPv6.
    pub patches: [Patch; 2],
    /// To be removed after the patches are in force.
    pub stale_flows: BTreeSet<StaleFlow>,
}

impl Planner {
    /// `pods` are the networks of all pods of the cluster, in CIDR notation.
    pub fn new(node: NodeFacts, pods: &[String], own: BTreeSet<IpAddr>) -> Self {
        let claims = Family::BOTH.map(|family| {
            let pods: Vec<String> = pods.iter().filter(|cidr| cidr.contains(':') == (family == Family::V6)).cloned().collect();
            Claims::new(family, rules::frame(family, &pods))
        });
        Self { node, own, services: BTreeMap::new(), ids: BTreeSet::new(), dirty: BTreeSet::new(), claims }
    }

    /// A changed zone changes what topology hints mean for every service.
    pub fn set_node(&mut self, node: NodeFacts) {
        if self.node != node {
            self.node = node;
            self.dirty.extend(self.services.keys().cloned());
        }
    }

    pub fn set_service(&mut self, name: ServiceName, facts: Option<ServiceFacts>) {
        let known = self.services.entry(name.clone()).or_default();
        if known.facts != facts {
            known.facts = facts;
            self.dirty.insert(name);
        } else if known.is_unused() {
            self.services.remove(&name);
        }
    }

    /// `slice` is the EndpointSlice's own name.
    pub fn set_slice(&mut self, service: ServiceName, slice: String, facts: Option<SliceFacts>) {
        let known = self.services.entry(service.clone()).or_default();
        if known.slices.get(&slice) == facts.as_ref() {
            return;
        }
        match facts {
            Some(facts) => known.slices.insert(slice, facts),
            None => known.slices.remove(&slice),
        };
        self.dirty.insert(service);
    }

    /// Forgets all services that are not in `listed`.
    pub fn retain_services(&mut self, listed: &BTreeSet<ServiceName>) {
        let gone: Vec<ServiceName> =
            self.services.iter().filter(|(name, known)| known.facts.is_some() && !listed.contains(name)).map(|(n, _)| n.clone()).collect();
        for name in gone {
            self.set_service(name, None);
        }
    }

    /// Forgets all slices that are not in `listed`, which holds services and names of slices.
    pub fn retain_slices(&mut self, listed: &BTreeSet<(ServiceName, String)>) {
        let known = self.services.iter().flat_map(|(name, known)| known.slices.keys().map(|slice| (name.clone(), slice.clone())));
        let gone: Vec<_> = known.filter(|pair| !listed.contains(pair)).collect();
        for (service, slice) in gone {
            self.set_slice(service, slice, None);
        }
    }

    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Plans what changed. The answer is to be carried out, or followed by a whole [`Planner::rulesets`].
    pub fn commit(&mut self) -> Commit {
        let mut stale_flows = BTreeSet::new();
        for name in std::mem::take(&mut self.dirty) {
            self.plan(&name, &mut stale_flows);
        }
        Commit { patches: self.claims.each_mut().map(Claims::take_patch), stale_flows }
    }

    fn plan(&mut self, name: &ServiceName, stale_flows: &mut BTreeSet<StaleFlow>) {
        let Some(known) = self.services.get_mut(name) else { return };
        let before = known.planned.take();
        let resolved = known.facts.as_ref().map(|facts| resolve(facts, known.slices.values(), &self.node)).unwrap_or_default();
        for (id, port) in before.iter().flat_map(|planned| &planned.ports) {
            let facts = &before.as_ref().expect("ports come from it").facts;
            claims(&mut self.claims, port.family).remove(name, rules::fragment(facts, port, *id, &self.own));
            self.ids.remove(id);
        }
        let mut ports = Vec::with_capacity(resolved.len());
        if let Some(facts) = &known.facts {
            for port in resolved {
                // Both families may share an id, but distinct ones are simpler, and there are four thousand million.
                let mut id = rules::preferred_id(facts, &port);
                while !self.ids.insert(id) {
                    id = id % (PortId::MAX - 1) + 1;
                }
                claims(&mut self.claims, port.family).add(name, rules::fragment(facts, &port, id, &self.own));
                ports.push((id, port));
            }
        }
        let planned = known.facts.clone().map(|facts| Planned { facts, ports });
        collect_stale(before.as_ref(), planned.as_ref(), &self.own, stale_flows);
        known.planned = planned;
        if known.is_unused() {
            self.services.remove(name);
        }
    }

    /// The whole tables, of what was committed.
    pub fn rulesets(&self) -> [Ruleset; 2] {
        self.claims.each_ref().map(Claims::ruleset)
    }

    /// Services with a health check port: the port, and how many endpoints this node has for it.
    pub fn health_checks(&self) -> BTreeMap<u16, (ServiceName, usize)> {
        let planned = self.services.iter().filter_map(|(name, known)| Some((name, known.planned.as_ref()?)));
        planned
            .filter(|(_, planned)| planned.facts.health_check_port != 0)
            .map(|(name, planned)| {
                let local = planned.ports.iter().map(|(_, port)| port.local.len()).max().unwrap_or(0);
                (planned.facts.health_check_port, (name.clone(), local))
            })
            .collect()
    }
}

impl Known {
    fn is_unused(&self) -> bool {
        self.facts.is_none() && self.slices.is_empty() && self.planned.is_none()
    }
}

fn claims(both: &mut [Claims; 2], family: Family) -> &mut Claims {
    match family {
        Family::V4 => &mut both[0],
        Family::V6 => &mut both[1],
    }
}

/// UDP has no connections that end: flows to endpoints that left, and flows that went nowhere before there was an endpoint, are ended here.
fn collect_stale(before: Option<&Planned>, after: Option<&Planned>, own: &BTreeSet<IpAddr>, out: &mut BTreeSet<StaleFlow>) {
    let answers = |planned: Option<&Planned>| {
        let mut answers: BTreeMap<(Option<IpAddr>, u16), BTreeSet<IpAddr>> = BTreeMap::new();
        if let Some(planned) = planned {
            for (_, port) in &planned.ports {
                for target in rules::flow_targets(port, &Frontends::of(&planned.facts, port, own)) {
                    answers.entry(target).or_default().extend(port.cluster.iter().chain(&port.local).map(|endpoint| endpoint.ip()));
                }
            }
        }
        answers
    };
    let (before, after) = (answers(before), answers(after));
    let none = BTreeSet::new();
    for ((address, port), old) in &before {
        let new = after.get(&(*address, *port)).unwrap_or(&none);
        out.extend(old.difference(new).map(|from| StaleFlow { address: *address, port: *port, from: *from }));
    }
    for ((address, port), new) in &after {
        let had = before.get(&(*address, *port)).is_some_and(|old| !old.is_empty());
        if let (false, false, Some(address)) = (had, new.is_empty(), address) {
            out.insert(StaleFlow { address: Some(*address), port: *port, from: *address });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::facts::{EndpointFacts, PortFacts, Protocol, SlicePort};

    /// Services 0 to 4, of which some share an external address, with their slices.
    #[derive(Clone, Debug)]
    enum Step {
        Service { number: u8, shape: u8 },
        NoService(u8),
        Slice { number: u8, slice: u8, endpoints: u8 },
        NoSlice { number: u8, slice: u8 },
        Commit,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..5u8, 0..32u8).prop_map(|(number, shape)| Step::Service { number, shape }),
            (0..5u8).prop_map(Step::NoService),
            (0..5u8, 0..2u8, 0..16u8).prop_map(|(number, slice, endpoints)| Step::Slice { number, slice, endpoints }),
            (0..5u8, 0..2u8).prop_map(|(number, slice)| Step::NoSlice { number, slice }),
            Just(Step::Commit),
        ]
    }

    fn name(number: u8) -> ServiceName {
        ServiceName { namespace: "d".into(), name: format!("s{number}") }
    }

    fn service(number: u8, shape: u8) -> ServiceFacts {
        let has = |bit: u8| shape & bit != 0;
        ServiceFacts {
            name: name(number),
            ports: vec![PortFacts {
                name: "p".into(),
                protocol: Protocol::Udp,
                port: 80,
                node_port: if has(1) { 30_000 + u16::from(number) } else { 0 },
            }],
            cluster_ips: vec![IpAddr::from([10, 96, 0, number + 1])],
            external_ips: if has(2) { vec![IpAddr::from([192, 0, 2, 1])] } else { vec![] },
            load_balancer_ips: vec![],
            source_ranges: vec![],
            affinity: has(4).then_some(60),
            internal_local: has(8),
            external_local: has(16),
            health_check_port: 0,
        }
    }

    fn slice(number: u8, endpoints: u8) -> SliceFacts {
        let endpoint = |bit: u8| EndpointFacts {
            // Services share pods, which then are claimed by several.
            address: IpAddr::from([10, 244, number / 2, bit + 1]),
            node: Some(if bit.is_multiple_of(2) { "n1".into() } else { "n2".into() }),
            is_ready: true,
            is_serving: true,
            is_terminating: false,
            zone_hints: BTreeSet::new(),
            node_hints: BTreeSet::new(),
        };
        SliceFacts {
            ports: vec![SlicePort { name: "p".into(), protocol: Protocol::Udp, port: 8080 }],
            endpoints: (0..4).filter(|bit| endpoints & (1 << bit) != 0).map(endpoint).collect(),
        }
    }

    fn planner() -> Planner {
        Planner::new(NodeFacts { name: "n1".into(), zone: None }, &["10.244.0.0/16".to_owned()], BTreeSet::new())
    }

    proptest! {
        /// However services came to be what they are: the tables are those that a fresh start would write, and a patch is empty exactly when they stay.
        #[test]
        fn changes_lead_where_a_fresh_start_leads(steps in prop::collection::vec(step(), 1..40)) {
            let mut changing = planner();
            let mut services: BTreeMap<u8, ServiceFacts> = BTreeMap::new();
            let mut slices: BTreeMap<(u8, u8), SliceFacts> = BTreeMap::new();
            let mut last = changing.rulesets();
            for step in steps.into_iter().chain([Step::Commit]) {
                match step {
                    Step::Service { number, shape } => {
                        services.insert(number, service(number, shape));
                        changing.set_service(name(number), Some(service(number, shape)));
                    }
                    Step::NoService(number) => {
                        services.remove(&number);
                        changing.set_service(name(number), None);
                    }
                    Step::Slice { number, slice: which, endpoints } => {
                        slices.insert((number, which), slice(number, endpoints));
                        changing.set_slice(name(number), which.to_string(), Some(slice(number, endpoints)));
                    }
                    Step::NoSlice { number, slice: which } => {
                        slices.remove(&(number, which));
                        changing.set_slice(name(number), which.to_string(), None);
                    }
                    Step::Commit => {
                        let commit = changing.commit();
                        let now = changing.rulesets();
                        for ((patch, now), last) in commit.patches.iter().zip(&now).zip(&last) {
                            prop_assert_eq!(patch.render(), now.diff(last).render());
                        }
                        last = now;
                    }
                }
            }
            let mut fresh = planner();
            for (number, facts) in services {
                fresh.set_service(name(number), Some(facts));
            }
            for ((number, which), facts) in slices {
                fresh.set_slice(name(number), which.to_string(), Some(facts));
            }
            fresh.commit();
            prop_assert_eq!(fresh.rulesets(), changing.rulesets());
        }
    }
}
