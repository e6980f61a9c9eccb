//! `wheelhouse-api`: wires the tenant API to the system control plane and serves it.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use tokio::net::TcpListener;
use wheelhouse_pki::SealingKey;
use wheelhouse_runtime::telemetry::{self, LogFormat};
use wheelhouse_runtime::tls::{CertificateSlot, api_server_config};
use wheelhouse_tenant_api::config::Config;
use wheelhouse_tenant_api::state::App;
use wheelhouse_tenant_api::{router, serve};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::init("wheelhouse-api", if config.json_logs { LogFormat::Json } else { LogFormat::Human })?;
    let read = |path: &std::path::Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let system = wheelhouse_client::kubeconfig::client(&read(&config.kubeconfig)?)?.user_agent("wheelhouse-api");
    let operator_key = STANDARD.decode(read(&config.operator_key)?.trim()).context("the operator's key is not base64")?;
    let operator_key = SealingKey::from_bytes(&operator_key)?;
    let certificate = CertificateSlot::from_pem(&read(&config.tls_cert)?, &read(&config.tls_key)?)?;
    let tls = api_server_config(certificate, &[b"h2", b"http/1.1"])?;
    let listener = TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    tracing::info!(address = %config.listen, "serving the tenant API");
    let app = App::new(system, operator_key, &config);
    let stop = async {
        let _ = wheelhouse_runtime::shutdown::requested().await;
    };
    serve::serve(listener, tls, router(app), stop).await;
    Ok(())
}
