//! A pod as the scheduler reads it: everything that a cycle asks for, parsed once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Toleration, TopologySpreadConstraint};
use wheelhouse_base::{Revision, Timestamp};
use wheelhouse_kinds::core::pod::state;
use wheelhouse_kinds::owned;
use wheelhouse_kinds::time::timestamp;
use wheelhouse_kinds::view::Key;
use wheelhouse_meta::selector::{LabelSelector, Operator, Requirement};

use crate::resources::{Resources, pod_requests};
use crate::terms::{NodeTerm, PodMatcher, PodTerm, RequiredNodes};

/// The scheduler that pods get when they name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A port of the node that a pod wants for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub protocol: String,
    /// `0.0.0.0` stands for all addresses.
    pub ip: String,
    pub port: i32,
}

impl HostPort {
    pub fn conflicts(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        self.port == other.port && self.protocol == other.protocol && (self.ip == other.ip || self.ip == ANY || other.ip == ANY)
    }
}

/// A topology spread constraint with its selector resolved.
#[derive(Clone, Debug)]
pub struct Spread {
    pub term: Arc<PodTerm>,
    pub matcher: Arc<PodMatcher>,
    pub max_skew: i64,
    pub min_domains: usize,
    /// Whether nodes that the pod's node affinity excludes are left out of the count.
    pub honor_affinity: bool,
    /// Whether nodes whose taints the pod does not tolerate are left out of the count.
    pub honor_taints: bool,
}

impl Spread {
    pub fn new(namespace: &str, topology_key: &str, selector: LabelSelector, max_skew: i32) -> Self {
        let term = PodTerm::new(BTreeSet::from([namespace.to_owned()]), LabelSelector::nothing(), selector, topology_key);
        let matcher = Arc::new(PodMatcher::new(std::slice::from_ref(&term), false));
        Self { term, matcher, max_skew: i64::from(max_skew), min_domains: 1, honor_affinity: true, honor_taints: false }
    }
}

#[derive(Debug)]
pub struct PodInfo {
    pub key: Key,
    pub uid: String,
    pub revision: Revision,
    pub pod: Arc<Pod>,
    pub priority: i32,
    pub requests: Resources,
    /// CPU in thousandths and memory in bytes with defaults for containers that ask for nothing; nodes are scored by it.
    pub scored_requests: (i64, i64),
    pub host_ports: Vec<HostPort>,
    /// Names of images with their tag, of all containers and image volumes.
    pub images: Vec<String>,
    pub containers: usize,
    pub nodes: RequiredNodes,
    pub preferred_nodes: Vec<(i64, NodeTerm)>,
    pub affinity: Vec<Arc<PodTerm>>,
    pub anti_affinity: Vec<Arc<PodTerm>>,
    /// Matches what all of `affinity` match.
    pub affinity_matcher: Option<Arc<PodMatcher>>,
    pub anti_affinity_matchers: Vec<Arc<PodMatcher>>,
    /// Preferred terms; a negative weight is an anti-affinity's.
    pub preferred_pods: Vec<(i64, Arc<PodTerm>, Arc<PodMatcher>)>,
    pub hard_spread: Vec<Spread>,
    pub soft_spread: Vec<Spread>,
}

impl PodInfo {
    pub fn parse(key: Key, revision: Revision, pod: Arc<Pod>) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let namespace = key.namespace.clone();
        let (affinity, anti_affinity, preferred_pods) = pod_terms(spec, &namespace);
        let scored = pod_requests(&pod, true);
        let matcher = |terms: &[Arc<PodTerm>]| Arc::new(PodMatcher::new(terms, true));
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            revision,
            priority: spec.priority.unwrap_or(0),
            requests: pod_requests(&pod, false),
            scored_requests: (scored.milli_cpu, scored.memory),
            host_ports: host_ports(spec),
            images: images(spec),
            containers: spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len),
            nodes: RequiredNodes::parse(spec),
            preferred_nodes: preferred_nodes(spec),
            affinity_matcher: (!affinity.is_empty()).then(|| matcher(&affinity)),
            anti_affinity_matchers: anti_affinity.iter().map(|term| matcher(std::slice::from_ref(term))).collect(),
            preferred_pods: preferred_pods.into_iter().map(|(weight, term)| (weight, term.clone(), matcher(&[term]))).collect(),
            affinity,
            anti_affinity,
            hard_spread: spread(spec, &pod, &namespace, "DoNotSchedule"),
            soft_spread: spread(spec, &pod, &namespace, "ScheduleAnyway"),
            key,
            pod,
        }
    }

    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }

    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.pod.metadata.labels.as_ref()
    }

    pub fn deleting(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Succeeded or Failed: it needs nothing any more.
    pub fn ended(&self) -> bool {
        matches!(state::phase(&self.pod), "Succeeded" | "Failed")
    }

    /// Its node; empty while it has none.
    pub fn node(&self) -> &str {
        state::node(&self.pod)
    }

    pub fn nominated_node(&self) -> &str {
        self.pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref()).unwrap_or_default()
    }

    /// Whether this scheduler is to find a node for it.
    pub fn is_ours(&self) -> bool {
        let name = self.spec().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(DEFAULT_SCHEDULER);
        name == DEFAULT_SCHEDULER && self.node().is_empty() && !self.deleting() && !self.ended()
    }

    pub fn is_gated(&self) -> bool {
        self.spec().and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty())
    }

    pub fn tolerations(&self) -> &[Toleration] {
        self.spec().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default()
    }

    pub fn may_preempt(&self) -> bool {
        self.spec().and_then(|spec| spec.preemption_policy.as_deref()) != Some("Never")
    }

    /// When its kubelet started it; the end of time while it has not.
    pub fn started(&self) -> Timestamp {
        let start = self.pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        start.map_or(Timestamp::from_micros(i64::MAX), timestamp)
    }

    pub fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let wanted = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let ip = port.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
        Some(HostPort { protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), ip: ip.to_owned(), port: number })
    });
    wanted.collect()
}

