//! The part that runs on: joins this node's pods with those of the others, and holds policies.
//!
//! ```text
//! Nodes    -> own pod networks: bridge, masquerade, the runtime's configuration; other nodes: routes, tunnel
//! Pods, Namespaces, NetworkPolicies -> one table of rules for each family
//! ```
//!
//! The runtime's configuration is written last: with it containerd calls the network ready, and the kubelet starts pods.

mod fabric;
mod kernel;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use tokio::sync::mpsc;
use wheelhouse_client::informer::{Change, Resource, follow};
use wheelhouse_client::{Client, ListOptions};
use wheelhouse_net::nft::{LoadedTable, NftError};
use wheelhouse_net::{Cidr, Family};
use wheelhouse_runtime::{Stop, Tasks};

pub use fabric::{Fabric, NodeNetwork, Routing, plan as plan_fabric};

use crate::policy::{self, PodFacts, World};
use crate::programs::ProgramError;

/// Changes that wait; more hold the watches up.
const CHANGES: usize = 256;

/// After a change, this long more of them are waited for: a rollout changes many pods at once, and planning looks at all.
const GATHER: Duration = Duration::from_millis(50);

/// How often everything is compared with the kernel though nothing changed, and how soon a failure is tried again.
const RESYNC: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(2);

const STOP_GRACE: Duration = Duration::from_secs(1);

