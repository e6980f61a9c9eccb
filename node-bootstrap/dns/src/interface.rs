//! The interface that carries the DNS service's address on this node.

use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use wheelhouse_net::alone;

/// Programs of iproute2 end in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Its name.
const NAME: &str = "wheelhouse-dns";

/// What the interface is made of, in the order of trying: a dummy, or where the kernel has none, a bridge without ports, which does as well.
const KINDS: &[&str] = &["dummy", "bridge"];

#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    #[error("cannot run ip (package iproute2)")]
    Spawn(#[source] std::io::Error),
    #[error("ip {arguments}: {message}")]
    Failed { arguments: String, message: String },
    #[error("ip did not end within {TIMEOUT:?}")]
    Timeout,
}

async fn ip(arguments: &str) -> Result<(), InterfaceError> {
    let mut command = Command::new("ip");
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await.map_err(|_| InterfaceError::Timeout)?.map_err(InterfaceError::Spawn)?;
    if output.status.success() {
        return Ok(());
    }
    Err(InterfaceError::Failed { arguments: arguments.to_owned(), message: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}

/// Makes the interface with these addresses; what is there already stays.
pub async fn ensure(addresses: &[IpAddr]) -> Result<(), InterfaceError> {
    if ip(&format!("link show dev {NAME}")).await.is_err() {
        let mut made = Ok(());
        for kind in KINDS {
            made = ip(&format!("link add {NAME} type {kind}")).await;
            if made.is_ok() {
                break;
            }
        }
        made?;
    }
    for address in addresses {
        let nodad = if address.is_ipv6() { " nodad" } else { "" };
        ip(&format!("addr replace {} dev {NAME}{nodad}", alone(address))).await?;
    }
    ip(&format!("link set {NAME} up")).await
}

/// Removes it, when a node leaves its cluster. Absence is fine.
pub async fn remove() -> Result<(), InterfaceError> {
    if ip(&format!("link show dev {NAME}")).await.is_err() {
        return Ok(());
    }
    ip(&format!("link del {NAME}")).await
}
