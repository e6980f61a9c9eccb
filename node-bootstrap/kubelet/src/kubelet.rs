//! The kubelet as a whole: makes the parts and runs them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use wheelhouse_base::Clock;
use wheelhouse_client::Client;
use wheelhouse_client::events::EventRecorder;
use wheelhouse_runtime::{Stop, Tasks};

use crate::config::KubeletConfig;
use crate::cri::Runtime;
use crate::node::heartbeat::Heartbeat;
use crate::node::housekeeping::Housekeeping;
use crate::node::machine;
use crate::pods::{ApiPods, Command, Executor, ExecutorParts, Followed, Manager, Services, Shared, files, follow};
use crate::probes::Prober;

/// Evictions that wait for the manager.
const COMMANDS: usize = 64;

/// What runs a node's pods. Everything it starts is a task of `tasks` and ends with it; containers run on.
pub struct Kubelet {
    pub shared: Arc<Shared>,
    pub commands: mpsc::Sender<Command>,
    pub runtime: Runtime,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("no address of this machine is known; name one with --node-ip")]
    NoAddress,
    #[error("cannot make {path}")]
    Folder {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Starts the kubelet. `api_address` (`host:port`) decides which of the machine's addresses is the node's.
pub fn start(config: KubeletConfig, client: Client, api_address: &str, clock: Arc<dyn Clock>, tasks: &Tasks) -> Result<Kubelet, StartError> {
    for path in [&config.root, &config.logs] {
        std::fs::create_dir_all(path).map_err(|source| StartError::Folder { path: path.clone(), source })?;
    }
    let config = Arc::new(config);
    let ips =
        if config.node_ips.is_empty() { vec![machine::address_towards(api_address).ok_or(StartError::NoAddress)?] } else { config.node_ips.clone() };
    let runtime = Runtime::new(&config.socket);
    let pressure = Arc::new(Mutex::default());
    let heartbeat = Heartbeat {
        config: Arc::clone(&config),
        client: client.clone(),
        runtime: runtime.clone(),
        clock: Arc::clone(&clock),
        machine: machine::read(),
        ips,
        pressure: Arc::clone(&pressure),
    };
    let facts = Arc::new(ArcSwap::from_pointee(heartbeat.node_facts()));
    let services = Arc::new(Services::default());
    let executor = Arc::new(Executor::new(ExecutorParts {
        config: Arc::clone(&config),
        client: client.clone(),
        runtime: runtime.clone(),
        prober: Prober::new(runtime.clone(), crate::probes::accept_any()),
        recorder: Arc::new(EventRecorder::new(client.clone(), "kubelet", Arc::clone(&clock))),
        clock: Arc::clone(&clock),
        facts,
        services: Arc::clone(&services),
    }));
    let shared = Arc::new(Shared::default());
    let (api_sender, api) = watch::channel(None);
    let (files_sender, files) = watch::channel(BTreeMap::new());
    let (commands, received) = mpsc::channel(COMMANDS);
    let mirrored = (api.clone(), files.clone());
    let registered = Arc::new(ArcSwap::from_pointee(None));
    let manager = Manager { executor, shared: Arc::clone(&shared), api, files, commands: received };
    let followed =
        |plural: &'static str, field_selector: String| Followed { client: client.clone(), group: "", version: "v1", plural, field_selector };

    let stop = || tasks.stop_signal();
    tasks.spawn("heartbeat", heartbeat.run(stop(), Arc::clone(&registered)));
    tasks.spawn("pods", manager.run(stop()));
    let own = followed("pods", format!("spec.nodeName={}", config.node_name));
    let mut known: BTreeMap<(String, String), Arc<Pod>> = BTreeMap::new();
    tasks.spawn(
        "watch pods",
        follow::<Pod>(own, stop(), move |pods| {
            let version = |pod: &Pod| pod.metadata.resource_version.clone();
            known.retain(|key, _| pods.contains_key(key));
            for (key, pod) in pods {
                if known.get(key).is_none_or(|known| version(known) != version(pod)) {
                    known.insert(key.clone(), Arc::new(pod.clone()));
                }
            }
            api_sender.send_replace(Some(known.clone()));
        }),
    );
    tasks.spawn("watch services", follow::<Service>(followed("services", String::new()), stop(), move |all| services.replace(all)));
    let (folder, name) = (config.manifests.clone(), config.node_name.clone());
    let mut stopped = stop();
    tasks.spawn("static pods", async move {
        match folder {
            Some(folder) => files::watch_folder(&folder, &name, files_sender, stopped).await,
            // The sender lives as long as the kubelet.
            None => stopped.stopped().await,
        }
    });
    tasks.spawn("mirror pods", mirror(client.clone(), mirrored, registered, stop()));
    let keeping = Housekeeping { config, runtime: runtime.clone(), clock, pressure, shared: Arc::clone(&shared), commands: commands.clone() };
    tasks.spawn("housekeeping", keeping.run(stop()));
    Ok(Kubelet { shared, commands, runtime })
}

/// Keeps the API's copies of static pods as the files are.
async fn mirror(
    client: Client,
    (mut api, mut files): (watch::Receiver<ApiPods>, watch::Receiver<BTreeMap<String, Arc<Pod>>>),
    registered: Arc<ArcSwap<Option<Node>>>,
    mut stop: Stop,
) {
    loop {
        let node = Option::clone(&registered.load());
        let (pods, manifests) = (api.borrow_and_update().clone(), files.borrow_and_update().clone());
        let mut failed = node.is_none();
        if let (Some(node), Some(pods)) = (node, pods) {
            for step in files::plan(&manifests, &pods, &node) {
                if let Err(error) = files::carry_out(&client, &step).await {
                    tracing::info!(error = &error as &dyn std::error::Error, "the API's copy of a static pod is not as it should be yet");
                    failed = true;
                }
            }
        }
        tokio::select! {
            () = stop.stopped() => return,
            changed = api.changed() => if changed.is_err() { return },
            changed = files.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(MIRROR_RETRY), if failed => {}
        }
    }
}

/// Between attempts at a copy of a static pod.
const MIRROR_RETRY: Duration = Duration::from_secs(5);

/// How long a stopping kubelet waits for its tasks: they only write what they were writing.
pub const STOP_GRACE: Duration = Duration::from_secs(5);
