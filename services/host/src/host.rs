//! The host: what its parts share, and the loop that brings what runs in line with what is assigned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use wheelhouse_apiserver::{ApiServer, Catalogue, Shared};
use wheelhouse_base::ClusterId;
use wheelhouse_client::{Client, ClientError, PatchKind};
use wheelhouse_controllers::Selection;
use wheelhouse_fleet::cluster::Settings;
use wheelhouse_fleet::effects::unwrap_bundle;
use wheelhouse_fleet::host::Patience;
use wheelhouse_fleet::key_pool::KeyPool;
use wheelhouse_fleet::names::bundle_name;
use wheelhouse_kinds::fleet::control_plane_replica::{FINALIZER, ReplicaSpec};
use wheelhouse_kinds::fleet::{ControlPlaneReplica, GROUP, SYSTEM_NAMESPACE, VERSION, system_registry};
use wheelhouse_kinds::registry::{Profile, Registry};
use wheelhouse_pki::ClusterBundle;
use wheelhouse_replication::{GroupId, GroupManager, StartError};
use wheelhouse_runtime::{Metrics, Stop, Tasks};

use crate::clients::Serving;
use crate::directory::{Directory, DirectoryError, HostFile, HostKeys, ReplicaFile};
use crate::plan::{Action, Assigned, Stored, plan};
use crate::registration::Vitals;
use crate::replica::{Replica, ReplicaError};
use crate::routes::Routes;

/// Replicas that are started or stopped at the same time; each is disk reads and a few keys' worth of CPU.
const AT_ONCE: usize = 16;

/// After a round in which something failed.
const RETRY: Duration = Duration::from_millis(500);

/// How often free space is looked at for the host's own condition; writes look for themselves.
const DISK_LOOK: Duration = Duration::from_secs(2);

/// What a host's parts share.
pub struct Host {
    pub directory: Directory,
    pub file: HostFile,
    pub keys: HostKeys,
    pub groups: Arc<GroupManager>,
    pub serving: Serving,
    pub routes: Routes,
    pub system: Client,
    pub controllers: Selection,
    pub scheduler: bool,
    pub patience: Patience,
    /// How long the certificates live that are made here.
    pub certificate_life: Duration,
    pub metrics: Metrics,
    pub vitals: watch::Sender<Vitals>,
    /// Tasks of the process.
    pub background: Tasks,
    tenant: Profiled,
    own: Profiled,
    /// Started with the first leadership of the system cluster; nobody else needs keys.
    key_pool: OnceLock<Arc<KeyPool>>,
    replicas: Mutex<BTreeMap<String, Entry>>,
    changed: Notify,
    reported: Notify,
}

/// What clusters of one profile share.
struct Profiled {
    registry: Arc<Registry>,
    shared: Arc<Shared>,
}

impl Profiled {
    fn new(registry: Registry) -> Self {
        Self { shared: Shared::new(Catalogue::new(registry.clone())), registry: Arc::new(registry) }
    }
}

/// A replica of this host that runs, or why it does not.
#[derive(Clone)]
enum Entry {
    Running(Arc<Replica>),
    /// Its data is gone; it is only there to say so.
    Lost(String),
}

/// What a host is made of.
pub struct HostParts {
    pub directory: Directory,
    pub file: HostFile,
    pub keys: HostKeys,
    pub groups: Arc<GroupManager>,
    pub routes: Routes,
    pub system: Client,
    pub controllers: Selection,
    pub scheduler: bool,
    pub patience: Patience,
    pub certificate_life: Duration,
    pub metrics: Metrics,
    pub background: Tasks,
}

#[derive(Debug, thiserror::Error)]
enum ActionError {
    #[error("the keys of {cluster}: {reason}")]
    Keys { cluster: ClusterId, reason: String },
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    #[error("destroying the data: {0}")]
    Destroy(String),
    #[error("taking the finalizer off: {0}")]
    Release(ClientError),
}

impl Host {
    pub fn new(parts: HostParts) -> Arc<Self> {
        let HostParts { directory, file, keys, groups, routes, system, controllers, scheduler, patience, certificate_life, metrics, background } =
            parts;
        Arc::new(Self {
            directory,
            file,
            keys,
            groups,
            serving: Serving::default(),
            routes,
            system,
            controllers,
            scheduler,
            patience,
            certificate_life,
            metrics,
            vitals: watch::Sender::new(Vitals::default()),
            background,
            tenant: Profiled::new(Registry::new(Profile::Tenant)),
            own: Profiled::new(system_registry()),
            key_pool: OnceLock::new(),
            replicas: Mutex::default(),
            changed: Notify::new(),
            reported: Notify::new(),
        })
    }

    fn profiled(&self, cluster: &ClusterId) -> &Profiled {
        if cluster.is_system() { &self.own } else { &self.tenant }
    }

    pub fn shared(&self, cluster: &ClusterId) -> Arc<Shared> {
        Arc::clone(&self.profiled(cluster).shared)
    }

