//! Watches, plans, applies.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use wheelhouse_client::informer::{Change, Resource, follow};
use wheelhouse_client::{Client, ListOptions};
use wheelhouse_net::nft::{self, NftError};
use wheelhouse_runtime::{Metrics, Stop, Tasks};

use crate::facts::{NodeFacts, ServiceFacts, SliceFacts};
use crate::health::{self, HealthServers};
use crate::planner::Planner;
use crate::{TABLE, conntrack};

/// Changes that wait for the planner. A slower planner slows the watches down.
const CHANGES: usize = 256;

/// Time between two transactions under constant change; the first change after a quiet while waits for nothing.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// How often it is made sure that the tables still exist, and how soon a failed transaction is tried again.
const VERIFY: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(1);

/// Time for health checks under way at the end.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Seconds from a change's arrival to its rule.
const BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

const SERVICES: Resource = Resource { group: "", version: "v1", plural: "services" };
const SLICES: Resource = Resource { group: "discovery.k8s.io", version: "v1", plural: "endpointslices" };
const NODES: Resource = Resource { group: "", version: "v1", plural: "nodes" };

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    /// Networks of all pods of the cluster, in CIDR notation: who calls a cluster IP from elsewhere is masqueraded.
    pub cluster_cidrs: Vec<String>,
    /// Service addresses that this node answers at itself, such as DNS.
    pub own_addresses: BTreeSet<IpAddr>,
    /// Where `/healthz` is answered; upstream's port is 10256. None: nowhere.
    pub health_listen: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("cannot listen on {0} for health checks")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error(transparent)]
    Nft(#[from] NftError),
}

/// What arrived.
#[expect(clippy::large_enum_variant, reason = "one is alive per wake-up, and the few that wait are bounded by CHANGES")]
enum Event {
    Service(Change<Service>),
    Slice(Change<EndpointSlice>),
    Node(Change<Node>),
}

/// Runs until it is told to stop. The rules stay in the kernel: connections go on while the node's program is replaced.
///
/// Fails at once where nothing can work: no `nft`, or a port in use. Everything else is tried again for ever.
pub async fn run(client: Client, config: Config, metrics: &Metrics, mut stop: Stop) -> Result<(), ProxyError> {
    let tasks = Tasks::new("kube-proxy");
    let (synced, answers) = watch::channel(health::proxy_answer(false));
    if let Some(address) = config.health_listen {
        let listener = TcpListener::bind(address).await.map_err(|source| ProxyError::Listen(address, source))?;
        health::serve(&tasks, listener, answers);
    }
    // Is nft there at all? A node without it is told so at once.
    if let Err(error @ NftError::Spawn(_)) = nft::exists(&format!("ip {TABLE}")).await {
        return Err(error.into());
    }
    let mut events = watch_all(&tasks, &client, &config.node_name);
    let node = NodeFacts { name: config.node_name, zone: None };
    let mut proxy = Proxy {
        planner: Planner::new(node, &config.cluster_cidrs, config.own_addresses),
        listed: Listed::default(),
        is_loaded: false,
        health: HealthServers::default(),
        metrics: metrics.clone(),
    };
    let ended = stop.or(proxy.drive(&mut events, &synced)).await;
    tasks.stop(STOP_GRACE).await;
    proxy.health.update(&Default::default()).await;
    ended.unwrap_or(Ok(()))
}

fn watch_all(tasks: &Tasks, client: &Client, node_name: &str) -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(CHANGES);
    let this_node = ListOptions { field_selector: format!("metadata.name={node_name}"), ..ListOptions::default() };
    forward(tasks, client, SERVICES, ListOptions::default(), sender.clone(), Event::Service);
    forward(tasks, client, SLICES, ListOptions::default(), sender.clone(), Event::Slice);
    forward(tasks, client, NODES, this_node, sender, Event::Node);
    receiver
}

fn forward<T: serde::de::DeserializeOwned + Send + 'static>(
    tasks: &Tasks,
    client: &Client,
    resource: Resource,
    narrow: ListOptions,
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
        stop.or(async { tokio::join!(follow::<T>(client, resource, narrow, sender), forwarding) }).await;
    });
}

/// Which lists have arrived: rules made from half of the world would drop services that exist.
#[derive(Default)]
struct Listed {
    services: bool,
    slices: bool,
    node: bool,
}

struct Proxy {
    planner: Planner,
    listed: Listed,
    /// Whether the kernel holds what the planner committed last.
    is_loaded: bool,
    health: HealthServers,
    metrics: Metrics,
}

