//! The pods behind a service, and what both endpoint controllers ask about them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Namespace, ObjectReference, Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::HEADLESS;
use crate::core::pod::state;
use crate::reconciler::Trigger;
use crate::view::{Key, ObjectChange, ResourceName, View};

pub const SERVICES: ResourceName = ResourceName::new("", "services");
pub const PODS: ResourceName = ResourceName::new("", "pods");
/// Set by both controllers on services without a cluster IP, so that proxies can leave their endpoints out.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

type Labels = BTreeMap<String, String>;

/// The labels that pick the pods. None for services whose endpoints are somebody else's: without a selector, or mere aliases of a DNS name.
pub fn selector(spec: &ServiceSpec) -> Option<&Labels> {
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    spec.selector.as_ref().filter(|selector| !selector.is_empty())
}

fn selects(selector: &Labels, labels: Option<&Labels>) -> bool {
    selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// Every pod that the selector picks, in name order.
pub fn pods(view: &View, namespace: &str, selector: &Labels) -> Vec<Arc<Pod>> {
    let picked = view.records(&PODS, Some(namespace)).filter(|record| selects(selector, record.meta.labels.as_ref()));
    picked.filter_map(|record| record.typed::<Pod>()).collect()
}

/// The services that pick objects with these labels.
pub fn services_of(view: &View, namespace: &str, labels: Option<&Labels>) -> Vec<Key> {
    let services = view.list::<Service>(Some(namespace));
    let picking = services.filter(|service| service.spec.as_ref().and_then(selector).is_some_and(|selector| selects(selector, labels)));
    picking.map(|service| Key::new(namespace, service.metadata.name.as_deref().unwrap_or_default())).collect()
}

/// A pod's change concerns the services that picked it before or pick it now.
pub fn pod_trigger() -> Trigger {
    Trigger {
        resource: PODS,
        keys: |view, change: &ObjectChange| {
            let sides = [&change.old, &change.new].into_iter().flatten();
            let mut keys: Vec<Key> = sides.flat_map(|pod| services_of(view, &pod.key.namespace, pod.meta.labels.as_ref())).collect();
            keys.sort();
            keys.dedup();
            keys
        },
    }
}

/// Whether the pod is published at all: it has an address and has not ended. Pods being deleted are where `terminating_too`.
pub fn is_published(pod: &Pod, terminating_too: bool) -> bool {
    let status = pod.status.as_ref();
    let has_address = status.is_some_and(|status| {
        status.pod_ip.as_deref().is_some_and(|ip| !ip.is_empty()) || status.pod_ips.as_ref().is_some_and(|ips| !ips.is_empty())
    });
    let ended = matches!(state::phase(pod), "Succeeded" | "Failed");
    has_address && !ended && (terminating_too || pod.metadata.deletion_timestamp.is_none())
}

/// The pod's addresses that parse, in its own order.
pub fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let ips = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    ips.filter_map(|ip| ip.ip.parse().ok()).collect()
}

/// The number of the container port that a service port leads to. None when the pod has no port of that name and protocol.
pub fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let find = |container: &Container| {
        let ports = container.ports.iter().flatten();
        let mut named = ports.filter(|candidate| candidate.name.as_ref() == Some(name) && protocol(&candidate.protocol) == protocol(&port.protocol));
        named.next().map(|found| found.container_port)
    };
    spec.containers.iter().chain(sidecars).find_map(find)
}

fn protocol(given: &Option<String>) -> &str {
    given.as_deref().unwrap_or("TCP")
}

/// The pod's own DNS name under a headless service: only where the pod names the service as its subdomain.
pub fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_ref().filter(|hostname| !hostname.is_empty())?;
    let subdomain = spec.subdomain.as_deref() == service.metadata.name.as_deref();
    (subdomain && pod.metadata.namespace == service.metadata.namespace).then(|| hostname.clone())
}

pub fn node_name(pod: &Pod) -> Option<String> {
    Some(state::node(pod)).filter(|node| !node.is_empty()).map(str::to_owned)
}

pub fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

pub fn has_cluster_ip(spec: &ServiceSpec) -> bool {
    !matches!(spec.cluster_ip.as_deref(), None | Some("" | HEADLESS))
}

/// Nothing can be created in a namespace that is being deleted; trying would only fail again and again.
pub fn accepts_objects(view: &View, namespace: &str) -> bool {
    view.get::<Namespace>("", namespace).is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_none())
}
