//! Addresses and ports of Services.
//!
//! Each allocation is a key of its own below `/registry/ranges/`, compared and written in the Service's transaction: two Services cannot hold
//! one address, and none leaks. A free one is picked at random, as upstream does: first from the upper part of the range, since the lower
//! part is where people choose fixed ones (KEP-3070, KEP-3668), then from the lower.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use bytes::Bytes;
use serde_json::{Value, json};
use wheelhouse_meta::Status;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};
use wheelhouse_meta::gvk::GroupKind;
use wheelhouse_meta::object::Object;
use wheelhouse_mvcc::{Compare, CompareTarget, Comparison, DeleteRange, KeyRange, Op, Put, Snapshot};

use super::service_network::ServiceNetwork;
use super::write::Also;
use crate::request::Answer;
use crate::resource::Resource;

const ADDRESSES: &str = "/registry/ranges/serviceips/";
const PORTS: &str = "/registry/ranges/servicenodeports/";

/// The first node port that a dry run shows: one that nobody can have.
const DRY_RUN_PORT: u64 = 32_769;

/// Random picks before the range is walked in order. A range that is half full needs two.
const RANDOM_PICKS: u32 = 64;

/// Where an allocation looks, and how it chooses.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    pub network: &'a ServiceNetwork,
    pub snapshot: &'a Snapshot,
    pub seed: u64,
    /// Upstream allocates no ports in a dry run, so it does not miss them either.
    pub dry_run: bool,
}

/// Fills in what the Service needs and says what must hold and be written with it. `old` is what an update replaces.
pub fn allocate(choice: Choice<'_>, service: &mut Value, old: Option<&Value>) -> Answer<Also> {
    if let Some(old) = old {
        keep_allocated(service, old);
    }
    let held = old.map(claims).unwrap_or_default();
    let mut allocator = Allocator { choice, held: &held, taken: BTreeSet::new(), random: choice.seed };
    let mut errors = ErrorList::new();
    allocator.addresses(service, &mut errors);
    if errors.is_empty() {
        allocator.ports(service, &mut errors);
    }
    if !errors.is_empty() {
        return Err(Status::invalid(&GroupKind::new("", "Service"), service.name(), &errors).into());
    }
    let wanted = claims(service);
    let owner = Bytes::from(format!("{{\"service\":\"{}/{}\"}}", service.namespace(), service.name()));
    let mut also = Also::default();
    for key in wanted.difference(&held) {
        also.compare.push(Compare { range: KeyRange::key(key.clone()), comparison: Comparison::Equal, target: CompareTarget::ModRevision(0) });
        also.operations.push(Op::Put(Put {
            key: key.clone().into(),
            value: owner.clone(),
            lease: 0,
            prev_kv: false,
            ignore_value: false,
            ignore_lease: false,
        }));
    }
    also.operations.extend(held.difference(&wanted).map(|key| free(key)));
    Ok(also)
}

/// What a removed Service gives back.
pub fn release(resource: &Resource, old: &Value) -> Also {
    if !resource.is("", "services") {
        return Also::default();
    }
    Also { compare: Vec::new(), operations: claims(old).iter().map(|key| free(key)).collect() }
}

fn free(key: &str) -> Op {
    Op::Delete(DeleteRange { range: KeyRange::key(key.to_owned()), prev_kv: false })
}

/// The allocation keys that a Service holds.
fn claims(service: &Value) -> BTreeSet<String> {
    let spec = &service["spec"];
    let mut keys = BTreeSet::new();
    for address in spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if address.parse::<Ipv4Addr>().is_ok() {
            keys.insert(format!("{ADDRESSES}{address}"));
        }
    }
    let node_ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    for port in node_ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_u64).filter(|port| *port > 0) {
        keys.insert(format!("{PORTS}{port}"));
    }
    keys
}

fn kind_of(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

fn needs_node_ports(service: &Value) -> bool {
    match kind_of(service) {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true),
        _ => false,
    }
}