impl Proxy {
    async fn drive(
        &mut self,
        events: &mut mpsc::Receiver<Event>,
        synced: &watch::Sender<(hyper::StatusCode, serde_json::Value)>,
    ) -> Result<(), ProxyError> {
        let latency = self.metrics.histogram("kubeproxy_sync_proxy_rules_duration_seconds", "From a change's arrival to its rules.", BUCKETS, &[]);
        let mut last = None;
        loop {
            let wait = if self.is_ready() && !self.is_loaded { RETRY } else { VERIFY };
            match tokio::time::timeout(wait, events.recv()).await {
                Ok(Some(event)) => {
                    let arrived = Instant::now();
                    self.learn(event);
                    if let Some(last) = last {
                        tokio::time::sleep_until(last + MIN_INTERVAL).await;
                    }
                    while let Ok(event) = events.try_recv() {
                        self.learn(event);
                    }
                    if self.is_ready() && (self.planner.is_dirty() || !self.is_loaded) {
                        self.sync().await;
                        latency.observe(arrived.elapsed().as_secs_f64());
                        last = Some(tokio::time::Instant::now());
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) if self.is_ready() => {
                    self.verify().await;
                    if !self.is_loaded {
                        self.sync().await;
                    }
                }
                Err(_) => {}
            }
            if self.is_loaded {
                synced.send_if_modified(|answer| std::mem::replace(answer, health::proxy_answer(true)).0 != hyper::StatusCode::OK);
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.listed.services && self.listed.slices && self.listed.node
    }

    fn learn(&mut self, event: Event) {
        match event {
            Event::Service(Change::Listed(services)) => {
                self.planner.retain_services(&services.iter().map(ServiceFacts::name_of).collect());
                for service in &services {
                    self.planner.set_service(ServiceFacts::name_of(service), ServiceFacts::of(service));
                }
                self.listed.services = true;
            }
            Event::Service(Change::Stored(service)) => self.planner.set_service(ServiceFacts::name_of(&service), ServiceFacts::of(&service)),
            Event::Service(Change::Deleted(service)) => self.planner.set_service(ServiceFacts::name_of(&service), None),
            Event::Slice(Change::Listed(slices)) => {
                let named = |slice: &EndpointSlice| Some((SliceFacts::service_of(slice)?, slice.metadata.name.clone()?));
                self.planner.retain_slices(&slices.iter().filter_map(named).collect());
                for slice in &slices {
                    self.learn_slice(slice, true);
                }
                self.listed.slices = true;
            }
            Event::Slice(Change::Stored(slice)) => self.learn_slice(&slice, true),
            Event::Slice(Change::Deleted(slice)) => self.learn_slice(&slice, false),
            Event::Node(Change::Listed(nodes)) => {
                for node in &nodes {
                    self.planner.set_node(NodeFacts::of(node));
                }
                self.listed.node = true;
            }
            Event::Node(Change::Stored(node)) => self.planner.set_node(NodeFacts::of(&node)),
            // The node's own object went: its name and zone have not changed, and its pods are still here.
            Event::Node(Change::Deleted(_)) => {}
        }
    }

    fn learn_slice(&mut self, slice: &EndpointSlice, exists: bool) {
        if let (Some(service), Some(name)) = (SliceFacts::service_of(slice), &slice.metadata.name) {
            self.planner.set_slice(service, name.clone(), exists.then(|| SliceFacts::of(slice)));
        }
    }

    async fn sync(&mut self) {
        let commit = self.planner.commit();
        let whole = || self.planner.rulesets().iter().map(wheelhouse_net::Ruleset::render).collect::<String>();
        let mut result = if self.is_loaded {
            nft::apply(&commit.patches.each_ref().map(wheelhouse_net::Patch::render).concat()).await
        } else {
            nft::apply(&whole()).await
        };
        if let (true, Err(NftError::Refused(message))) = (self.is_loaded, &result) {
            tracing::warn!(message, "the tables are not as they were left; writing them anew");
            self.metrics.counter("wheelhouse_proxy_refused_patches_total", "Changes that the kernel's tables did not take.", &[]).increment();
            result = nft::apply(&whole()).await;
        }
        self.is_loaded = result.is_ok();
        if let Err(error) = result {
            tracing::error!(%error, "cannot write the rules of services");
            self.metrics.counter("kubeproxy_sync_proxy_rules_failures_total", "Transactions that failed.", &[]).increment();
            return;
        }
        if let Err(error) = conntrack::remove(&commit.stale_flows).await {
            tracing::warn!(%error, "flows of endpoints that are gone were not ended");
        }
        self.health.update(&self.planner.health_checks()).await;
    }

    /// Notices that somebody removed a table.
    async fn verify(&mut self) {
        for family in wheelhouse_net::Family::BOTH {
            match nft::exists(&format!("{} {TABLE}", family.keyword())).await {
                Ok(true) => {}
                Ok(false) => {
                    if self.is_loaded {
                        tracing::warn!(family = family.keyword(), "the table of services is gone; writing it anew");
                    }
                    self.is_loaded = false;
                }
                Err(error) => tracing::warn!(%error, "cannot look for the tables of services"),
            }
        }
    }
}