fn images(spec: &PodSpec) -> Vec<String> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers).filter_map(|container| container.image.as_deref());
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    containers.chain(volumes).map(with_tag).collect()
}

/// `nginx` is `nginx:latest`; a colon before the last slash is a registry's port.
pub fn with_tag(image: &str) -> String {
    let colon = image.rfind(':').map_or(-1, |at| at as i64);
    let slash = image.rfind('/').map_or(-1, |at| at as i64);
    if colon <= slash { format!("{image}:latest") } else { image.to_owned() }
}

fn preferred_nodes(spec: &PodSpec) -> Vec<(i64, NodeTerm)> {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let terms = affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let terms = terms.into_iter().flatten().filter(|term| term.weight != 0);
    terms.map(|term| (i64::from(term.weight), NodeTerm::parse(&term.preference))).collect()
}

type PodTerms = (Vec<Arc<PodTerm>>, Vec<Arc<PodTerm>>, Vec<(i64, Arc<PodTerm>)>);

/// Required affinity, required anti-affinity, and both kinds of preference.
fn pod_terms(spec: &PodSpec, namespace: &str) -> PodTerms {
    let Some(affinity) = &spec.affinity else { return PodTerms::default() };
    let mut preferred = Vec::new();
    let mut near = Vec::new();
    let mut far = Vec::new();
    if let Some(affinity) = &affinity.pod_affinity {
        near.extend(affinity.required_during_scheduling_ignored_during_execution.iter().flatten().map(|term| PodTerm::parse(term, namespace)));
        let terms = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        preferred.extend(terms.map(|term| (i64::from(term.weight), PodTerm::parse(&term.pod_affinity_term, namespace))));
    }
    if let Some(affinity) = &affinity.pod_anti_affinity {
        far.extend(affinity.required_during_scheduling_ignored_during_execution.iter().flatten().map(|term| PodTerm::parse(term, namespace)));
        let terms = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        preferred.extend(terms.map(|term| (-i64::from(term.weight), PodTerm::parse(&term.pod_affinity_term, namespace))));
    }
    (near, far, preferred)
}

fn spread(spec: &PodSpec, pod: &Pod, namespace: &str, mode: &str) -> Vec<Spread> {
    let constraints = spec.topology_spread_constraints.iter().flatten().filter(|constraint| constraint.when_unsatisfiable == mode);
    constraints.map(|constraint| resolve(constraint, pod, namespace)).collect()
}

fn resolve(constraint: &TopologySpreadConstraint, pod: &Pod, namespace: &str) -> Spread {
    let mut selector = owned::selector(constraint.label_selector.as_ref());
    let labels = pod.metadata.labels.as_ref();
    let own = constraint.match_label_keys.iter().flatten().filter_map(|key| Some((key, labels?.get(key)?)));
    let own = own.filter_map(|(key, value)| Requirement::new(key, Operator::In, vec![value.clone()]).ok());
    let own: Vec<Requirement> = own.filter(|requirement| !selector.requirements().contains(requirement)).collect();
    if !own.is_empty() && !selector.is_nothing() {
        selector = LabelSelector::from_requirements(selector.requirements().iter().cloned().chain(own).collect());
    }
    Spread {
        min_domains: usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
        honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        ..Spread::new(namespace, &constraint.topology_key, selector, constraint.max_skew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_a_tag() {
        assert_eq!(with_tag("nginx"), "nginx:latest");
        assert_eq!(with_tag("localhost:5000/nginx"), "localhost:5000/nginx:latest");
        assert_eq!(with_tag("nginx:1"), "nginx:1");
    }

    #[test]
    fn ports_conflict_by_address_and_protocol() {
        let port = |ip: &str, protocol: &str| HostPort { protocol: protocol.into(), ip: ip.into(), port: 80 };
        assert!(port("0.0.0.0", "TCP").conflicts(&port("10.0.0.1", "TCP")));
        assert!(!port("10.0.0.2", "TCP").conflicts(&port("10.0.0.1", "TCP")));
        assert!(!port("0.0.0.0", "UDP").conflicts(&port("0.0.0.0", "TCP")));
    }
}
