//! The Node object and its status, from facts. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::time::api_time;

use super::machine::{Machine, Space};
use crate::config::KubeletConfig;
use crate::cri::Image;

/// The version that the node reports: the API's, so that nobody takes it for skewed.
pub const VERSION: &str = "v1.36.2-wheelhouse.1";
/// Below this much available memory pods are evicted, so they are not promised it; upstream's `memory.available<100Mi`.
pub const MEMORY_RESERVE: u64 = 100 << 20;
/// Upstream's `nodefs.available<10%`, as a divisor.
const DISK_RESERVE: u64 = 10;
/// Images listed in the status; upstream's `nodeStatusMaxImages`.
const MAX_IMAGES: usize = 50;

/// What the node feels pressed by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pub memory: bool,
    pub disk: bool,
    pub pids: bool,
}

/// Everything that a status is made of.
pub struct Facts<'a> {
    pub config: &'a KubeletConfig,
    pub machine: &'a Machine,
    pub disk: Space,
    pub ips: &'a [IpAddr],
    /// `containerd://1.6.20`
    pub runtime_version: &'a str,
    /// Why the node is not ready; empty when it is.
    pub unready: &'a [String],
    pub pressure: &'a Pressure,
    pub images: &'a [Image],
    pub now: Timestamp,
}

fn quantity(text: String) -> Quantity {
    Quantity(text)
}

/// Milli-CPUs and bytes that pods may use.
pub fn allocatable(machine: &Machine) -> (i64, i64) {
    let memory = machine.memory.saturating_sub(MEMORY_RESERVE);
    (i64::from(machine.cpus) * 1000, i64::try_from(memory).unwrap_or(i64::MAX))
}

pub fn node(config: &KubeletConfig, machine: &Machine) -> Node {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for prefix in ["kubernetes.io", "beta.kubernetes.io"] {
        labels.insert(format!("{prefix}/arch"), machine.architecture.to_owned());
        labels.insert(format!("{prefix}/os"), "linux".to_owned());
    }
    labels.insert("kubernetes.io/hostname".to_owned(), config.node_name.clone());
    labels.extend(config.labels.iter().cloned());
    Node {
        metadata: ObjectMeta { name: Some(config.node_name.clone()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(NodeSpec { taints: (!config.taints.is_empty()).then(|| config.taints.clone()), ..NodeSpec::default() }),
        status: None,
    }
}

/// The status; conditions keep the transition times of `old` where nothing changed.
pub fn status(facts: &Facts<'_>, old: Option<&NodeStatus>) -> NodeStatus {
    let Facts { config, machine, disk, .. } = facts;
    let (_, memory) = allocatable(machine);
    let resources = |memory: u64, storage: u64| -> BTreeMap<String, Quantity> {
        [
            ("cpu", quantity(machine.cpus.to_string())),
            ("memory", quantity(format!("{}Ki", memory / 1024))),
            ("pods", quantity(config.max_pods.to_string())),
            ("ephemeral-storage", quantity(format!("{}Ki", storage / 1024))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    };
    let mut addresses: Vec<NodeAddress> = facts.ips.iter().map(|ip| NodeAddress { type_: "InternalIP".into(), address: ip.to_string() }).collect();
    addresses.push(NodeAddress { type_: "Hostname".into(), address: config.node_name.clone() });
    NodeStatus {
        capacity: Some(resources(machine.memory, disk.size)),
        allocatable: Some(resources(u64::try_from(memory).unwrap_or(0), disk.size - disk.size / DISK_RESERVE)),
        addresses: Some(addresses),
        conditions: Some(conditions(facts, old)),
        daemon_endpoints: Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(config.port) }) }),
        node_info: Some(NodeSystemInfo {
            architecture: machine.architecture.to_owned(),
            boot_id: machine.boot_id.clone(),
            container_runtime_version: facts.runtime_version.to_owned(),
            kernel_version: machine.kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: VERSION.to_owned(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: machine.os_image.clone(),
            swap: None,
            system_uuid: machine.system_uuid.clone(),
        }),
        images: Some(images(facts.images)),
        ..NodeStatus::default()
    }
}

/// The largest ones.
fn images(images: &[Image]) -> Vec<ContainerImage> {
    let mut images: Vec<&Image> = images.iter().collect();
    images.sort_by(|a, b| (b.size, &a.id).cmp(&(a.size, &b.id)));
    let listed = images.into_iter().take(MAX_IMAGES);
    listed
        .map(|image| ContainerImage {
            names: Some(image.digests.iter().chain(&image.tags).take(5).cloned().collect()),
            size_bytes: i64::try_from(image.size).ok(),
        })
        .collect()
}

fn conditions(facts: &Facts<'_>, old: Option<&NodeStatus>) -> Vec<NodeCondition> {
    let pressed = |kind: &'static str, pressed: bool, good: (&'static str, &'static str), bad: (&'static str, &'static str)| {
        let (reason, message) = if pressed { bad } else { good };
        (kind, pressed, reason.to_owned(), message.to_owned())
    };
    let ready = facts.unready.is_empty();
    let reason = if ready { "KubeletReady" } else { "KubeletNotReady" };
    let message = if ready { "kubelet is posting ready status".to_owned() } else { facts.unready.join(", ") };
    let all = [
        pressed(
            "MemoryPressure",
            facts.pressure.memory,
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ),
        pressed(
            "DiskPressure",
            facts.pressure.disk,
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ),
        pressed(
            "PIDPressure",
            facts.pressure.pids,
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ),
        ("Ready", ready, reason.to_owned(), message),
    ];
    let old = old.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let now = api_time(facts.now);
    all.into_iter()
        .map(|(kind, holds, reason, message)| {
            let status = if holds { "True" } else { "False" };
            let before = old.iter().find(|condition| condition.type_ == kind && condition.status == status);
            NodeCondition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: Some(reason),
                message: Some(message),
                last_heartbeat_time: Some(now.clone()),
                last_transition_time: before.and_then(|before| before.last_transition_time.clone()).or_else(|| Some(now.clone())),
            }
        })
        .collect()
}

