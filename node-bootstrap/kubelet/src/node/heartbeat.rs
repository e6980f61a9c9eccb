//! Registers the node, keeps its status true and its lease fresh.
//!
//! The lease says that the node lives; the status is written when it changed, and every five minutes. Until the node is ready its state is looked at
//! twice a second, so that joining takes seconds.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use parking_lot::Mutex;
use serde_json::{Value, json};
use wheelhouse_base::{Clock, Timestamp};
use wheelhouse_client::{Client, ClientError, PatchKind};
use wheelhouse_kinds::time::micro_time;
use wheelhouse_runtime::Stop;

use super::machine::{self, Machine};
use super::network;
use super::object::{self, Facts, Pressure};
use crate::config::{KubeletConfig, LEASE_EVERY};
use crate::cri::Runtime;
use crate::spec::{NodeFacts, Resolver};

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// What others may rely on: four missed renewals.
const LEASE_SECONDS: i32 = 40;
/// How often the state is looked at, before the node is ready and after.
const LOOK_COMING_UP: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_secs(10);
/// Upstream's `nodeStatusReportFrequency`.
const REPORT: Duration = Duration::from_secs(300);
/// Between attempts at the API.
const RETRY: Duration = Duration::from_secs(1);

pub struct Heartbeat {
    pub config: Arc<KubeletConfig>,
    pub client: Client,
    pub runtime: Runtime,
    pub clock: Arc<dyn Clock>,
    pub machine: Machine,
    pub ips: Vec<IpAddr>,
    /// Set by whoever watches the machine's resources.
    pub pressure: Arc<Mutex<Pressure>>,
}

impl Heartbeat {
    /// What pods get to know of the node.
    pub fn node_facts(&self) -> NodeFacts {
        let (cpu, memory) = object::allocatable(&self.machine);
        NodeFacts {
            name: self.config.node_name.clone(),
            ips: self.ips.clone(),
            cluster_domain: self.config.cluster_domain.clone(),
            cluster_dns: self.config.cluster_dns.clone(),
            resolver: Resolver::parse(&std::fs::read_to_string(&self.config.resolv_conf).unwrap_or_default()),
            allocatable_cpu_milli: cpu,
            allocatable_memory: memory,
            cgroup_root: self.config.cgroup_root.clone(),
            cgroup_v2: crate::pods::cgroup::is_v2(),
        }
    }

    /// Registers the node, then reports until stopped. Registration is tried until it works: the API may be away at a start.
    pub async fn run(self, mut stop: Stop, registered: Arc<ArcSwap<Option<Node>>>) {
        let node = loop {
            match stop.or(self.register()).await {
                None => return,
                Some(Ok(node)) => break node,
                Some(Err(error)) => {
                    tracing::warn!(node = self.config.node_name, error = &error as &dyn std::error::Error, "the node is not registered yet");
                    if stop.or(tokio::time::sleep(RETRY)).await.is_none() {
                        return;
                    }
                }
            }
        };
        tracing::info!(node = self.config.node_name, "the node is registered");
        registered.store(Arc::new(Some(node.clone())));
        tokio::join!(self.renew(stop.clone(), &node), self.report(stop, node.clone()));
    }

