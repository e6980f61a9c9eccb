//! `wheelhouse-api`: wires the tenant API to the system control plane and serves it.

use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use tokio::net::TcpListener;
use wheelhouse_pki::SealingKey;
use wheelhouse_runtime::telemetry::{self, LogFormat};
use wheelhouse_runtime::tls::api_server_config;
use wheelhouse_runtime::{CertificateFiles, Tasks};
use wheelhouse_tenant_api::config::Config;
use wheelhouse_tenant_api::state::App;
use wheelhouse_tenant_api::{router, serve};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What runs beside the requests needs no time to end.
const GRACE: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::init("wheelhouse-api", if config.json_logs { LogFormat::Json } else { LogFormat::Human })?;
    let read = |path: &std::path::Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let system = wheelhouse_client::kubeconfig::client_of_file(&config.kubeconfig).context("--kubeconfig")?.user_agent("wheelhouse-api");
    let operator_key = STANDARD.decode(read(&config.operator_key)?.trim()).context("the operator's key is not base64")?;
    let operator_key = SealingKey::from_bytes(&operator_key)?;
    let files = CertificateFiles { certificate: config.tls_cert.clone(), key: config.tls_key.clone() };
    let certificate = files.load().context("--tls-cert and --tls-key")?;
    let tls = api_server_config(certificate.clone(), &[b"h2", b"http/1.1"])?;
    let background = Tasks::new("tenant API");
    background.spawn("certificate", files.follow(certificate, background.stop_signal()));
    let listener = TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    tracing::info!(address = %config.listen, "serving the tenant API");
    let app = App::new(system, operator_key, &config);
    let stop = async {
        let _ = wheelhouse_runtime::shutdown::requested().await;
    };
    serve::serve(listener, tls, router(app), stop).await;
    background.stop(GRACE).await;
    Ok(())
}
