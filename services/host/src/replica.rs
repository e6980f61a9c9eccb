//! One running replica: its store, its API server, and the task that watches over both.
//!
//! ```text
//! store ── leadership, fault ─▶ watch-over ─▶ state (ready, role, voters) ─▶ routes, status in the system API
//!                                  ├─ leading: leader::run (bootstrap, controllers, scheduler), dropped with the leadership
//!                                  └─ leading: membership, step by step towards the orders
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use wheelhouse_access::token::{Issuer, SigningKey};
use wheelhouse_apiserver::security::audit_log;
use wheelhouse_apiserver::{ApiServer, Config, Credentials, Security, ServiceNetwork};
use wheelhouse_base::{Clock, ReplicaId, SystemClock, Term};
use wheelhouse_kinds::fleet::control_plane_replica::{ReplicaSpec, Role};
use wheelhouse_pki::{ClusterBundle, certificates_from_pem};
use wheelhouse_replication::{DataKey, GroupId, ReplicaState, ReplicatedStore, Role as MemberRole, Start, StartError};
use wheelhouse_runtime::tls::{self, CertificateSlot};
use wheelhouse_runtime::{Stop, Tasks};
use wheelhouse_store::Store;

use crate::clients::Served;
use crate::directory::DirectoryError;
use crate::etcd::EtcdAccess;
use crate::host::Host;
use crate::identity;
use crate::leader::{self, LeaderContext};
use crate::membership;

/// How long a cluster's tasks get to end when it is stopped here.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Between membership steps: a learner's progress is not announced, so it is looked at while a change is under way.
const MEMBERSHIP_PAUSE: Duration = Duration::from_millis(200);

/// Between looks at a role that may have changed unannounced.
const ROLE_PAUSE: Duration = Duration::from_millis(500);

/// Between attempts to prove that a started replica has caught up.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(50);

/// Protocols on the API port.
const ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];

