//! What runs where a cluster's leader is, for the length of one leadership.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use wheelhouse_apiserver::{InProcess, bootstrap as kubernetes};
use wheelhouse_base::{Clock, ClusterId, SystemClock, Term};
use wheelhouse_client::{Client, ClientError, Identity};
use wheelhouse_controllers::effects::{CertificateEffects, EffectHandler, NoEffects};
use wheelhouse_controllers::feed::Consumer;
use wheelhouse_controllers::{Controllers, catalog};
use wheelhouse_fleet::bootstrap::{self as fleet, Wanted};
use wheelhouse_fleet::effects::FleetEffects;
use wheelhouse_fleet::names::{BUNDLE_KEY, CLUSTER_ADMINS_GROUP, CLUSTER_LABEL, bundle_name};
use wheelhouse_kinds::core::node::reconcile::NodeIpamController;
use wheelhouse_kinds::fleet::cluster::Member;
use wheelhouse_kinds::fleet::{Cluster, GROUP, SYSTEM_NAMESPACE, VERSION};
use wheelhouse_kinds::time::micro_time;
use wheelhouse_mvcc::{Fence, Snapshot};
use wheelhouse_scheduler::{Scheduler, SchedulerMetrics};
use wheelhouse_store::Store;

use crate::host::Host;
use crate::replica::Replica;

/// Between attempts at the first objects, doubling up to the second: a failure here is a lost leadership, or a full disk, which may last.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_AT_MOST: Duration = Duration::from_secs(10);

/// On those Leases: the term under which the holder leads, so that two leaderships of one host are told apart.
const TERM_ANNOTATION: &str = "control-plane.wheelhouse.dev/term";

/// Upstream's names for the locks of the two components that run at a leader.
const PUBLISHED_LEASES: &[&str] = &["kube-controller-manager", "kube-scheduler"];

pub struct LeaderContext {
    pub host: Arc<Host>,
    pub replica: Arc<Replica>,
    pub term: Term,
}

/// Makes what a cluster has from the start, then runs its controllers. Dropped when the leadership ends.
///
/// Controllers of a cluster that has its first objects wait for nothing: what a newer version adds, and the word on who leads, is written beside them,
/// so that a full disk does not keep them from their deletions.
pub async fn run(cx: LeaderContext) {
    tracing::info!(cluster = %cx.replica.id.cluster, term = cx.term, "leading");
    if has_first_objects(&cx.replica.store.snapshot(), &cx.replica.id.cluster) {
        tokio::join!(cx.first_objects(), cx.control());
    } else {
        cx.first_objects().await;
        cx.control().await;
    }
}

/// Whether a cluster has been through its first leader's bootstrap, as of a state: the last object of each part is there.
pub fn has_first_objects(snapshot: &Snapshot, cluster: &ClusterId) -> bool {
    let last = if cluster.is_system() {
        format!("/registry/{GROUP}/clusters/{SYSTEM_NAMESPACE}/{}", ClusterId::SYSTEM)
    } else {
        format!("/registry/rbac.authorization.k8s.io/clusterrolebindings/{CLUSTER_ADMINS_GROUP}")
    };
    kubernetes::is_done(snapshot) && snapshot.get(last.as_bytes()).is_some()
}

#[derive(Debug, thiserror::Error)]
enum FirstObjectsError {
    #[error("{0}: {source}", source = std::error::Error::source(.0).map(ToString::to_string).unwrap_or_default())]
    Kubernetes(#[from] kubernetes::BootstrapError),
    #[error("could not make {name}: {source}")]
    Object { name: String, source: ClientError },
    #[error("wrapping the system cluster's keys: {0}")]
    Keys(String),
}

impl LeaderContext {
    /// Until they are all there and the leadership is published.
    async fn first_objects(&self) {
        let (mut pause, mut told) = (RETRY, String::new());
        while let Err(error) = self.bootstrap().await {
            let text = error.to_string();
            if text != told {
                tracing::info!(cluster = %self.replica.id.cluster, error = %text, "the cluster's first objects are not all there yet");
                told = text;
            }
            tokio::time::sleep(pause).await;
            pause = RETRY_AT_MOST.min(pause * 2);
        }
    }

    /// Controllers and scheduler, for as long as they are polled.
    async fn control(&self) {
        let mut controllers = self.controllers();
        let scheduler =
            self.host.scheduler.then(|| Scheduler::new(self.client(), Arc::new(SystemClock), SchedulerMetrics::new(self.replica.server.metrics())));
        controllers.consumers.extend(scheduler.iter().map(|s| Arc::clone(s) as Arc<dyn Consumer>));
        let (views, running) = controllers.prepare();
        let scheduling = async {
            match scheduler {
                Some(scheduler) => scheduler.run(views).await,
                None => drop(views),
            }
        };
        // Leases end by the store itself.
        tokio::join!(running, scheduling);
    }

    fn is_system(&self) -> bool {
        self.replica.id.cluster.is_system()
    }

    /// In this process, refused as soon as the leadership is over.
    fn client(&self) -> Client {
        let transport = Arc::new(InProcess(Arc::clone(&self.replica.server)));
        Client::new(transport).extension(Fence { term: self.term })
    }

