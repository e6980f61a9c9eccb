//! `endpointslice-controller`: the pods behind a service, in slices per address family and set of ports.
//!
//! Hints follow `spec.trafficDistribution`. Those of the annotation `service.kubernetes.io/topology-mode: Auto` are not given: upstream
//! also withholds them whenever it knows too little of the zones, and proxies then use every endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone};
use serde_json::{Value, json};

use super::backends::{self, HEADLESS_LABEL, SERVICES};
use super::slice_packing::{Identity, Packing, identity, pack};
use super::slices::{self, MANAGED_BY, PortsKey, SERVICE_NAME, SLICES, deletion, family_of, ports_key};
use super::trigger_time::{self, TriggerTimes};
use crate::core::pod::state;
use crate::owned::controller_reference;
use crate::plan::{Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::{items, text};
use crate::view::{Key, ObjectChange, ResourceName, View};

const NODES: ResourceName = ResourceName::new("", "nodes");
const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Either annotation hands the hints to the topology-aware rules; the first is the older and counts for more.
const TOPOLOGY_MODES: [&str; 2] = ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

pub struct EndpointSliceController;

/// What one set of ports should lead to.
struct Group {
    ports: Vec<EndpointPort>,
    endpoints: BTreeMap<Identity, Endpoint>,
}

impl Reconciler for EndpointSliceController {
    type Memory = TriggerTimes;

    fn name(&self) -> &'static str {
        "endpointslice-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let managed = Trigger { resource: SLICES, keys: |_, change: &ObjectChange| slices::services_named(change, MANAGER) };
        // Endpoints carry their node's zone, and pods of a node that is not there are left out.
        let nodes = Trigger {
            resource: NODES,
            keys: |view, change: &ObjectChange| {
                let zone = |side: &Option<Arc<crate::view::Record>>| side.as_ref().map(|node| node.label(ZONE).unwrap_or_default().to_owned());
                if zone(&change.old) == zone(&change.new) {
                    return Vec::new();
                }
                let pods = view.pods_on_node(&change.reference.key.name);
                let services = pods.flat_map(|pod| {
                    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                    backends::services_of(view, namespace, pod.metadata.labels.as_ref())
                });
                services.collect::<BTreeSet<_>>().into_iter().collect()
            },
        };
        vec![Trigger::itself(SERVICES), backends::pod_trigger(), managed, nodes]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, memory: &mut TriggerTimes) -> Plan {
        let mut plan = Plan::default();
        // The slices of a service that is gone are the garbage collector's: it is their owner.
        let Some(service) = view.get::<Service>(&key.namespace, &key.name) else {
            memory.forget(key);
            return plan;
        };
        let Some(spec) = &service.spec else { return plan };
        let Some(selector) = backends::selector(spec) else { return plan };
        let pods = backends::pods(view, &key.namespace, selector);
        let cx = Sync { service: &service, spec, labels: labels(&service, spec), time: memory.observe(key, &service, &pods), view };
        let (ours, others) = cx.existing();
        // Left over from an earlier service of this name.
        plan.operations = others.iter().map(|slice| deletion(slice)).collect();
        let families = families(spec);
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut creations = Vec::new();
        for family in ["IPv4", "IPv6"] {
            let slices: Vec<Arc<EndpointSlice>> = ours.iter().filter(|slice| slice.address_type == family).cloned().collect();
            if families.contains(family) {
                cx.family(family, &slices, &pods, &mut names, &mut creations, &mut plan);
            } else {
                plan.operations.extend(slices.iter().map(|slice| deletion(slice)));
            }
        }
        if service.metadata.deletion_timestamp.is_none() && backends::accepts_objects(view, &key.namespace) {
            plan.operations.splice(0..0, creations);
        }
        plan
    }
}

/// One service at one moment.
struct Sync<'a> {
    service: &'a Service,
    spec: &'a ServiceSpec,
    labels: BTreeMap<String, String>,
    time: Option<String>,
    view: &'a View,
}

