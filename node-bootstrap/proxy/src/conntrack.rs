//! Ends flows that conntrack would go on sending to endpoints that are gone.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::planner::StaleFlow;

/// Removing the flows of one address reads conntrack's table once; this long means that the program hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Flows per commit, so that a service with thousands of endpoints that all go at once does not start thousands of programs. Above it, flows of a
/// target are removed wherever they are answered from: clients of UDP send again.
const MAX_SINGLE: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum ConntrackError {
    #[error("cannot run conntrack (package conntrack)")]
    Spawn(#[source] std::io::Error),
    #[error("conntrack did not end within {TIMEOUT:?}")]
    Timeout,
}

/// Removes the flows that exist.
pub async fn remove(flows: &BTreeSet<StaleFlow>) -> Result<(), ConntrackError> {
    if flows.len() <= MAX_SINGLE {
        for flow in flows {
            delete(flow, true).await?;
        }
        return Ok(());
    }
    let mut done = BTreeSet::new();
    for flow in flows {
        if done.insert((flow.address, flow.port, flow.from.is_ipv4())) {
            delete(flow, false).await?;
        }
    }
    Ok(())
}

async fn delete(flow: &StaleFlow, only_from: bool) -> Result<(), ConntrackError> {
    let mut command = Command::new("conntrack");
    command.args(["-D", "-f", if flow.from.is_ipv4() { "ipv4" } else { "ipv6" }, "-p", "udp", "--orig-port-dst", &flow.port.to_string()]);
    if let Some(address) = flow.address {
        command.args(["--orig-dst", &address.to_string()]);
    }
    if only_from {
        command.args(["--reply-src", &flow.from.to_string()]);
    }
    // It fails when there was nothing to delete, which is the usual case.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    tokio::time::timeout(TIMEOUT, command.status()).await.map_err(|_| ConntrackError::Timeout)?.map_err(ConntrackError::Spawn)?;
    Ok(())
}
