//! Runs a node that has joined: its runtime, its kubelet, and the renewal of its certificates.

use std::sync::Arc;
use std::time::Duration;

use wheelhouse_base::{Clock, SystemClock};
use wheelhouse_client::{Client, Target};
use wheelhouse_kubelet::cri::Runtime;
use wheelhouse_runtime::{Stop, Tasks, shutdown};

use crate::args::Place;
use crate::containerd::{self, ContainerdError};
use crate::credentials::{self, Purpose};
use crate::layout::{Layout, LayoutError};
use crate::transport::{IdentityError, NodeTransport};

/// Between attempts at a renewal that failed; there are months left.
const RENEWAL_RETRY: Duration = Duration::from_secs(600);
/// The longest wait for the next look at a certificate, since clocks may be set.
const RENEWAL_LOOK: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Containerd(#[from] ContainerdError),
    #[error("the node's certificate")]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Kubelet(#[from] wheelhouse_kubelet::StartError),
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
}

/// Runs until the process is asked to stop. Containers run on.
pub async fn run(place: &Place) -> Result<(), RunError> {
    let layout = Layout::new(place);
    let file = layout.read()?;
    layout.save(&layout.pid(), &std::process::id().to_string())?;
    let runtime = Runtime::new(&layout.socket(&file));
    if file.runtime_socket.is_none() {
        containerd::ensure(&layout, &runtime).await?;
    }
    let target = Target { address: file.endpoint.clone(), server_name: file.server_name.clone() };
    let transport = NodeTransport::new(target, layout.text(&layout.ca())?, &layout.text(&layout.client())?)?;
    let client = Client::new(Arc::clone(&transport) as Arc<dyn wheelhouse_client::Transport>).user_agent("wheelhouse-node");
    let tasks = Tasks::new("node");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let _kubelet = wheelhouse_kubelet::start(layout.kubelet(&file), client.clone(), &file.endpoint, clock, &tasks)?;
    tasks.spawn("renew certificate", renew(layout.clone(), file.node_name, client, transport, tasks.stop_signal()));
    shutdown::requested().await.map_err(RunError::Signals)?;
    tasks.stop(wheelhouse_kubelet::STOP_GRACE).await;
    let _ = std::fs::remove_file(layout.pid());
    Ok(())
}

/// Keeps the client certificate fresh.
async fn renew(layout: Layout, node_name: String, client: Client, transport: Arc<NodeTransport>, mut stop: Stop) {
    loop {
        let now = SystemClock.now();
        let due = layout.text(&layout.client()).ok().and_then(|pem| credentials::renewal(&pem)).unwrap_or(now);
        let mut wait = due.since(now).min(RENEWAL_LOOK);
        if wait.is_zero() {
            let renewed = credentials::obtain(&client, &node_name, &Purpose::Client).await;
            let taken = renewed.map_err(anyhow::Error::from).and_then(|pem| {
                layout.save(&layout.client(), &pem)?;
                Ok(transport.replace(&pem)?)
            });
            match taken {
                Ok(()) => tracing::info!("the node's certificate is renewed"),
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "the node's certificate is not renewed yet");
                    wait = RENEWAL_RETRY;
                }
            }
        }
        if stop.or(tokio::time::sleep(wait.max(Duration::from_secs(1)))).await.is_none() {
            return;
        }
    }
}