fn needs_health_port(service: &Value) -> bool {
    kind_of(service) == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

/// A cluster has one family, IPv4.
fn check_families(spec: &Value, errors: &mut ErrorList) {
    let root = Path::new("spec");
    let families = root.child("ipFamilies");
    for (at, family) in spec["ipFamilies"].as_array().into_iter().flatten().enumerate() {
        if family == "IPv6" {
            errors.push(FieldError::invalid(&families.index(at), "IPv6", "not configured on this cluster"));
        }
    }
    if spec["ipFamilyPolicy"] == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(&root.child("ipFamilyPolicy"), "RequireDualStack", why));
    }
}

/// What an update leaves out although it had it and still needs it.
fn keep_allocated(service: &mut Value, old: &Value) {
    let cluster = |service: &Value| kind_of(service) != "ExternalName";
    if cluster(service) && cluster(old) && service["spec"]["clusterIP"].as_str().unwrap_or("").is_empty() {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(value) = old["spec"].get(field) {
                service["spec"][field] = value.clone();
            }
        }
    }
    if needs_node_ports(service) && needs_node_ports(old) {
        let same = |a: &Value, b: &Value| a["port"] == b["port"] && a["protocol"] == b["protocol"];
        let before: Vec<Value> = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
        for port in service["spec"]["ports"].as_array_mut().into_iter().flatten() {
            let unset = port["nodePort"].as_u64().unwrap_or(0) == 0;
            if let (true, Some(known)) = (unset, before.iter().find(|b| same(b, port)).and_then(|b| b["nodePort"].as_u64())) {
                port["nodePort"] = known.into();
            }
        }
    }
    if needs_health_port(service) && needs_health_port(old) && service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0) == 0 {
        service["spec"]["healthCheckNodePort"] = old["spec"]["healthCheckNodePort"].clone();
    }
}

struct Allocator<'a> {
    choice: Choice<'a>,
    /// What the Service holds already.
    held: &'a BTreeSet<String>,
    /// What this request took so far.
    taken: BTreeSet<String>,
    random: u64,
}