    pub fn registry(&self, cluster: &ClusterId) -> Arc<Registry> {
        Arc::clone(&self.profiled(cluster).registry)
    }

    /// Keys for new clusters, made ahead.
    pub fn key_pool(&self) -> Arc<KeyPool> {
        Arc::clone(self.key_pool.get_or_init(KeyPool::start))
    }

    pub fn fleet_settings(&self) -> Settings {
        Settings { base_domain: self.file.base_domain.clone(), endpoint: self.file.endpoint.clone(), patience: self.patience }
    }

    /// Servers that run here, for draining.
    pub fn servers(&self) -> Vec<Arc<ApiServer>> {
        self.running().into_values().map(|r| Arc::clone(&r.server)).collect()
    }

    pub fn running(&self) -> BTreeMap<String, Arc<Replica>> {
        let replicas = self.replicas.lock();
        replicas.iter().filter_map(|(name, entry)| if let Entry::Running(r) = entry { Some((name.clone(), Arc::clone(r))) } else { None }).collect()
    }

    /// Replicas that lost their data, with the reason.
    pub fn lost(&self) -> BTreeMap<String, String> {
        let replicas = self.replicas.lock();
        replicas.iter().filter_map(|(name, entry)| if let Entry::Lost(why) = entry { Some((name.clone(), why.clone())) } else { None }).collect()
    }

    /// Some replica's state is another: routes at once, reports soon.
    pub fn replica_changed(&self) {
        let running = self.running();
        let routes = running.values().map(|r| {
            let state = r.state.borrow();
            ((r.id.cluster.clone(), r.id.replica), (state.ready, state.role == wheelhouse_kinds::fleet::control_plane_replica::Role::Leader))
        });
        let routes: BTreeMap<_, _> = routes.collect();
        let leaders = routes.values().filter(|(_, leader)| *leader).count() as i64;
        let (replicas, disk_full) = (running.len() as i64, self.groups.disk().is_low_on_space());
        self.vitals.send_modify(|v| *v = Vitals { replicas, leaders, disk_full, ..*v });
        self.routes.set_replicas(&routes);
        self.reported.notify_one();
    }

    /// Notices a disk that fills up or empties while no replica changes, until stopped.
    pub async fn watch_disk(self: Arc<Self>, mut stop: Stop) {
        while stop.or(tokio::time::sleep(DISK_LOOK)).await.is_some() {
            let full = self.groups.disk().is_low_on_space();
            self.vitals.send_if_modified(|v| std::mem::replace(&mut v.disk_full, full) != full);
        }
    }

    /// Resolves when a replica's state changed since it last did.
    pub async fn replica_change(&self) {
        self.reported.notified().await;
    }

