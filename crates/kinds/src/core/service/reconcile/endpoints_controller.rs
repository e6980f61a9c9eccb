//! `endpoints-controller`: the pods behind a service in the older shape, one object of the service's own name.
//!
//! Endpoints of services without a selector are their users'. Endpoints without a service go when the service goes; those that were never
//! this controller's are otherwise left alone, since they may be there before their service.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service, ServiceSpec};
use serde_json::{Value, json};

use super::backends::{self, HEADLESS_LABEL, SERVICES};
use super::repack::{repack, truncate};
use super::trigger_time::{self, TriggerTimes};
use crate::core::pod::state;
use crate::plan::{DeleteOptions, EventNote, EventType, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::items;
use crate::view::{Key, ObjectChange, Record, ResourceName, View};

const ENDPOINTS: ResourceName = ResourceName::new("", "endpoints");
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
/// Locks of elections in the oldest style live in Endpoints without a service.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Addresses that one object may hold, so that it stays small enough to be sent around; slices have the rest. The annotation tells of a cut.
const MAX_ADDRESSES: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

pub struct EndpointsController;

impl Reconciler for EndpointsController {
    type Memory = TriggerTimes;

    fn name(&self) -> &'static str {
        "endpoints-controller"
    }

    fn service_account(&self) -> &'static str {
        MANAGER
    }

    fn triggers(&self) -> Vec<Trigger> {
        let endpoints = Trigger {
            resource: ENDPOINTS,
            keys: |_, change: &ObjectChange| {
                let mut sides = [&change.old, &change.new].into_iter().flatten();
                let ours = sides.any(|record| record.label(MANAGED_BY) == Some(MANAGER));
                if ours || change.new.is_none() { vec![change.reference.key.clone()] } else { Vec::new() }
            },
        };
        vec![Trigger::itself(SERVICES), backends::pod_trigger(), endpoints]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut TriggerTimes) -> Plan {
        let mut plan = Plan::default();
        let current = view.record(&ENDPOINTS, key);
        let Some(service) = view.get::<Service>(&key.namespace, &key.name) else {
            memory.forget(key);
            plan.operations.extend(current.filter(|record| !is_election(record) && !record.deleting()).map(|record| Operation::Delete {
                resource: ENDPOINTS,
                key: key.clone(),
                options: DeleteOptions { uid: record.meta.uid.clone(), ..DeleteOptions::default() },
            }));
            return plan;
        };
        let Some(spec) = &service.spec else { return plan };
        let Some(selector) = backends::selector(spec) else { return plan };
        let pods = backends::pods(view, &key.namespace, selector);
        let time = memory.observe(key, &service, &pods);
        let mut subsets = repack(&pods.iter().flat_map(|pod| subsets_of(pod, &service, spec)).collect::<Vec<_>>());
        let cut = truncate(&mut subsets, MAX_ADDRESSES);
        if let Some(failure) = cx.failure.filter(|failure| failure.resource == ENDPOINTS) {
            plan.events.push(failure_note(key, current.map_or("", |record| record.uid()), current.is_none(), &failure.message));
        }
        let labels = labels(&service, spec);
        let mut object = match current {
            Some(record) if is_right(record, &subsets, &labels, cut) => return plan,
            Some(record) => record.value(),
            None if !backends::accepts_objects(view, &key.namespace) => return Plan::default(),
            None => json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": &*key.name, "namespace": &*key.namespace}}),
        };
        object["subsets"] = json!(subsets);
        object["metadata"]["labels"] = json!(labels);
        annotate(&mut object, trigger_time::ANNOTATION, time);
        annotate(&mut object, OVER_CAPACITY, cut.then(|| "truncated".to_owned()));
        plan.operations.push(match current {
            Some(_) => Operation::Update { resource: ENDPOINTS, subresource: "", object },
            None => Operation::Create { resource: ENDPOINTS, namespace: key.namespace.to_string(), object },
        });
        plan
    }
}