    async fn bootstrap(&self) -> Result<(), FirstObjectsError> {
        kubernetes::run(&self.replica.server).await?;
        let client = self.client().identity(Identity::loopback()).user_agent("wheelhouse-host");
        self.publish(&client).await?;
        if !self.is_system() {
            return ensure_all(&client, fleet::hosted_cluster()).await;
        }
        ensure_all(&client, fleet::system_cluster()).await?;
        // The keys before the Cluster: the fleet would make new ones for a cluster without.
        let bundle = self.wrapped_bundle()?;
        ensure(&client, ("", "v1", "secrets"), SYSTEM_NAMESPACE, &bundle).await?;
        let members = self.replica.store.members();
        let founder = members.iter().find(|m| m.replica == self.replica.id.replica);
        if let Some(founder) = founder {
            let cluster: Cluster = fleet::system_cluster_object(Member { replica_id: founder.replica, host: founder.host.clone() });
            let object = serde_json::to_value(&cluster).map_err(|e| FirstObjectsError::Keys(e.to_string()))?;
            ensure(&client, (GROUP, VERSION, "clusters"), SYSTEM_NAMESPACE, &object).await?;
        }
        Ok(())
    }

    fn wrapped_bundle(&self) -> Result<Value, FirstObjectsError> {
        let keys = &self.host.keys;
        let wrapped = self.replica.bundle().wrap(&keys.operator).map_err(|e| FirstObjectsError::Keys(e.to_string()))?;
        let cluster = &self.replica.id.cluster;
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": bundle_name(cluster), "namespace": SYSTEM_NAMESPACE, "labels": {CLUSTER_LABEL: cluster}},
            "type": "fleet.wheelhouse.dev/bundle",
            "data": {BUNDLE_KEY: STANDARD.encode(wrapped)},
        }))
    }

    /// The cluster's pod range was validated when the cluster was made; one that is not usable all the same falls back to the default.
    fn pod_ranges(&self) -> NodeIpamController {
        NodeIpamController::new(&self.replica.pod_cidr()).unwrap_or_else(|error| {
            tracing::error!(cluster = %self.replica.id.cluster, %error, "the cluster's pod range is not usable; the default is used");
            NodeIpamController::default()
        })
    }

    /// Tells who leads by the Leases that people and tools look at. Written once for each leadership and never renewed: nothing elects by them.
    async fn publish(&self, client: &Client) -> Result<(), FirstObjectsError> {
        let holder = format!("{}_{}", self.host.file.name, self.replica.id.replica);
        let now = micro_time(SystemClock.now());
        let leases = client.api("coordination.k8s.io", "v1", "leases", "kube-system");
        for name in PUBLISHED_LEASES {
            let failed = |source| FirstObjectsError::Object { name: format!("leases {name}"), source };
            let mut lease: Lease = leases.find(name).await.map_err(failed)?.unwrap_or_default();
            let stored = lease.metadata.resource_version.is_some();
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(holder.as_str()) {
                spec.lease_transitions = Some(if stored { spec.lease_transitions.unwrap_or(0) + 1 } else { 0 });
            }
            spec.holder_identity = Some(holder.clone());
            spec.lease_duration_seconds = Some(i32::MAX);
            spec.acquire_time = Some(now.clone());
            spec.renew_time = Some(now.clone());
            lease.metadata.annotations.get_or_insert_default().insert(TERM_ANNOTATION.to_owned(), self.term.to_string());
            lease.metadata.name = Some((*name).to_owned());
            lease.metadata.namespace = Some("kube-system".to_owned());
            let written = if stored { leases.update::<Lease>(name, "", &lease).await } else { leases.create::<Lease>(&lease).await };
            written.map_err(failed)?;
        }
        Ok(())
    }

    fn controllers(&self) -> Controllers {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut reconcilers = catalog::with_pods(&self.replica.bundle().ca_certificate, self.pod_ranges());
        let mut effects: Arc<dyn EffectHandler> = Arc::new(NoEffects);
        if self.is_system() {
            reconcilers.extend(wheelhouse_fleet::reconcilers(self.host.fleet_settings()));
            effects = Arc::new(FleetEffects {
                system: self.client().identity(Identity::loopback()).user_agent("wheelhouse-fleet"),
                operator_key: self.host.keys.operator.clone(),
                keys: self.host.key_pool(),
                clock: Arc::clone(&clock),
            });
        }
        match self.replica.bundle().authority() {
            Ok(authority) => {
                let client =
                    self.client().identity(Identity::service_account(CertificateEffects::SERVICE_ACCOUNT)).user_agent("certificate-controller");
                effects = Arc::new(CertificateEffects { client, authority, clock: Arc::clone(&clock), others: effects });
            }
            Err(error) => tracing::error!(cluster = %self.replica.id.cluster, %error, "the cluster's CA is not usable; no certificate is signed"),
        }
        reconcilers.retain(|r| self.host.controllers.takes(&**r));
        let store: Arc<dyn Store> = Arc::new(self.replica.store.clone());
        Controllers {
            store,
            registry: self.host.registry(&self.replica.id.cluster),
            client: self.client(),
            clock,
            effects,
            reconcilers,
            consumers: Vec::new(),
        }
    }
}

async fn ensure_all(client: &Client, objects: Vec<Wanted>) -> Result<(), FirstObjectsError> {
    for wanted in objects {
        ensure(client, wanted.resource, wanted.namespace, &wanted.object).await?;
    }
    Ok(())
}

/// Creates an object if it is not there.
async fn ensure(client: &Client, (group, version, plural): (&str, &str, &str), namespace: &str, object: &Value) -> Result<(), FirstObjectsError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let failed = |source| FirstObjectsError::Object { name: format!("{plural} {name}"), source };
    let api = client.api(group, version, plural, namespace);
    if api.find::<Value>(name).await.map_err(failed)?.is_some() {
        return Ok(());
    }
    match api.create::<Value>(object).await {
        Err(error) if !error.is_already_exists() => Err(failed(error)),
        _ => Ok(()),
    }
}
