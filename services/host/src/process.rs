//! `run`: everything wired together, and taken apart in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use wheelhouse_base::routes::KnownHost;
use wheelhouse_base::{Clock, SystemClock};
use wheelhouse_client::Client;
use wheelhouse_controllers::Selection;
use wheelhouse_fleet::cluster::Settings;
use wheelhouse_fleet::host::Patience;
use wheelhouse_kinds::fleet::{ControlPlaneReplica, GROUP, Host as HostObject, SYSTEM_NAMESPACE, VERSION};
use wheelhouse_replication::{GroupManager, HostDisk, HostParts as ReplicationParts, Limits};
use wheelhouse_runtime::status_server::{self, Page};
use wheelhouse_runtime::{Metrics, Tasks, shutdown, tls};

use crate::config::Run;
use crate::directory::{Directory, KeptHosts};
use crate::follow::{Resource, follow};
use crate::host::{Host, HostParts};
use crate::identity;
use crate::join::Registrar;
use crate::peers::PeersPort;
use crate::plan::Assigned;
use crate::registration::Registration;
use crate::routes::Routes;
use crate::system::SystemTransport;
use crate::transport::{self, Frames, MtlsTransport};
use crate::{clients, init, report};

/// A killed predecessor's disk work ends within this.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// What is left after the drain gets this long.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a host until it is told to stop.
pub async fn run(flags: &Run) -> anyhow::Result<()> {
    let directory = Directory::new(&flags.data_dir);
    let file = directory.host()?;
    if let Some(name) = &flags.name {
        anyhow::ensure!(*name == file.name, "{} holds the host {}, not {name}", flags.data_dir.display(), file.name);
    }
    let _lock = directory.lock(LOCK_PATIENCE)?;
    let keys = directory.keys()?;
    let authority = directory.authority(&keys)?;
    let certificate = identity::load(&directory)?;
    identity::renew_if_due(&directory, &keys, &file, &certificate, flags.certificate_life(), SystemClock.now())?;
    let incarnation = incarnation();
    let metrics = Metrics::default();
    let tasks = Tasks::new(format!("host {}", file.name));

    let listen = |address| async move { TcpListener::bind(address).await.with_context(|| format!("listening on {address}")) };
    let (clients_listener, peers_listener, status_listener) =
        (listen(file.clients_listen).await?, listen(file.peers_listen).await?, listen(file.metrics_listen).await?);

    let mut hosts = directory.hosts()?;
    hosts.retain(|h| h.name != file.name);
    hosts.push(file.known());
    let routes = Routes::new(file.known(), incarnation.clone(), hosts);
    let peer_tls = tls::client_config(&authority.certificate_pem(), Some(certificate.clone()), &[transport::ALPN])?;
    let transport = MtlsTransport::new(routes.clone(), file.base_domain.clone(), peer_tls, tasks.clone());
    let disk = HostDisk::open_reserving(&directory.path("db"), flags.disk_reserve_mib.map(|mib| mib << 20)).context("opening the disk")?;
    let parts = ReplicationParts {
        host: file.name.clone(),
        disk: Arc::clone(&disk),
        transport: Arc::new(Frames(Arc::clone(&transport))),
        clock: Arc::new(SystemClock),
    };
    let groups = GroupManager::with_limits(parts, Limits { park_after: flags.park_after(), ..Limits::default() });
    let system = Client::new(SystemTransport::new(directory.clone(), routes.clone(), file.base_domain.clone())).user_agent("wheelhouse-host");
    let host = Host::new(HostParts {
        directory: directory.clone(),
        file: file.clone(),
        keys: keys.clone(),
        groups: Arc::clone(&groups),
        routes: routes.clone(),
        system: system.clone(),
        controllers: selection(&flags.controllers)?,
        scheduler: !flags.no_scheduler,
        patience: flags.patience(),
        certificate_life: flags.certificate_life(),
        metrics: metrics.clone(),
        background: Tasks::new("background"),
    });

    let registrar = Registrar { authority, operator_key: keys.operator.clone(), host: file.clone() };
    let (learned, kept) = (routes.clone(), Arc::new(KeptHosts::new(directory.clone())));
    let keeping = Arc::clone(&kept);
    // On disk before the new host has its answer: from then on it may be one of a quorum that this host must find again after a restart.
    let joined = Box::new(move |known: KnownHost| keeping.keep(&learned.learn(known)));
    let port = PeersPort::new(Arc::clone(&transport), routes.clone(), registrar, host.serving.clone(), certificate.clone(), joined)?;
    Arc::new(port).serve(&tasks, peers_listener);
    clients::serve(&tasks, clients_listener, host.serving.clone(), file.base_domain.clone());
    serve_status(&tasks, status_listener, &host);

    let (assigned_to, assigned) = watch::channel(None);
    tasks.spawn("replicas", Arc::clone(&host).reconcile(assigned, tasks.stop_signal()));
    tasks.spawn("assignments", follow_assignments(system.clone(), &file.name, assigned_to, &tasks));
    tasks.spawn("known-hosts", follow_hosts(system.clone(), Arc::clone(&host), kept, &tasks));
    tasks.spawn("reports", report::run(Arc::clone(&host), tasks.stop_signal()));
    tasks.spawn("disk-space", Arc::clone(&host).watch_disk(tasks.stop_signal()));
    tasks.spawn("renewal", renew(Arc::clone(&host), certificate, &tasks));
    // The heartbeat goes on while the host drains, and says so.
    let heartbeat = Tasks::new("heartbeat");
    let registration =
        Registration { client: system, host: file.clone(), incarnation, vitals: host.vitals.subscribe(), heartbeat: flags.patience().heartbeat };
    heartbeat.spawn("registration", registration.run(heartbeat.stop_signal()));
    tracing::info!(host = %file.name, clients = %file.clients_listen, peers = %file.peers_listen, "the host is up");

    // Faulted replicas change the vitals, so a failed disk is noticed with the first of them. Nothing is written after a failed write: the service
    // manager starts the process again, and what the disk really holds is found out then.
    let mut vitals = host.vitals.subscribe();
    tokio::select! {
        requested = shutdown::requested() => requested?,
        _ = vitals.wait_for(|_| disk.has_failed()) => anyhow::bail!("the disk failed a write; the process ends so that it starts from what is on disk"),
    }
    drain(&host, flags.drain()).await;
    heartbeat.stop(GRACE).await;
    tasks.stop(GRACE).await;
    host.stop_all().await;
    groups.shutdown().await;
    host.background.stop(GRACE).await;
    disk.close();
    Ok(())
}

