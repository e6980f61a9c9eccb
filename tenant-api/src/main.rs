//! `wheelhouse-api`: wires the tenant API to the system control plane and serves it.

use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tokio::net::TcpListener;
use wheelhouse_pki::SealingKey;
use wheelhouse_runtime::telemetry::{self, LogFormat};
use wheelhouse_runtime::tls::{CertificateSlot, api_server_config};
use wheelhouse_tenant_api::config::Config;
use wheelhouse_tenant_api::state::App;
use wheelhouse_tenant_api::{router, serve, tenants};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Between attempts to reach a system control plane that is not up yet.
const RETRY: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::init("wheelhouse-api", if config.json_logs { LogFormat::Json } else { LogFormat::Human })?;
    let read = |path: &std::path::Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let system = wheelhouse_client::kubeconfig::client(&read(&config.kubeconfig)?)?.user_agent("wheelhouse-api");
    let operator_key = std::fs::read(&config.operator_key).with_context(|| format!("cannot read {}", config.operator_key.display()))?;
    let operator_key = SealingKey::from_bytes(&operator_key)?;
    let certificate = CertificateSlot::from_pem(&read(&config.tls_cert)?, &read(&config.tls_key)?)?;
    let tls = api_server_config(certificate, &[b"h2", b"http/1.1"])?;
    let listener = TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    while let Err(error) = tenants::ensure_role(&system).await {
        tracing::info!(error = &error as &dyn std::error::Error, "waiting for the system control plane");
        tokio::time::sleep(RETRY).await;
    }
    tracing::info!(address = %config.listen, "serving the tenant API");
    let app = App::new(system, operator_key, &config);
    let stop = async {
        let _ = wheelhouse_runtime::shutdown::requested().await;
    };
    serve::serve(listener, tls, router(app), stop).await;
    Ok(())
}