const NODES: Resource = Resource { group: "", version: "v1", plural: "nodes" };
const PODS: Resource = Resource { group: "", version: "v1", plural: "pods" };
const NAMESPACES: Resource = Resource { group: "", version: "v1", plural: "namespaces" };
const POLICIES: Resource = Resource { group: "networking.k8s.io", version: "v1", plural: "networkpolicies" };

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    /// Networks of all pods of the cluster: what goes elsewhere is masqueraded.
    pub cluster_cidrs: Vec<Cidr>,
    pub routing: Routing,
    /// Of pods' interfaces. [`crate::plugin::DEFAULT_MTU`] fits a network of 1500 bytes with the tunnel's header.
    pub mtu: u32,
    /// Where the runtime looks for network configurations, usually `/etc/cni/net.d`.
    pub cni_directory: PathBuf,
    /// Where the plugin keeps its records; see [`crate::plugin::DATA_DIR`].
    pub data_directory: PathBuf,
    /// The DNS service's addresses on this node: isolated pods may ask there.
    pub dns: Vec<IpAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("the kernel's networking could not be changed")]
    Program(#[from] ProgramError),
    #[error("the rules could not be written")]
    Nft(#[from] NftError),
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

#[expect(clippy::large_enum_variant, reason = "one is alive per wake-up, and the few that wait are bounded by CHANGES")]
enum Event {
    Node(Change<Node>),
    Pod(Change<Pod>),
    Namespace(Change<Namespace>),
    Policy(Change<NetworkPolicy>),
}

/// Runs until it is told to stop. Interfaces, routes and rules stay, so that pods go on while the program is replaced.
pub async fn run(client: Client, config: Config, mut stop: Stop) {
    let tasks = Tasks::new("network");
    let (sender, mut events) = mpsc::channel(CHANGES);
    forward(&tasks, &client, NODES, sender.clone(), Event::Node);
    forward(&tasks, &client, PODS, sender.clone(), Event::Pod);
    forward(&tasks, &client, NAMESPACES, sender.clone(), Event::Namespace);
    forward(&tasks, &client, POLICIES, sender, Event::Policy);
    stop.or(Network::new(config).drive(&mut events)).await;
    tasks.stop(STOP_GRACE).await;
}

fn forward<T: serde::de::DeserializeOwned + Send + 'static>(
    tasks: &Tasks,
    client: &Client,
    resource: Resource,
    events: mpsc::Sender<Event>,
    wrap: fn(Change<T>) -> Event,
) {
    let (sender, mut receiver) = mpsc::channel(1);
    let (client, mut stop) = (client.clone(), tasks.stop_signal());
    tasks.spawn(resource.plural, async move {
        let forwarding = async move {
            while let Some(change) = receiver.recv().await {
                if events.send(wrap(change)).await.is_err() {
                    return;
                }
            }
        };
        stop.or(async { tokio::join!(follow::<T>(client, resource, ListOptions::default(), sender), forwarding) }).await;
    });
}

/// Objects by namespace and name.
type Known<T> = BTreeMap<(String, String), T>;

struct Network {
    config: Config,
    nodes: Option<Known<NodeNetwork>>,
    pods: Option<Known<PodFacts>>,
    namespaces: Option<BTreeMap<String, Option<BTreeMap<String, String>>>>,
    policies: Option<Known<NetworkPolicy>>,
    masquerade: [LoadedTable; 2],
    rules: [LoadedTable; 2],
    fabric_is_stale: bool,
    rules_are_stale: bool,
}

impl Network {
    fn new(config: Config) -> Self {
        let unknown = || [LoadedTable::unknown(), LoadedTable::unknown()];
        Self {
            config,
            nodes: None,
            pods: None,
            namespaces: None,
            policies: None,
            masquerade: unknown(),
            rules: unknown(),
            fabric_is_stale: false,
            rules_are_stale: false,
        }
    }

    async fn drive(&mut self, events: &mut mpsc::Receiver<Event>) {
        loop {
            let wait = if self.fabric_is_stale || self.rules_are_stale { RETRY } else { RESYNC };
            match tokio::time::timeout(wait, events.recv()).await {
                Ok(Some(event)) => {
                    self.learn(event);
                    let deadline = tokio::time::Instant::now() + GATHER;
                    while let Ok(Some(event)) = tokio::time::timeout_at(deadline, events.recv()).await {
                        self.learn(event);
                    }
                }
                Ok(None) => return,
                Err(_) => self.resync().await,
            }
            self.sync().await;
        }
    }

    /// Marks what the kernel may have lost.
    async fn resync(&mut self) {
        self.fabric_is_stale = true;
        for table in self.masquerade.iter_mut().chain(&mut self.rules) {
            match table.verify().await {
                Ok(false) => {}
                Ok(true) => self.rules_are_stale = true,
                Err(error) => tracing::warn!(%error, "cannot look for a table"),
            }
        }
    }

    async fn sync(&mut self) {
        if self.fabric_is_stale {
            match self.join_nodes().await {
                Ok(()) => self.fabric_is_stale = false,
                Err(error) => {
                    tracing::error!(error = error.to_string(), source = ?std::error::Error::source(&error), "pods are not joined with other nodes")
                }
            }
        }
        if self.rules_are_stale {
            match self.enforce().await {
                Ok(()) => self.rules_are_stale = false,
                Err(error) => tracing::error!(%error, "network policies are not in force"),
            }
        }
    }

    async fn join_nodes(&mut self) -> Result<(), NetworkError> {
        let Some(nodes) = &self.nodes else { return Ok(()) };
        let Some(me) = nodes.get(&(String::new(), self.config.node_name.clone())).filter(|me| !me.pod_cidrs.is_empty()).cloned() else {
            return Ok(());
        };
        for (family, table) in Family::BOTH.into_iter().zip(&mut self.masquerade) {
            table.load(kernel::masquerade(family, &me.pod_cidrs, &self.config.cluster_cidrs)).await?;
        }
        let others: Vec<NodeNetwork> = nodes.values().cloned().collect();
        let (config, own) = (self.config.clone(), me.clone());
        // Programs are waited for on a thread for that; there is one call at a time.
        let done = tokio::task::spawn_blocking(move || kernel::apply(&own, &others, config.routing, config.mtu)).await;
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        kernel::write_configuration(&self.config, &me.pod_cidrs)
    }

    async fn enforce(&mut self) -> Result<(), NftError> {
        let (Some(pods), Some(namespaces), Some(policies)) = (&self.pods, &self.namespaces, &self.policies) else { return Ok(()) };
        let world = World {
            policies: policies.values().collect(),
            pods: pods.values().collect(),
            namespaces,
            node: &self.config.node_name,
            dns: &self.config.dns,
        };
        for (ruleset, table) in policy::plan(&world).into_iter().zip(&mut self.rules) {
            table.load(ruleset).await?;
        }
        Ok(())
    }

    fn learn(&mut self, event: Event) {
        match event {
            Event::Node(change) => self.fabric_is_stale |= learn(&mut self.nodes, change, |node| (key(&node.metadata), Some(NodeNetwork::of(&node)))),
            Event::Pod(change) => self.rules_are_stale |= learn(&mut self.pods, change, |pod| (key(&pod.metadata), PodFacts::of(&pod))),
            Event::Namespace(change) => {
                self.rules_are_stale |= learn(&mut self.namespaces, change, |namespace| {
                    (namespace.metadata.name.clone().unwrap_or_default(), Some(namespace.metadata.labels))
                })
            }
            Event::Policy(change) => self.rules_are_stale |= learn(&mut self.policies, change, |policy| (key(&policy.metadata), Some(policy))),
        }
    }
}

fn key(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> (String, String) {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Takes a change in; true when it matters.
fn learn<T, K: Ord, V: PartialEq>(known: &mut Option<BTreeMap<K, V>>, change: Change<T>, facts: impl Fn(T) -> (K, Option<V>)) -> bool {
    match change {
        Change::Listed(objects) => {
            let listed = objects.into_iter().map(&facts).filter_map(|(key, value)| Some((key, value?))).collect();
            let is_new = known.as_ref() != Some(&listed);
            *known = Some(listed);
            is_new
        }
        Change::Stored(object) => {
            let (key, value) = facts(object);
            let known = known.get_or_insert_default();
            if known.get(&key) == value.as_ref() {
                return false;
            }
            match value {
                Some(value) => known.insert(key, value),
                None => known.remove(&key),
            };
            true
        }
        Change::Deleted(object) => known.as_mut().is_some_and(|known| known.remove(&facts(object).0).is_some()),
    }
}