impl Sync<'_> {
    fn namespace(&self) -> &str {
        self.service.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The service's slices that this controller manages, and those that carry its name but belong to another object.
    fn existing(&self) -> (Vec<Arc<EndpointSlice>>, Vec<Arc<EndpointSlice>>) {
        let uid = self.service.metadata.uid.as_deref().unwrap_or_default();
        let managed = slices::managed(self.view, self.namespace(), text(&self.service.metadata.name), MANAGER);
        managed.partition(|slice| items(&slice.metadata.owner_references).iter().any(|owner| owner.uid == uid && owner.kind == "Service"))
    }

    fn family(
        &self,
        family: &str,
        existing: &[Arc<EndpointSlice>],
        pods: &[Arc<Pod>],
        names: &mut BTreeSet<String>,
        creations: &mut Vec<Operation>,
        plan: &mut Plan,
    ) {
        let mut groups = self.groups(family, pods);
        let mut by_ports: BTreeMap<PortsKey, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in existing {
            by_ports.entry(ports_key(items(&slice.ports))).or_default().push(slice.clone());
        }
        let mut packing = Packing::default();
        let mut create: Vec<(Vec<EndpointPort>, Vec<Endpoint>)> = Vec::new();
        for (ports, slices) in by_ports {
            match groups.remove(&ports) {
                Some(group) => {
                    let packed = pack(&slices, group.endpoints, |slice| slice.metadata.labels.as_ref() == Some(&self.labels));
                    create.extend(packed.create.into_iter().map(|endpoints| (group.ports.clone(), endpoints)));
                    packing.update.extend(packed.update);
                    packing.delete.extend(packed.delete);
                }
                None => packing.delete.extend(slices),
            }
        }
        for group in groups.into_values() {
            let packed = pack(&[], group.endpoints, |_| true);
            create.extend(packed.create.into_iter().map(|endpoints| (group.ports.clone(), endpoints)));
        }
        // A service always has a slice, so that a proxy can tell "no endpoints" from "not looked at yet".
        if create.is_empty() && packing.delete.len() == existing.len() {
            if packing.delete.len() == 1 && self.is_placeholder(&packing.delete[0]) {
                packing.delete.clear();
            } else {
                create.push((Vec::new(), Vec::new()));
            }
        }
        for (slice, endpoints) in packing.update {
            plan.operations.push(self.update(&slice, &endpoints, None));
        }
        // A slice that would go becomes one that would come: one write instead of two.
        let mut surplus = packing.delete.into_iter();
        for (ports, endpoints) in create {
            match surplus.next() {
                Some(slice) => plan.operations.push(self.update(&slice, &endpoints, Some(&ports))),
                None => creations.push(self.create(family, &ports, &endpoints, names)),
            }
        }
        plan.operations.extend(surplus.map(|slice| deletion(&slice)));
    }

    fn groups(&self, family: &str, pods: &[Arc<Pod>]) -> BTreeMap<PortsKey, Group> {
        let mut groups: BTreeMap<PortsKey, Group> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| backends::is_published(pod, true)) {
            let node = Some(state::node(pod)).filter(|node| !node.is_empty());
            let known = node.and_then(|node| self.view.get::<Node>("", node));
            let unreserved = self.spec.publish_not_ready_addresses == Some(true);
            if node.is_some() && known.is_none() && !unreserved {
                continue;
            }
            let Some(endpoint) = self.endpoint(family, pod, known.as_deref()) else { continue };
            let ports = self.ports(pod);
            let group = groups.entry(ports_key(&ports)).or_insert_with(|| Group { ports, endpoints: BTreeMap::new() });
            group.endpoints.insert(identity(&endpoint), endpoint);
        }
        groups
    }

    fn ports(&self, pod: &Pod) -> Vec<EndpointPort> {
        let resolved = items(&self.spec.ports).iter().filter_map(|port| {
            Some(EndpointPort {
                name: Some(text(&port.name).to_owned()),
                port: Some(backends::target_port(pod, port)?),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
                app_protocol: port.app_protocol.clone(),
            })
        });
        resolved.collect()
    }

    fn endpoint(&self, family: &str, pod: &Pod, node: Option<&Node>) -> Option<Endpoint> {
        let of_family = backends::addresses(pod).into_iter().filter(|ip| family_of(ip) == family);
        let addresses: Vec<String> = of_family.map(|ip| ip.to_string()).collect();
        if addresses.is_empty() {
            return None;
        }
        let serving = state::is_ready(pod);
        let terminating = pod.metadata.deletion_timestamp.is_some();
        let ready = self.spec.publish_not_ready_addresses == Some(true) || (serving && !terminating);
        let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE).filter(|zone| !zone.is_empty()).cloned());
        let node_name = backends::node_name(pod);
        Some(Endpoint {
            addresses,
            conditions: Some(EndpointConditions { ready: Some(ready), serving: Some(serving), terminating: Some(terminating) }),
            hints: if ready { self.hints(zone.as_deref(), node_name.as_deref()) } else { None },
            hostname: backends::hostname(pod, self.service),
            node_name,
            target_ref: Some(backends::pod_reference(pod)),
            zone,
            ..Endpoint::default()
        })
    }

    fn hints(&self, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
        let annotations = self.service.metadata.annotations.as_ref();
        let mode = TOPOLOGY_MODES.iter().find_map(|name| annotations?.get(*name));
        if mode.is_some_and(|mode| mode == "Auto" || mode == "auto") {
            return None;
        }
        let (by_zone, by_node) = match self.spec.traffic_distribution.as_deref() {
            Some("PreferClose" | "PreferSameZone") => (true, false),
            Some("PreferSameNode") => (true, true),
            _ => (false, false),
        };
        let for_zones = zone.filter(|_| by_zone).map(|name| vec![ForZone { name: name.to_owned() }]);
        let for_nodes = node.filter(|_| by_node).map(|name| vec![ForNode { name: name.to_owned() }]);
        (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_zones, for_nodes })
    }

    fn is_placeholder(&self, slice: &EndpointSlice) -> bool {
        items(&slice.endpoints).is_empty() && items(&slice.ports).is_empty() && slice.metadata.labels.as_ref() == Some(&self.labels)
    }

    fn create(&self, family: &str, ports: &[EndpointPort], endpoints: &[Endpoint], names: &mut BTreeSet<String>) -> Operation {
        let meta = &self.service.metadata;
        let base = format!("{}-", text(&meta.name));
        let name = slices::free_name(self.view, self.namespace(), &base, &[text(&meta.uid), family], names);
        let mut object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": name, "generateName": base, "namespace": meta.namespace, "labels": self.labels,
                "ownerReferences": [controller_reference("v1", "Service", meta)],
            },
            "addressType": family, "ports": ports, "endpoints": endpoints,
        });
        if let Some(time) = &self.time {
            object["metadata"]["annotations"] = json!({trigger_time::ANNOTATION: time});
        }
        Operation::Create { resource: SLICES, namespace: self.namespace().to_owned(), object }
    }

    fn update(&self, slice: &EndpointSlice, endpoints: &[Endpoint], ports: Option<&[EndpointPort]>) -> Operation {
        let mut object = serde_json::to_value(slice).expect("a slice is plain data");
        object["endpoints"] = json!(endpoints);
        if let Some(ports) = ports {
            object["ports"] = json!(ports);
        }
        object["metadata"]["labels"] = json!(self.labels);
        let mut annotations = slice.metadata.annotations.clone().unwrap_or_default();
        match &self.time {
            Some(time) => annotations.insert(trigger_time::ANNOTATION.to_owned(), time.clone()),
            None => annotations.remove(trigger_time::ANNOTATION),
        };
        object["metadata"]["annotations"] = if annotations.is_empty() { Value::Null } else { json!(annotations) };
        Operation::Update { resource: SLICES, subresource: "", object }
    }
}

/// The service's labels, and the reserved ones over them.
fn labels(service: &Service, spec: &ServiceSpec) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS_LABEL);
    if !backends::has_cluster_ip(spec) {
        labels.insert(HEADLESS_LABEL.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), text(&service.metadata.name).to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// The address types to publish. A service stored without families is read by its cluster IP, or as both if it is headless.
fn families(spec: &ServiceSpec) -> BTreeSet<&str> {
    let given: BTreeSet<&str> = items(&spec.ip_families).iter().map(String::as_str).collect();
    if !given.is_empty() {
        return given;
    }
    match spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()) {
        Some(ip) => BTreeSet::from([family_of(&ip)]),
        None => BTreeSet::from(["IPv4", "IPv6"]),
    }
}

#[cfg(test)]
mod tests;