    async fn register(&self) -> Result<Node, ClientError> {
        let nodes = self.client.api("", "v1", "nodes", "");
        let wanted = object::node(&self.config, &self.machine);
        let known: Option<Node> = nodes.find(&self.config.node_name).await?;
        let Some(known) = known else {
            return match nodes.create::<Node>(&wanted).await {
                Err(error) if error.is_already_exists() => nodes.get(&self.config.node_name).await,
                other => other,
            };
        };
        let missing: Value = wanted
            .metadata
            .labels
            .iter()
            .flatten()
            .filter(|(key, value)| known.metadata.labels.as_ref().and_then(|labels| labels.get(*key)) != Some(*value))
            .map(|(key, value)| (key.clone(), Value::from(value.as_str())))
            .collect::<serde_json::Map<_, _>>()
            .into();
        if missing.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(known);
        }
        nodes.patch(&self.config.node_name, "", PatchKind::Strategic, "", &json!({"metadata": {"labels": missing}})).await
    }

    async fn renew(&self, mut stop: Stop, node: &Node) {
        let mut wait = Duration::ZERO;
        while stop.or(tokio::time::sleep(wait)).await.is_some() {
            wait = match self.renew_once(node).await {
                Ok(()) => LEASE_EVERY,
                Err(error) => {
                    tracing::info!(error = &error as &dyn std::error::Error, "the node's lease was not renewed");
                    RETRY
                }
            };
        }
    }

    async fn renew_once(&self, node: &Node) -> Result<(), ClientError> {
        let leases = self.client.api("coordination.k8s.io", "v1", "leases", LEASE_NAMESPACE);
        let name = &self.config.node_name;
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: name.clone(),
            uid: node.metadata.uid.clone().unwrap_or_default(),
            ..OwnerReference::default()
        };
        let spec = LeaseSpec {
            holder_identity: Some(name.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(micro_time(self.clock.now())),
            ..LeaseSpec::default()
        };
        let known: Option<Lease> = leases.find(name).await?;
        let mut lease = known.clone().unwrap_or_default();
        lease.metadata =
            ObjectMeta { name: Some(name.clone()), namespace: Some(LEASE_NAMESPACE.into()), owner_references: Some(vec![owner]), ..lease.metadata };
        lease.spec = Some(spec);
        match known {
            Some(_) => leases.update::<Value>(name, "", &lease).await.map(drop),
            None => leases.create::<Value>(&lease).await.map(drop),
        }
    }

    async fn report(&self, mut stop: Stop, node: Node) {
        let mut old = node.status.clone();
        let mut written: Option<(NodeStatus, Timestamp)> = None;
        let mut wait = Duration::ZERO;
        self.attach(&node);
        while stop.or(tokio::time::sleep(wait)).await.is_some() {
            let status = self.status(old.as_ref()).await;
            let now = self.clock.now();
            let ready = status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
            wait = if ready { LOOK } else { LOOK_COMING_UP };
            let fresh = written.as_ref().is_some_and(|(known, at)| object::same(known, &status) && now.since(*at) < REPORT);
            if fresh && ready {
                continue;
            }
            let nodes = self.client.api("", "v1", "nodes", "");
            let answer = if fresh {
                nodes.get::<Node>(&self.config.node_name).await
            } else {
                nodes.patch::<Node>(&self.config.node_name, "status", PatchKind::Strategic, "", &json!({"status": status})).await
            };
            match answer {
                Ok(node) => {
                    self.attach(&node);
                    if !fresh {
                        written = Some((status.clone(), now));
                    }
                    old = Some(status);
                }
                Err(error) if error.is_not_found() => {
                    // Somebody deleted it while its machine lives: it comes back.
                    if let Err(error) = self.register().await {
                        tracing::info!(error = &error as &dyn std::error::Error, "the node was deleted and is not registered again yet");
                    }
                    (written, wait) = (None, RETRY);
                }
                Err(error) => {
                    tracing::info!(error = &error as &dyn std::error::Error, "the node's status was not written");
                    wait = RETRY;
                }
            }
        }
    }

    /// Once the control plane has given the node a range for its pods, the runtime gets its network.
    fn attach(&self, node: &Node) {
        let Some(network) = &self.config.cni else { return };
        let Some(ranges) = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).filter(|ranges| !ranges.is_empty()) else { return };
        if let Err(error) = network::write(network, &ranges) {
            tracing::error!(folder = %network.folder.display(), %error, "the network's configuration cannot be written");
        }
    }

    async fn status(&self, old: Option<&NodeStatus>) -> NodeStatus {
        let version = self.runtime.version().await;
        let mut unready = match &version {
            Ok(_) => self.runtime.unready().await.unwrap_or_else(|error| vec![format!("container runtime is down: {error}")]),
            Err(error) => vec![format!("container runtime is down: {error}")],
        };
        if !Path::new(&self.config.root).is_dir() {
            unready.push(format!("{} is not there", self.config.root.display()));
        }
        let images = self.runtime.images().await.unwrap_or_default();
        let pressure = self.pressure.lock().clone();
        let facts = Facts {
            config: &self.config,
            machine: &self.machine,
            disk: machine::space(&self.config.root),
            ips: &self.ips,
            runtime_version: version.as_deref().unwrap_or("containerd://"),
            unready: &unready,
            pressure: &pressure,
            images: &images,
            now: self.clock.now(),
        };
        object::status(&facts, old)
    }
}