#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    #[error("the cluster's keys cannot be opened: {0}")]
    Keys(String),
    #[error("the cluster's network is malformed: {0}")]
    Network(String),
    #[error("the store did not start")]
    Store(#[from] StartError),
    #[error("the audit log's directory")]
    Audit(#[from] DirectoryError),
    #[error("TLS cannot be set up")]
    Tls(#[from] tls::TlsError),
}

/// What others are told of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub ready: bool,
    pub role: Role,
    pub term: Term,
    /// As the leader knows them; empty elsewhere.
    pub voters: Vec<ReplicaId>,
    /// The generation of the orders that the membership has been compared with.
    pub generation: i64,
    pub fault: Option<String>,
}

pub struct Replica {
    pub id: GroupId,
    pub store: ReplicatedStore,
    pub server: Arc<ApiServer>,
    pub tasks: Tasks,
    pub state: watch::Receiver<State>,
    orders: watch::Sender<ReplicaSpec>,
    bundle: Arc<ClusterBundle>,
    certificate: CertificateSlot,
}

impl Replica {
    /// Starts the store and everything around it. `opened` says whether its data was here before.
    pub async fn start(host: &Arc<Host>, spec: ReplicaSpec, bundle: ClusterBundle, opened: bool) -> Result<Arc<Self>, ReplicaError> {
        let id = GroupId::new(spec.cluster_id.clone(), spec.replica_id);
        let voters = || spec.members.iter().map(|m| (m.replica_id, m.host.clone())).collect();
        let start = match (opened, spec.founder) {
            (true, true) => Start::ResumeFounder { voters: voters() },
            (true, false) => Start::Resume,
            (false, true) => Start::Found { voters: voters() },
            (false, false) => Start::Join,
        };
        let services = service_network(&spec)?;
        let key = DataKey::from_bytes(*bundle.data_key());
        let store = host.groups.start(wheelhouse_replication::ReplicaSpec { cluster: id.cluster.clone(), replica: id.replica, key, start }).await?;
        match Self::around(host, spec, bundle, store.clone(), services) {
            Ok(replica) => Ok(replica),
            Err(error) => {
                host.groups.stop(&id).await;
                Err(error)
            }
        }
    }

    fn around(
        host: &Arc<Host>,
        spec: ReplicaSpec,
        bundle: ClusterBundle,
        store: ReplicatedStore,
        services: ServiceNetwork,
    ) -> Result<Arc<Self>, ReplicaError> {
        let id = store.id().clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let shared_store: Arc<dyn Store> = Arc::new(store.clone());
        let (sink, audit) = audit_log(host.directory.audit(&id.cluster)?.join("audit.log"));
        let security =
            Security::new(Arc::clone(&shared_store), Arc::clone(&clock), credentials(&spec, &bundle)?).with_audit(sink).with_node_restriction();
        let config = Config {
            services: services.clone(),
            client_ca_pem: bundle.ca_certificate.clone(),
            front_proxy_ca_pem: bundle.front_proxy_ca_certificate.clone(),
            ..Config::default()
        };
        let shared = host.shared(&id.cluster);
        let server = ApiServer::new(config, shared_store, shared, security);

        let issued = serving(host, &bundle, &services)?;
        let certificate = CertificateSlot::from_pem(&issued.0, &issued.1)?;
        let tls = tls::api_server_config(certificate.clone(), ALPN)?;
        let etcd = EtcdAccess { store: store.clone(), certificate: certificate.clone(), authority: bundle.ca_certificate.as_str().into() };
        let tasks = Tasks::new(id.to_string());
        let (state, told) = watch::channel(State::default());
        let replica = Arc::new(Self {
            id: id.clone(),
            store,
            server: Arc::clone(&server),
            tasks: tasks.clone(),
            state: told,
            orders: watch::Sender::new(spec),
            bundle: Arc::new(bundle),
            certificate,
        });
        let served = Served { replica: id.replica, server, tls, etcd, tasks: tasks.clone(), ready: false };
        host.serving.insert(id.cluster.clone(), served);
        // It ends by itself when the server is gone, with everything written.
        host.background.spawn("audit-log", audit.run());
        tasks.spawn("watch-over", watch_over(Arc::clone(host), Arc::clone(&replica), state, tasks.stop_signal()));
        Ok(replica)
    }

    pub fn bundle(&self) -> &ClusterBundle {
        &self.bundle
    }

    /// What pods' addresses are taken from.
    pub fn pod_cidr(&self) -> String {
        self.orders.borrow().network.pod_cidr.clone()
    }

    /// New orders of the fleet; older ones are ignored.
    pub fn order(&self, spec: ReplicaSpec) {
        self.orders.send_if_modified(|now| {
            let newer = spec.generation >= now.generation && spec != *now;
            if newer {
                *now = spec;
            }
            newer
        });
    }

    /// Ends connections, tasks and the store; the data stays.
    pub async fn stop(&self, host: &Host) {
        host.serving.remove(&self.id.cluster);
        self.server.drain();
        self.tasks.stop(STOP_GRACE).await;
        host.groups.stop(&self.id).await;
    }

    /// A new serving certificate, if two thirds of the old one's life are over.
    pub fn renew_if_due(&self, host: &Host) -> Result<bool, ReplicaError> {
        let now = SystemClock.now();
        if wheelhouse_pki::CertificateInfo::parse(&self.certificate.leaf()).is_ok_and(|info| !info.validity.is_due(now)) {
            return Ok(false);
        }
        let services = service_network(&self.orders.borrow())?;
        let (certificate, key) = serving(host, &self.bundle, &services)?;
        self.certificate.replace(&certificate, &key)?;
        debug_assert!(!identity::is_due(&certificate, now));
        Ok(true)
    }
}

fn serving(host: &Host, bundle: &ClusterBundle, services: &ServiceNetwork) -> Result<(String, String), ReplicaError> {
    let first = IpAddr::V4(services.address(1));
    bundle.issue_serving(&host.file.base_domain, first, &[], host.certificate_life, SystemClock.now()).map_err(|e| ReplicaError::Keys(e.to_string()))
}

fn credentials(spec: &ReplicaSpec, bundle: &ClusterBundle) -> Result<Credentials, ReplicaError> {
    let signing = SigningKey::from_pem(bundle.service_account_key.as_bytes()).map_err(|e| ReplicaError::Keys(e.to_string()))?;
    let issuer = Issuer { url: spec.issuer.clone(), audiences: vec![spec.issuer.clone()], signing, retired: Vec::new() };
    Ok(Credentials::new(certificates_from_pem(&bundle.ca_certificate), issuer))
}

fn service_network(spec: &ReplicaSpec) -> Result<ServiceNetwork, ReplicaError> {
    let text = &spec.network.service_cidr;
    let malformed = || ReplicaError::Network(text.clone());
    let (base, prefix) = text.split_once('/').ok_or_else(malformed)?;
    let base: Ipv4Addr = base.parse().map_err(|_| malformed())?;
    Ok(ServiceNetwork { base, prefix: prefix.parse().map_err(|_| malformed())?, ..ServiceNetwork::default() })
}

/// Follows the store until the replica is stopped.
async fn watch_over(host: Arc<Host>, replica: Arc<Replica>, state: watch::Sender<State>, mut stop: Stop) {
    // A replica that has just started may be far behind, and a new cluster lacks the objects that its users rely on. It is ready once a read has
    // proven that neither is so.
    let caught_up = async {
        while !replica.store.barrier().await.is_ok_and(|snapshot| leader::has_first_objects(&snapshot, &replica.id.cluster)) {
            tokio::time::sleep(CATCH_UP_PAUSE).await;
        }
    };
    let mut leadership = replica.store.leadership();
    let mut orders = replica.orders.subscribe();
    let mut fault = replica.store.fault();
    let mut leading: Option<(Term, Tasks)> = None;
    let mut caught_up = Some(Box::pin(caught_up));
    loop {
        let now = *leadership.borrow_and_update();
        let ordered = orders.borrow_and_update().clone();
        let running = match replica.store.state() {
            ReplicaState::Running => None,
            ReplicaState::Faulted { reason } => Some(reason),
            ReplicaState::Stopped => Some("stopped".to_owned()),
        };
        if leading.as_ref().is_some_and(|(term, _)| !now.here || *term != now.term) {
            // Dropping the tasks aborts them, and the fence refuses what is still under way.
            leading = None;
        }
        if now.here && leading.is_none() {
            let tasks = Tasks::new(format!("{} leader", replica.id));
            let context = LeaderContext { host: Arc::clone(&host), replica: Arc::clone(&replica), term: now.term };
            tasks.spawn("leader", leader::run(context));
            leading = Some((now.term, tasks));
        }
        let members = replica.store.members();
        let own = members.iter().find(|m| m.replica == replica.id.replica);
        let fresh = State {
            ready: caught_up.is_none() && running.is_none() && now.leader.is_some(),
            role: match (now.here, now.leader.is_some(), own.map(|m| m.role)) {
                (true, _, _) => Role::Leader,
                (false, true, Some(MemberRole::Voter)) => Role::Follower,
                (false, true, Some(MemberRole::Learner)) => Role::Learner,
                _ => Role::Unknown,
            },
            term: now.term,
            voters: if now.here { members.iter().filter(|m| m.role == MemberRole::Voter).map(|m| m.replica).collect() } else { Vec::new() },
            generation: ordered.generation,
            fault: running,
        };
        host.serving.set_ready(&replica.id.cluster, fresh.ready);
        if state.send_if_modified(|old| std::mem::replace(old, fresh.clone()) != fresh) {
            host.replica_changed();
        }

        let step = if now.here { membership::next(&members, &ordered.members) } else { None };
        let changing = async {
            match &step {
                None => std::future::pending().await,
                Some(step) => {
                    if let Err(error) = membership::carry_out(&replica.store, step).await {
                        tracing::info!(replica = %replica.id, ?step, %error, "a membership step was not done");
                    }
                    tokio::time::sleep(MEMBERSHIP_PAUSE).await;
                }
            }
        };
        // Whether a learner votes by now is not announced on its own host.
        let unsettled = matches!(state.borrow().role, Role::Learner | Role::Unknown);
        let first_catch_up = async {
            match caught_up.as_mut() {
                Some(waiting) => waiting.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.stopped() => break,
            changed = leadership.changed() => if changed.is_err() { break },
            changed = orders.changed() => if changed.is_err() { break },
            _ = fault.changed() => {}
            () = first_catch_up => caught_up = None,
            () = tokio::time::sleep(ROLE_PAUSE), if unsettled => {}
            // A step that was cut off by a change is begun again; each is idempotent.
            () = changing => {}
        }
    }
}
