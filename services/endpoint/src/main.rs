//! Wires the endpoint together.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tokio::net::TcpListener;
use wheelhouse_base::routes::ALPN;
use wheelhouse_endpoint::config::Config;
use wheelhouse_endpoint::listener::{self, Endpoint, Limits};
use wheelhouse_endpoint::metrics::EndpointMetrics;
use wheelhouse_endpoint::streams;
use wheelhouse_runtime::status_server::{self, Page};
use wheelhouse_runtime::{CertificateFiles, Metrics, Tasks, shutdown, telemetry, tls};

/// What is left after the drain is closed; the tasks themselves need no time.
const GRACE: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::init("wheelhouse-endpoint", config.log_format.parse().map_err(anyhow::Error::msg).context("--log-format")?)?;

    std::fs::create_dir_all(&config.data_dir).with_context(|| format!("making {}", config.data_dir.display()))?;
    let credential = |name: &str| {
        let path = config.credentials.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let files = CertificateFiles { certificate: config.credentials.join("tls.crt"), key: config.credentials.join("tls.key") };
    let identity = files.load().context("--credentials")?;
    let tls = tls::client_config(&credential("ca.crt")?, Some(identity.clone()), &[ALPN])?;
    let table = streams::load(&config.data_dir)?;
    anyhow::ensure!(table.hosts().next().is_some() || !config.hosts.is_empty(), "no host is known yet: name one with --host");

    let limits = Limits { per_cluster: config.cluster_connections, total: config.connections };
    let metrics = EndpointMetrics::new(Metrics::default());
    let endpoint = Endpoint::new(config.base_domain.clone(), table, limits, metrics);
    let (accepting, connections, background) = (Tasks::new("accept"), Tasks::new("connections"), Tasks::new("endpoint"));

    let clients = TcpListener::bind(config.listen).await.with_context(|| format!("listening on {}", config.listen))?;
    let status = TcpListener::bind(config.metrics_listen).await.with_context(|| format!("listening on {}", config.metrics_listen))?;
    streams::run(&background, Arc::clone(&endpoint), tls, config.hosts.clone(), config.data_dir.clone())?;
    background.spawn("certificate", files.follow(identity, background.stop_signal()));
    let (of_status, accepts) = (Arc::clone(&endpoint), accepting.stop_signal());
    status_server::serve(&background, status, move |path| match path {
        "/metrics" => Some(Page::ok(of_status.metrics.render())),
        "/healthz" | "/livez" | "/readyz" if accepts.is_stopped() => Some(Page::unavailable("draining\n")),
        "/readyz" if of_status.table.read().hosts().next().is_none() => Some(Page::unavailable("no host is known yet\n")),
        "/healthz" | "/livez" | "/readyz" => Some(Page::ok("ok\n")),
        _ => None,
    });
    listener::serve(&accepting, &connections, Arc::clone(&endpoint), clients);
    tracing::info!(listen = %config.listen, metrics = %config.metrics_listen, "the endpoint is up");

    shutdown::requested().await?;
    accepting.stop(GRACE).await;
    let drained = async {
        while endpoint.open_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    if tokio::time::timeout(config.drain(), drained).await.is_err() {
        tracing::info!(connections = endpoint.open_connections(), "closing connections that did not end in time");
    }
    connections.stop(Duration::ZERO).await;
    background.stop(GRACE).await;
    Ok(())
}