    /// Runs rounds until stopped: one at once from disk alone, then one after each change of the assignments.
    pub async fn reconcile(self: Arc<Self>, mut assigned: watch::Receiver<Option<BTreeMap<String, Assigned>>>, mut stop: Stop) {
        loop {
            let settled = self.round(&mut assigned).await;
            tracing::debug!(settled, "a round over the replicas is done");
            let pause = if settled { Duration::MAX } else { RETRY };
            tokio::select! {
                () = stop.stopped() => return,
                changed = assigned.changed() => if changed.is_err() { return },
                () = self.changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Plans and acts until there is nothing left to do but wait for the API's next word; `false` if something failed.
    async fn round(self: &Arc<Self>, assigned: &mut watch::Receiver<Option<BTreeMap<String, Assigned>>>) -> bool {
        loop {
            let orders = assigned.borrow_and_update().clone();
            let files = match self.directory.replicas() {
                Ok(files) => files,
                Err(error) => {
                    tracing::error!(%error, "the replicas' files cannot be read");
                    return false;
                }
            };
            let stored: BTreeMap<String, Stored> =
                files.iter().map(|(n, f)| (n.clone(), Stored { spec: f.spec.clone(), uid: f.uid.clone() })).collect();
            let known: BTreeSet<String> = self.replicas.lock().keys().cloned().collect();
            let actions = plan(orders.as_ref(), &stored, &known);
            if actions.is_empty() {
                return true;
            }
            // What was let go is still in these orders until the API says otherwise; planning on them again would let it go again.
            let only_waits = actions.iter().all(|a| matches!(a, Action::Release { .. } | Action::Destroy { release: true, .. }));
            let results: Vec<bool> = stream::iter(actions.into_iter().map(|action| {
                let (host, files) = (Arc::clone(self), &files);
                async move {
                    tracing::debug!(?action, "acting");
                    let done = host.act(&action, files).await;
                    if let Err(error) = &done {
                        tracing::warn!(?action, %error, "an action on a replica failed");
                    }
                    done.is_ok()
                }
            }))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
            self.replica_changed();
            if results.contains(&false) {
                return false;
            }
            if only_waits {
                return true;
            }
        }
    }

    async fn act(self: &Arc<Self>, action: &Action, files: &BTreeMap<String, ReplicaFile>) -> Result<(), ActionError> {
        match action {
            Action::Adopt { name, spec, uid } => {
                let bundle = self.fetch_bundle(&spec.cluster_id).await?;
                let wrapped = ReplicaFile::new(spec.clone(), uid.clone(), &bundle, &self.keys);
                let file = wrapped.map_err(|e| ActionError::Keys { cluster: spec.cluster_id.clone(), reason: e.to_string() })?;
                Ok(self.directory.write_replica(name, &file)?)
            }
            Action::Update { name, spec, uid } => self.update(name, spec, uid, files),
            Action::Start { name } => match files.get(name) {
                Some(file) => self.start(name, file).await,
                None => Ok(()),
            },
            Action::Stop { name } => {
                self.stop(name).await;
                Ok(())
            }
            Action::Destroy { name, release } => {
                if let Some(file) = files.get(name) {
                    self.destroy(name, &file.spec).await?;
                }
                if *release { self.release(name).await } else { Ok(()) }
            }
            Action::Release { name } => self.release(name).await,
        }
    }

    fn update(&self, name: &str, spec: &ReplicaSpec, uid: &str, files: &BTreeMap<String, ReplicaFile>) -> Result<(), ActionError> {
        let Some(file) = files.get(name) else { return Ok(()) };
        self.directory.write_replica(name, &file.with_orders(spec.clone(), uid.to_owned()))?;
        if let Some(replica) = self.running().get(name) {
            replica.order(spec.clone());
        }
        Ok(())
    }

    async fn start(self: &Arc<Self>, name: &str, file: &ReplicaFile) -> Result<(), ActionError> {
        let bundle = file.bundle(&self.keys).map_err(|reason| ActionError::Keys { cluster: file.spec.cluster_id.clone(), reason })?;
        let entry = match Replica::start(self, file.spec.clone(), bundle, file.opened).await {
            Ok(replica) => Entry::Running(replica),
            Err(ReplicaError::Store(StartError::Lost(why))) => {
                tracing::error!(replica = name, %why, "a replica's data is lost; it must be replaced");
                Entry::Lost(why)
            }
            Err(error) => return Err(error.into()),
        };
        // Only from now on is missing data a loss.
        if !file.opened && matches!(entry, Entry::Running(_)) {
            self.directory.write_replica(name, &file.as_opened())?;
        }
        self.replicas.lock().insert(name.to_owned(), entry);
        Ok(())
    }

    /// Stops every replica; what they hold stays on disk.
    pub async fn stop_all(&self) {
        let all = std::mem::take(&mut *self.replicas.lock());
        let running = all.into_values().filter_map(|entry| if let Entry::Running(replica) = entry { Some(replica) } else { None });
        futures::future::join_all(running.map(|replica| async move { replica.stop(self).await })).await;
    }

    async fn stop(&self, name: &str) {
        let entry = self.replicas.lock().remove(name);
        if let Some(Entry::Running(replica)) = entry {
            replica.stop(self).await;
        }
    }

    /// Data, keys and metrics go; only then the file that would bring the replica back.
    async fn destroy(&self, name: &str, spec: &ReplicaSpec) -> Result<(), ActionError> {
        self.stop(name).await;
        let id = GroupId::new(spec.cluster_id.clone(), spec.replica_id);
        self.groups.destroy(&id).await.map_err(|e| ActionError::Destroy(e.to_string()))?;
        self.directory.remove_audit(&spec.cluster_id)?;
        self.directory.remove_replica(name)?;
        self.metrics.drop_cluster(spec.cluster_id.as_str());
        tracing::info!(replica = name, "destroyed");
        Ok(())
    }

    async fn fetch_bundle(&self, cluster: &ClusterId) -> Result<ClusterBundle, ActionError> {
        let failed = |reason| ActionError::Keys { cluster: cluster.clone(), reason };
        let secrets = self.system.api("", "v1", "secrets", SYSTEM_NAMESPACE);
        let secret: Value = secrets.get(&bundle_name(cluster)).await.map_err(|e| failed(e.to_string()))?;
        unwrap_bundle(&secret, cluster, &self.keys.operator).map_err(failed)
    }

    async fn release(&self, name: &str) -> Result<(), ActionError> {
        let api = self.system.api(GROUP, VERSION, "controlplanereplicas", SYSTEM_NAMESPACE);
        let Some(object) = api.find::<ControlPlaneReplica>(name).await.map_err(ActionError::Release)? else { return Ok(()) };
        let rest: Vec<&String> = object.metadata.finalizers.iter().flatten().filter(|f| *f != FINALIZER).collect();
        let patch = json!({"metadata": {"resourceVersion": object.metadata.resource_version, "finalizers": rest}});
        match api.patch::<Value>(name, "", PatchKind::Merge, "wheelhouse-host", &patch).await {
            Err(error) if !error.is_not_found() => Err(ActionError::Release(error)),
            _ => Ok(()),
        }
    }
}