/// New clients go elsewhere, leaderships are handed over, watches end; then whatever is still open is cut.
async fn drain(host: &Arc<Host>, limit: Duration) {
    host.routes.drain();
    host.vitals.send_modify(|v| v.draining = true);
    let handing = async {
        let remaining = host.groups.hand_over().await;
        tracing::info!(remaining, "leaderships are handed over");
        for server in host.servers() {
            server.drain();
        }
        // Connections end within a round trip; who holds on is cut off when the tasks stop.
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    if tokio::time::timeout(limit, handing).await.is_err() {
        tracing::warn!("not everything was handed over in time");
    }
}

fn serve_status(tasks: &Tasks, listener: TcpListener, host: &Arc<Host>) {
    let host = Arc::clone(host);
    status_server::serve(tasks, listener, move |path| match path {
        "/metrics" => {
            let vitals = *host.vitals.borrow();
            host.metrics.gauge("wheelhouse_host_replicas", "Replicas that run here.", &[]).set(vitals.replicas as f64);
            host.metrics.gauge("wheelhouse_host_leaders", "Groups led from here.", &[]).set(vitals.leaders as f64);
            let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
            host.metrics.gauge("wheelhouse_host_tasks", "Tasks of this process that have not ended.", &[]).set(tasks as f64);
            let clusters: Vec<_> = host.running().into_values().map(|replica| (replica.id.cluster.to_string(), replica.server.metrics())).collect();
            Some(Page::ok(host.metrics.render_with(&clusters)))
        }
        "/healthz" | "/livez" | "/readyz" if host.vitals.borrow().draining => Some(Page::unavailable("draining\n")),
        "/healthz" | "/livez" | "/readyz" => Some(Page::ok("ok\n")),
        _ => None,
    });
}

fn follow_assignments(
    client: Client,
    host: &wheelhouse_base::HostName,
    assigned: watch::Sender<Option<BTreeMap<String, Assigned>>>,
    tasks: &Tasks,
) -> impl Future<Output = ()> + Send + use<> {
    let resource = Resource {
        client,
        group: GROUP,
        version: VERSION,
        plural: "controlplanereplicas",
        namespace: SYSTEM_NAMESPACE,
        field_selector: format!("spec.host={host}"),
    };
    follow(resource, tasks.stop_signal(), move |objects: &BTreeMap<String, ControlPlaneReplica>| {
        let of = |(name, r): (&String, &ControlPlaneReplica)| {
            (name.clone(), Assigned { spec: r.spec.clone(), uid: r.uid().to_owned(), deleting: r.is_deleting() })
        };
        let fresh = Some(objects.iter().map(of).collect());
        assigned.send_if_modified(|old| std::mem::replace(old, fresh.clone()) != fresh);
    })
}

fn follow_hosts(client: Client, host: Arc<Host>, kept: Arc<KeptHosts>, tasks: &Tasks) -> impl Future<Output = ()> + Send + use<> {
    let resource = Resource { client, group: GROUP, version: VERSION, plural: "hosts", namespace: "", field_selector: String::new() };
    follow(resource, tasks.stop_signal(), move |objects: &BTreeMap<String, HostObject>| {
        let known = |h: &HostObject| {
            Some(KnownHost { name: h.name().parse().ok()?, clients: h.spec.addresses.clients.clone(), peers: h.spec.addresses.peers.clone() })
        };
        let mut hosts: Vec<KnownHost> = objects.values().filter_map(known).collect();
        // Before this host has registered, the list may lack hosts that it was told of when it joined.
        if !hosts.iter().any(|h| h.name == host.file.name) {
            return;
        }
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        host.routes.set_hosts(hosts.clone());
        kept.keep(&hosts);
    })
}

/// Replaces certificates in time, while everything runs.
fn renew(host: Arc<Host>, certificate: tls::CertificateSlot, tasks: &Tasks) -> impl Future<Output = ()> + Send + use<> {
    let mut stop = tasks.stop_signal();
    let pause = identity::look_every(host.certificate_life);
    async move {
        while stop.or(tokio::time::sleep(pause)).await.is_some() {
            match identity::renew_if_due(&host.directory, &host.keys, &host.file, &certificate, host.certificate_life, SystemClock.now()) {
                Ok(true) => tracing::info!("the host's certificate was renewed"),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "the host's certificate could not be renewed"),
            }
            let kept = host.directory.authority(&host.keys).map_err(anyhow::Error::from);
            match kept.and_then(|authority| init::renew_credentials(&host.directory, &authority, &host.file, SystemClock.now())) {
                Ok(0) => {}
                Ok(renewed) => tracing::info!(renewed, "credentials beside the host were renewed"),
                Err(error) => tracing::error!(%error, "credentials beside the host could not be renewed"),
            }
            for (name, replica) in host.running() {
                match replica.renew_if_due(&host) {
                    Ok(true) => tracing::info!(replica = %name, "the serving certificate was renewed"),
                    Ok(false) => {}
                    Err(error) => tracing::error!(replica = %name, %error, "the serving certificate could not be renewed"),
                }
            }
        }
    }
}

fn selection(names: &[String]) -> anyhow::Result<Selection> {
    let mut known: Vec<&str> = wheelhouse_controllers::catalog::all("").iter().map(|r| r.name()).collect();
    // Only their names are wanted.
    let settings = Settings { base_domain: String::new(), endpoint: String::new(), patience: Patience::default() };
    let fleet = wheelhouse_fleet::reconcilers(settings);
    known.extend(fleet.iter().map(|r| r.name()));
    Selection::parse(&names.join(","), &known).context("--controllers")
}

/// Nanoseconds of the start: two starts of one host never share them.
fn incarnation() -> String {
    format!("{:x}", SystemClock.now().as_micros())
}