fn is_election(record: &Record) -> bool {
    record.meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEADER))
}

/// Whether the stored object says all that it should, however it is laid out.
fn is_right(record: &Record, subsets: &[EndpointSubset], labels: &BTreeMap<String, String>, cut: bool) -> bool {
    let Some(stored) = record.typed::<Endpoints>() else { return false };
    let mut old = repack(items(&stored.subsets));
    for subset in &mut old {
        for address in subset.addresses.iter_mut().chain(subset.not_ready_addresses.iter_mut()).flatten() {
            // Which revision of the pod was seen is of no consequence.
            if let Some(target) = &mut address.target_ref {
                target.resource_version = None;
            }
        }
    }
    let annotated = stored.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(OVER_CAPACITY));
    old == subsets && stored.metadata.labels.as_ref() == Some(labels) && annotated == cut
}

/// The pod's address under each port that it has.
fn subsets_of(pod: &Pod, service: &Service, spec: &ServiceSpec) -> Vec<EndpointSubset> {
    let unready_too = spec.publish_not_ready_addresses == Some(true);
    if !backends::is_published(pod, unready_too) {
        return Vec::new();
    }
    let Some(address) = address(pod, service, spec) else { return Vec::new() };
    let ready = unready_too || state::is_ready(pod);
    let under = |ports: Option<Vec<EndpointPort>>| EndpointSubset {
        addresses: ready.then(|| vec![address.clone()]),
        not_ready_addresses: (!ready).then(|| vec![address.clone()]),
        ports,
    };
    let ports = items(&spec.ports);
    if ports.is_empty() {
        return if backends::has_cluster_ip(spec) { Vec::new() } else { vec![under(None)] };
    }
    let resolved = ports.iter().filter_map(|port| {
        Some(EndpointPort {
            name: port.name.clone().filter(|name| !name.is_empty()),
            port: backends::target_port(pod, port)?,
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    resolved.map(|port| under(Some(vec![port]))).collect()
}

/// Endpoints are of one family only: the service's first.
fn address(pod: &Pod, service: &Service, spec: &ServiceSpec) -> Option<EndpointAddress> {
    let wanted = match items(&spec.ip_families).first() {
        Some(family) => Some(family == "IPv6"),
        None => spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<std::net::IpAddr>().ok()).map(|ip| ip.is_ipv6()),
    };
    let ip = backends::addresses(pod).into_iter().find(|ip| wanted.is_none_or(|v6| ip.is_ipv6() == v6))?;
    Some(EndpointAddress {
        hostname: backends::hostname(pod, service),
        ip: ip.to_string(),
        node_name: backends::node_name(pod),
        target_ref: Some(backends::pod_reference(pod)),
    })
}

fn labels(service: &Service, spec: &ServiceSpec) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS_LABEL);
    if !backends::has_cluster_ip(spec) {
        labels.insert(HEADLESS_LABEL.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn annotate(object: &mut Value, name: &str, value: Option<String>) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let mut annotations = match metadata.remove("annotations") {
        Some(Value::Object(given)) => given,
        _ => serde_json::Map::new(),
    };
    match value {
        Some(value) => annotations.insert(name.to_owned(), Value::String(value)),
        None => annotations.remove(name),
    };
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
}

fn failure_note(key: &Key, uid: &str, creating: bool, why: &str) -> EventNote {
    let (reason, message) = if creating {
        ("FailedToCreateEndpoint", format!("Failed to create endpoint for service {key}: {why}"))
    } else {
        ("FailedToUpdateEndpoint", format!("Failed to update endpoint {key}: {why}"))
    };
    EventNote {
        api_version: "v1".into(),
        kind: "Endpoints".into(),
        key: key.clone(),
        uid: uid.to_owned(),
        kind_of_event: EventType::Warning,
        reason: reason.into(),
        message,
    }
}

#[cfg(test)]
mod tests;
