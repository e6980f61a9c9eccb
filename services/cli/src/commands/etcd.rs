//! `wheelhouse cluster etcd`: a local plain-text port for etcdctl. The proxy adds TLS, the server name and a credential, and touches no byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use wheelhouse_client::kubeconfig::Connection;

use crate::error::CliError;

/// The label before a cluster's server name under which its hosts serve the etcd API.
const ETCD_LABEL: &str = "etcd";

/// The proxy's credential; a working day.
pub const CREDENTIAL_LIFE: Duration = Duration::from_secs(12 * 3600);

pub async fn serve(kubeconfig: &str, listen: SocketAddr, name: &str) -> Result<(), CliError> {
    let connection = Connection::parse(kubeconfig).map_err(|error| CliError::Failed(error.to_string()))?;
    let config = connection.tls(&[b"h2"]).map_err(|error| CliError::Failed(error.to_string()))?;
    let target = connection.target;
    let name_of_etcd = format!("{ETCD_LABEL}.{}", target.server_name);
    let server_name =
        rustls::pki_types::ServerName::try_from(name_of_etcd.clone()).map_err(|error| CliError::Failed(format!("{name_of_etcd}: {error}")))?;
    let connector = TlsConnector::from(Arc::new(config));
    let listener = TcpListener::bind(listen).await.map_err(|error| CliError::Failed(format!("cannot listen on {listen}: {error}")))?;
    println!("The etcd API of cluster {name} is on {listen} (read-only), until Ctrl-C.");
    println!("Try: etcdctl --endpoints http://{listen} get /registry/core/namespaces/ --prefix --keys-only");
    loop {
        let (mut local, _) = tokio::select! {
            accepted = listener.accept() => accepted.map_err(|error| CliError::Failed(error.to_string()))?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let (connector, server_name, address) = (connector.clone(), server_name.clone(), target.address.clone());
        tokio::spawn(async move {
            let piped = async {
                let remote = TcpStream::connect(&address).await?;
                remote.set_nodelay(true)?;
                let mut remote = connector.connect(server_name, remote).await?;
                tokio::io::copy_bidirectional(&mut local, &mut remote).await
            };
            if let Err(error) = piped.await
                && error.kind() != std::io::ErrorKind::UnexpectedEof
            {
                eprintln!("a connection to {address} ended: {error}");
            }
        });
    }
}
