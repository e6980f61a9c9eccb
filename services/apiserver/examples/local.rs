//! One API server over a store in memory, on a TLS port, with a generated CA and an administrator's kubeconfig.
//!
//! ```text
//! cargo run --example local -- --listen 127.0.0.1:16443 --kubeconfig /tmp/local.kubeconfig [--controllers a,b,-c]
//! ```
//!
//! It is for playing recorded answers and for trying `kubectl` by hand; the product's process is the host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use wheelhouse_access::token::{Issuer, SigningKey};
use wheelhouse_apiserver::{ApiServer, Catalogue, Config, ConnectionInfo, Credentials, InProcess, Security, Shared, bootstrap, serve_connection};
use wheelhouse_base::{Clock, ClusterId, SystemClock};
use wheelhouse_client::Client;
use wheelhouse_controllers::effects::NoEffects;
use wheelhouse_controllers::{Controllers, Selection, catalog};
use wheelhouse_kinds::registry::{Profile, Registry};
use wheelhouse_mvcc::{Command, Fence};
use wheelhouse_pki::{AltName, ClusterBundle, Credential, Kubeconfig, RsaKey, Subject, certificates_from_pem};
use wheelhouse_runtime::tls::{CertificateSlot, api_server_config};
use wheelhouse_store::{MemoryStore, Store};

/// What the recordings' server ran.
const CONTROLLERS: &str = "namespace-controller,serviceaccount-controller,garbage-collector-controller,clusterrole-aggregation-controller";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let flag = |name: &str, default: &str| {
        arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).map_or(default.to_owned(), String::clone)
    };
    let listen: SocketAddr = flag("--listen", "127.0.0.1:16443").parse().context("--listen")?;
    let kubeconfig = flag("--kubeconfig", "local.kubeconfig");
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();

    let now = SystemClock.now();
    let bundle = ClusterBundle::create(ClusterId::from_random(1), &RsaKey::generate()?, now)?;
    let issuer = Issuer {
        url: "https://kubernetes.default.svc".into(),
        audiences: vec!["https://kubernetes.default.svc".into()],
        signing: SigningKey::from_pem(bundle.service_account_key.as_bytes())?,
        retired: Vec::new(),
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let credentials = Credentials::new(certificates_from_pem(&bundle.ca_certificate), issuer);
    let security = Security::new(store.clone(), clock.clone(), credentials);
    let registry = Registry::new(Profile::Tenant);
    let shared = Shared::new(Catalogue::new(registry.clone()));
    let config = Config { client_ca_pem: bundle.ca_certificate.clone(), ..Config::default() };
    let server = ApiServer::new(config, store.clone(), shared, security);
    bootstrap::run(&server).await?;
    // The recordings come from a server whose first revisions are compacted.
    store.commit(Command::Compact { revision: store.snapshot().revision() - 1 }).await?;

    let known = catalog::all(&bundle.ca_certificate);
    let names: Vec<&str> = known.iter().map(|reconciler| reconciler.name()).collect();
    let selection = Selection::parse(&flag("--controllers", CONTROLLERS), &names)?;
    let term = store.leadership().borrow().term;
    let controllers = Controllers {
        store: store.clone(),
        registry: Arc::new(registry),
        client: Client::new(Arc::new(InProcess(server.clone()))).extension(Fence { term }),
        clock,
        effects: Arc::new(NoEffects),
        reconcilers: known.into_iter().filter(|reconciler| selection.takes(&**reconciler)).collect(),
        consumers: Vec::new(),
    };
    let (_view, running) = controllers.prepare();
    let controllers = tokio::spawn(running);

    let addresses = [AltName::Ip(listen.ip()), AltName::Dns("localhost".into())];
    let (certificate, key) =
        bundle.issue_serving("wheelhouse.internal", IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)), &addresses, wheelhouse_pki::SERVING_LIFE, now)?;
    let tls = api_server_config(CertificateSlot::from_pem(&certificate, &key)?, &[b"h2", b"http/1.1"])?;
    let administrator = Subject::new("admin", &["system:masters"]);
    let (certificate, key) = bundle.issue_client(administrator, Duration::from_secs(86_400), now)?;
    let file = Kubeconfig {
        name: "local".into(),
        user: "admin".into(),
        server: format!("https://{listen}"),
        tls_server_name: String::new(),
        ca_certificate: bundle.ca_certificate.clone(),
        credential: Credential::Certificate { certificate, key },
    };
    let listener = TcpListener::bind(listen).await?;
    std::fs::write(&kubeconfig, file.render())?;
    println!("serving on {listen}, kubeconfig {kubeconfig}");
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let (socket, peer) = tokio::select! {
            accepted = listener.accept() => accepted?,
            _ = tokio::signal::ctrl_c() => break,
        };
        let (acceptor, server) = (acceptor.clone(), server.clone());
        tokio::spawn(async move {
            let _ = socket.set_nodelay(true);
            let Ok(stream) = acceptor.accept(socket).await else { return };
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().iter().map(|c| c.as_ref().to_vec()).collect();
            serve_connection(server, stream, ConnectionInfo::new(peer, certificates)).await;
        });
    }
    server.drain();
    controllers.abort();
    Ok(())
}
