//! Takes a node out of its cluster and off the machine.
//!
//! ```text
//! cordon -> evict its pods -> wait -> stop what is left -> ask to be deleted -> stop containerd -> remove interfaces, cgroups, mounts, files
//! ```
//!
//! A node may not delete Nodes, its own included; it marks itself as leaving, and the control plane deletes it once it is silent. Without an API server
//! the machine is cleaned up all the same.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinSet;
use wheelhouse_client::{Client, ClientError, ListOptions, PatchKind, Target, Transport};
use wheelhouse_kinds::core::node::LEAVING;
use wheelhouse_kubelet::cri::Runtime;

use crate::args::Leave;
use crate::layout::{Layout, LayoutError, NodeFile};
use crate::transport::{IdentityError, NodeTransport};

const LOOK: Duration = Duration::from_secs(1);
/// What a pod gets that nobody could move.
const STOP: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("pods are left on this node after {0:?}: {1}; --force does not wait for them")]
    Pods(Duration, String),
}

pub async fn leave(flags: &Leave) -> Result<(), LeaveError> {
    let layout = Layout::new(&flags.place);
    let file = layout.read()?;
    let target = Target { address: file.endpoint.clone(), server_name: file.server_name.clone() };
    let transport = NodeTransport::new(target, layout.text(&layout.ca())?, &layout.text(&layout.client())?)?;
    let client = Client::new(transport as Arc<dyn Transport>).user_agent("wheelhouse-node");
    match drain(&client, &file, flags).await? {
        Ok(()) => {}
        Err(error) => eprintln!("the API server does not answer ({error}); this machine is cleaned up all the same"),
    }
    stop_agent(&layout).await;
    stop_pods(&layout, &file).await;
    let mark = json!({"metadata": {"annotations": {LEAVING: "true"}}});
    match client.api("", "v1", "nodes", "").patch::<Value>(&file.node_name, "", PatchKind::Merge, "", &mark).await {
        Ok(_) => println!("node {} leaves {}", file.node_name, file.server_name),
        Err(error) if error.is_not_found() => {}
        Err(error) => eprintln!("the Node object stays behind ({error}); `kubectl delete node {}` removes it", file.node_name),
    }
    clean_up(&layout, &file).await;
    Ok(())
}

/// The outer error ends the command; the inner one is an API server that is away.
async fn drain(client: &Client, file: &NodeFile, flags: &Leave) -> Result<Result<(), ClientError>, LeaveError> {
    let nodes = client.api("", "v1", "nodes", "");
    if let Err(error) = nodes.patch::<Value>(&file.node_name, "", PatchKind::Merge, "", &json!({"spec": {"unschedulable": true}})).await {
        return Ok(if error.is_not_found() { Ok(()) } else { Err(error) });
    }
    let started = tokio::time::Instant::now();
    let limit = Duration::from_secs(if flags.force { 0 } else { flags.timeout });
    loop {
        let pods = match movable(client, &file.node_name).await {
            Ok(pods) => pods,
            Err(error) => return Ok(Err(error)),
        };
        if pods.is_empty() || flags.force {
            return Ok(Ok(()));
        }
        if started.elapsed() > limit {
            let names: Vec<String> = pods.iter().map(|pod| name(pod).join("/")).collect();
            return Err(LeaveError::Pods(limit, names.join(", ")));
        }
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let [namespace, name] = name(pod);
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}});
            // A disruption budget may refuse now and allow later.
            let _ = client.api("", "v1", "pods", &namespace).post::<Value>(&name, "eviction", &eviction).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn name(pod: &Pod) -> [String; 2] {
    [pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default()]
}

/// Pods that are to run elsewhere: not ended, not a DaemonSet's, not from a file.
async fn movable(client: &Client, node: &str) -> Result<Vec<Pod>, ClientError> {
    let options = ListOptions { field_selector: format!("spec.nodeName={node}"), ..ListOptions::default() };
    let list: k8s_openapi::List<Pod> = client.api("", "v1", "pods", "").list(&options).await?;
    let stays = |pod: &Pod| {
        let daemon = pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet");
        let mirror = pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"));
        daemon || mirror || matches!(wheelhouse_kinds::core::pod::state::phase(pod), "Succeeded" | "Failed")
    };
    Ok(list.items.into_iter().filter(|pod| !stays(pod)).collect())
}

/// The agent would start what is stopped here.
async fn stop_agent(layout: &Layout) {
    let Ok(id) = layout.text(&layout.pid()) else { return };
    let process = Path::new("/proc").join(id.trim());
    let is_agent = std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("wheelhouse-node"));
    if is_agent {
        terminate(&process).await;
    }
}

/// SIGTERM, and a while to follow it.
async fn terminate(process: &Path) {
    if let Some(id) = process.file_name() {
        let _ = Command::new("kill").arg("-TERM").arg(id).status().await;
    }
    let started = tokio::time::Instant::now();
    while process.exists() && started.elapsed() < STOP {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn stop_pods(layout: &Layout, file: &NodeFile) {
    let runtime = Runtime::new(&layout.socket(file));
    let mut stops = JoinSet::new();
    for container in runtime.containers(None).await.unwrap_or_default() {
        let runtime = runtime.clone();
        stops.spawn(async move { runtime.stop_container(&container.id, STOP).await });
    }
    while stops.join_next().await.is_some() {}
    let config = layout.kubelet(file);
    for sandbox in runtime.sandboxes(None).await.unwrap_or_default() {
        if let Some(pod) = sandbox.metadata {
            let _ = std::fs::remove_dir_all(config.pod_logs(&pod.namespace, &pod.name, &pod.uid));
        }
        let _ = runtime.stop_sandbox(&sandbox.id).await;
        let _ = runtime.remove_sandbox(&sandbox.id).await;
    }
}

/// Everything that the node made on this machine. What is not there any more is no failure.
async fn clean_up(layout: &Layout, file: &NodeFile) {
    if file.runtime_socket.is_none() {
        stop_containerd(layout).await;
        let _ = Command::new("ip").args(["link", "delete", &file.bridge]).output().await;
    }
    for pod in std::fs::read_dir(layout.kubelet_root().join("pods")).into_iter().flatten().flatten() {
        let _ = wheelhouse_kubelet::volumes::tear_down(&pod.path()).await;
    }
    let _ = wheelhouse_kubelet::pods::cgroup::remove_path(&file.cgroup_root, wheelhouse_kubelet::pods::cgroup::is_v2());
    for folder in [layout.state(), layout.run()] {
        if let Err(error) = std::fs::remove_dir_all(folder)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("{} stays behind: {error}", folder.display());
        }
    }
}

/// The process that was started with this node's configuration, and no other.
async fn stop_containerd(layout: &Layout) {
    let config = layout.containerd_config().display().to_string();
    let of = |process: &Path| {
        let words = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let words: Vec<String> = words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        words.first().is_some_and(|program| program.ends_with("containerd")) && words.contains(&config)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    for process in processes.filter(|path| of(path)) {
        terminate(&process).await;
    }
}