impl Allocator<'_> {
    fn addresses(&mut self, service: &mut Value, errors: &mut ErrorList) {
        if kind_of(service) == "ExternalName" {
            return;
        }
        check_families(&service["spec"], errors);
        if !errors.is_empty() {
            return;
        }
        let asked =
            service["spec"]["clusterIPs"].get(0).or_else(|| service["spec"].get("clusterIP")).and_then(Value::as_str).unwrap_or("").to_owned();
        let address = match asked.as_str() {
            "None" => Some("None".to_owned()),
            "" => self.pick_address(errors),
            text => self.claim_address(text, errors),
        };
        let Some(address) = address else { return };
        let spec = &mut service["spec"];
        spec["clusterIPs"] = json!([address]);
        spec["clusterIP"] = address.into();
        if spec.get("ipFamilies").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec["ipFamilies"] = json!(["IPv4"]);
        }
        if spec.get("ipFamilyPolicy").is_none_or(Value::is_null) {
            spec["ipFamilyPolicy"] = json!("SingleStack");
        }
    }

    fn claim_address(&mut self, text: &str, errors: &mut ErrorList) -> Option<String> {
        let spec = Path::new("spec");
        let path = spec.child("clusterIPs");
        let mut refuse = |why: String| errors.push(FieldError::invalid(&path, json!([text]), format!("failed to allocate IP {text}: {why}")));
        let key = format!("{ADDRESSES}{text}");
        if self.held.contains(&key) {
            return Some(text.to_owned());
        }
        let address = text.parse::<Ipv4Addr>().ok();
        if address.is_some_and(|address| self.choice.network.is_edge(address)) {
            refuse("the provided network does not match the current range".into());
            return None;
        }
        if !address.is_some_and(|address| self.choice.network.contains(address)) {
            let range = format!("{}/{}", self.choice.network.base, self.choice.network.prefix);
            refuse(format!("the provided IP ({text}) is not in the valid range. The range of valid IPs is {range}"));
            return None;
        }
        if !self.is_free(&key) {
            refuse("provided IP is already allocated".into());
            return None;
        }
        self.taken.insert(key);
        Some(text.to_owned())
    }

    fn pick_address(&mut self, errors: &mut ErrorList) -> Option<String> {
        // Nothing is searched for in a dry run; the answer shows the network's own address.
        if self.choice.dry_run {
            return Some(self.choice.network.base.to_string());
        }
        let (hosts, reserved) = (self.choice.network.hosts(), self.choice.network.reserved_addresses());
        let network = self.choice.network;
        let found = self.pick(1, hosts, reserved, |number| format!("{ADDRESSES}{}", network.address(number)));
        let Some(number) = found else {
            let why = "failed to allocate a serviceIP: range is full";
            errors.push(FieldError::internal(&Path::new("spec").child("clusterIPs"), why));
            return None;
        };
        Some(self.choice.network.address(number).to_string())
    }

    fn ports(&mut self, service: &mut Value, errors: &mut ErrorList) {
        let spec = Path::new("spec");
        let ports = spec.child("ports");
        if needs_node_ports(service) {
            let mut by_number: BTreeSet<u64> = BTreeSet::new();
            // A port that several protocols use has one node port.
            let mut by_port: BTreeMap<u64, u64> = BTreeMap::new();
            let asked_for: Vec<(u64, u64)> = service["spec"]["ports"].as_array().into_iter().flatten().map(numbers).collect();
            for (at, (port, asked)) in asked_for.iter().copied().enumerate() {
                let item = ports.index(at);
                let path = item.child("nodePort");
                if asked != 0 && !by_number.contains(&asked) {
                    self.claim_port(asked, &path, "", errors);
                }
                let shared = by_port.get(&port).copied().or_else(|| asked_for.iter().find(|(p, n)| *p == port && *n != 0).map(|(_, n)| *n));
                let number = if asked != 0 { Some(asked) } else { shared.or_else(|| self.pick_port(&path, errors)) };
                // The first complaint is the only one, as upstream's allocator gives up there.
                if !errors.is_empty() {
                    return;
                }
                if let Some(number) = number {
                    by_number.insert(number);
                    by_port.entry(port).or_insert(number);
                    service["spec"]["ports"][at]["nodePort"] = number.into();
                }
            }
        }
        if needs_health_port(service) {
            let path = spec.child("healthCheckNodePort");
            let asked = service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0);
            if asked != 0 {
                let prefix = format!("failed to allocate requested HealthCheck NodePort {asked}: ");
                self.claim_port(asked, &path, &prefix, errors);
            } else if let Some(number) = self.pick_port(&path, errors) {
                service["spec"]["healthCheckNodePort"] = number.into();
            }
        }
    }

    fn claim_port(&mut self, port: u64, path: &Path<'_>, prefix: &str, errors: &mut ErrorList) {
        let key = format!("{PORTS}{port}");
        if self.held.contains(&key) || self.choice.dry_run {
            return;
        }
        let (first, last) = (self.choice.network.first_node_port, self.choice.network.last_node_port);
        if !(u64::from(first)..=u64::from(last)).contains(&port) {
            let why = format!("{prefix}provided port is not in the valid range. The range of valid ports is {first}-{last}");
            errors.push(FieldError::invalid(path, json!(port), why));
        } else if self.is_free(&key) {
            self.taken.insert(key);
        } else {
            errors.push(FieldError::invalid(path, json!(port), format!("{prefix}provided port is already allocated")));
        }
    }

    fn pick_port(&mut self, path: &Path<'_>, errors: &mut ErrorList) -> Option<u64> {
        if self.choice.dry_run {
            let port = (DRY_RUN_PORT..).find(|port| self.taken.insert(format!("{PORTS}{port}")));
            return port;
        }
        let first = u32::from(self.choice.network.first_node_port);
        let (count, reserved) = (self.choice.network.ports(), self.choice.network.reserved_ports());
        let found = self.pick(first, first + count - 1, reserved, |number| format!("{PORTS}{number}"));
        if found.is_none() {
            errors.push(FieldError::internal(path, "failed to allocate a nodePort: range is full"));
        }
        found.map(u64::from)
    }

    /// A free number in `first..=last`, the first `reserved` of them last.
    fn pick(&mut self, first: u32, last: u32, reserved: u32, key_of: impl Fn(u32) -> String) -> Option<u32> {
        let upper = first + reserved;
        for (from, to) in [(upper, last), (first, upper.saturating_sub(1))] {
            if from > to {
                continue;
            }
            let span = u64::from(to - from) + 1;
            for _ in 0..RANDOM_PICKS {
                let number = from + u32::try_from(self.next_random() % span).unwrap_or(0);
                if self.take(&key_of(number)) {
                    return Some(number);
                }
            }
            if let Some(number) = (from..=to).find(|number| self.take(&key_of(*number))) {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, key: &str) -> bool {
        let free = self.is_free(key) && !self.held.contains(key);
        if free {
            self.taken.insert(key.to_owned());
        }
        free
    }

    fn is_free(&self, key: &str) -> bool {
        !self.taken.contains(key) && self.choice.snapshot.get(key.as_bytes()).is_none()
    }

    /// SplitMix64: the request's seed makes a retry choose anew only where it must.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A port's number and its node port; 0 where there is none.
fn numbers(port: &Value) -> (u64, u64) {
    let number = |field: &str| port[field].as_u64().unwrap_or(0);
    (number("port"), number("nodePort"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice<'a>(network: &'a ServiceNetwork, snapshot: &'a Snapshot, seed: u64) -> Choice<'a> {
        Choice { network, snapshot, seed, dry_run: false }
    }

    fn service(kind: &str) -> Value {
        json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"type": kind, "ports": [{"port": 80, "protocol": "TCP"}]}})
    }

    #[test]
    fn addresses_and_ports_come_from_the_upper_parts() {
        let network = ServiceNetwork::default();
        for seed in 0..50 {
            let mut object = service("NodePort");
            let also = allocate(choice(&network, &Snapshot::default(), seed), &mut object, None).unwrap();
            let address: Ipv4Addr = object["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
            assert!(network.contains(address) && address >= Ipv4Addr::new(10, 96, 1, 1), "{address}");
            let port = object["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
            assert!((30_086..=32_767).contains(&port), "{port}");
            assert_eq!((also.compare.len(), also.operations.len()), (2, 2));
        }
    }

    #[test]
    fn an_update_keeps_and_frees() {
        let network = ServiceNetwork::default();
        let mut old = service("NodePort");
        allocate(choice(&network, &Snapshot::default(), 1), &mut old, None).unwrap();
        let mut same = service("NodePort");
        let also = allocate(choice(&network, &Snapshot::default(), 2), &mut same, Some(&old)).unwrap();
        assert_eq!(same["spec"], old["spec"]);
        assert!(also.compare.is_empty() && also.operations.is_empty());
        let mut external = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"type": "ExternalName", "externalName": "a.b"}});
        let also = allocate(choice(&network, &Snapshot::default(), 3), &mut external, Some(&old)).unwrap();
        assert_eq!(also.operations.len(), 2);
    }

    #[test]
    fn foreign_addresses_are_refused() {
        let network = ServiceNetwork::default();
        for (address, why) in [
            ("10.97.0.1", "is not in the valid range. The range of valid IPs is 10.96.0.0/16"),
            ("10.96.0.0", "the provided network does not match the current range"),
        ] {
            let mut object = service("ClusterIP");
            object["spec"]["clusterIP"] = address.into();
            let Err(error) = allocate(choice(&network, &Snapshot::default(), 1), &mut object, None) else { panic!("{address} was allocated") };
            assert!(error.message.contains(why), "{}", error.message);
        }
    }
}