/// Whether two statuses say the same, heartbeats aside.
pub fn same(a: &NodeStatus, b: &NodeStatus) -> bool {
    let still = |status: &NodeStatus| {
        let mut status = status.clone();
        status.conditions.iter_mut().flatten().for_each(|condition| condition.last_heartbeat_time = None);
        status
    };
    still(a) == still(b)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn config() -> KubeletConfig {
        KubeletConfig {
            node_name: "vm-1".into(),
            node_ips: Vec::new(),
            labels: vec![("zone".into(), "a".into())],
            taints: Vec::new(),
            root: "/var/lib/kubelet".into(),
            logs: "/var/log/pods".into(),
            socket: "/run/containerd/containerd.sock".into(),
            manifests: None,
            cni: None,
            cgroup_root: "/kubepods".into(),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            max_pods: 110,
            disk_reserve: 10,
            port: 10250,
        }
    }

    #[test]
    fn a_status_keeps_its_transition_times_and_counts_reserves_out() {
        let (config, machine) = (config(), Machine { cpus: 2, memory: 1 << 30, ..Machine::default() });
        let (ips, pressed) = (["10.0.0.7".parse().unwrap()], Pressure { memory: true, ..Pressure::default() });
        let facts = |unready: &'static [String], seconds| Facts {
            config: &config,
            machine: &machine,
            disk: Space { size: 10 << 30, ..Space::default() },
            ips: &ips,
            runtime_version: "containerd://1.6.20",
            unready,
            pressure: &pressed,
            images: &[],
            now: Timestamp::from_secs(seconds),
        };
        let first = status(&facts(&[], 100), None);
        assert_eq!(first.allocatable.as_ref().unwrap()["memory"].0, format!("{}Ki", (1 << 20) - (100 << 10)));
        assert_eq!(first.capacity.as_ref().unwrap()["memory"].0, "1048576Ki");
        let second = status(&facts(&[], 200), Some(&first));
        assert!(same(&first, &second));
        let find = |status: &NodeStatus, kind: &str| status.conditions.iter().flatten().find(|c| c.type_ == kind).unwrap().clone();
        assert_eq!(find(&second, "Ready").last_transition_time, find(&first, "Ready").last_transition_time);
        assert_eq!(find(&second, "MemoryPressure").status, "True");
        let reasons: &'static [String] = Box::leak(Box::new(["no network".to_owned()]));
        let third = status(&facts(reasons, 300), Some(&second));
        assert_eq!((find(&third, "Ready").status.as_str(), find(&third, "Ready").message.as_deref()), ("False", Some("no network")));
        assert_ne!(find(&third, "Ready").last_transition_time, find(&first, "Ready").last_transition_time);
    }
}
