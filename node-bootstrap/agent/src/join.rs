//! From a token to a running node. Every step is skipped if its result is there already, so that joining again resumes or repairs.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Node;
use wheelhouse_base::{Clock, SystemClock};
use wheelhouse_client::{Client, ClientError, Target};
use wheelhouse_kubelet::node::machine;

use crate::args::{Join, Node as NodeFlags};
use crate::check;
use crate::credentials::{self, CredentialError, Purpose};
use crate::layout::{Layout, LayoutError, NodeFile};
use crate::run::{self, RunError};
use crate::transport::{IdentityError, NodeTransport, anonymous};
use crate::trust::{self, TrustError};

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("{0:?} is not an endpoint; it is https://host:port")]
    Endpoint(String),
    #[error("{0:?} is not a token; it is six and sixteen of a-z0-9 with a dot in between")]
    TokenForm(String),
    #[error("{0:?} is not a node's name: lower-case letters, digits, dashes and dots")]
    Name(String),
    #[error("this machine cannot be a node:\n{0}")]
    Machine(String),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("this machine is node {name} of the cluster {server_name} already; `wheelhouse-node leave` takes it out")]
    Elsewhere { name: String, server_name: String },
    #[error("a node named {0} is there already, on another machine; choose another with --node-name or delete that node")]
    Duplicate(String),
    #[error("asking for the node")]
    Ask(#[source] ClientError),
    #[error(transparent)]
    Run(#[from] RunError),
}

pub async fn join(flags: &Join) -> Result<(), JoinError> {
    let file = node_file(flags)?;
    if !is_token(&flags.token) {
        return Err(JoinError::TokenForm(flags.token.split('.').next().unwrap_or_default().to_owned()));
    }
    let layout = Layout::new(&flags.place);
    if let Ok(known) = layout.read()
        && (known.server_name != file.server_name || known.node_name != file.node_name)
    {
        return Err(JoinError::Elsewhere { name: known.node_name, server_name: known.server_name });
    }
    let missing = check::problems(&check::Wanted { port: Some(file.port), own_runtime: file.runtime_socket.is_none(), state: layout.state() });
    if !missing.is_empty() {
        return Err(JoinError::Machine(missing.join("\n")));
    }
    enrol(&layout, &file, flags).await?;
    layout.write(&file)?;
    println!("node {} has joined {}", file.node_name, file.server_name);
    if flags.no_start {
        return Ok(());
    }
    Ok(run::run(&flags.place).await?)
}

/// Trust and the first certificate.
async fn enrol(layout: &Layout, file: &NodeFile, flags: &Join) -> Result<(), JoinError> {
    let now = SystemClock.now();
    let usable = layout.text(&layout.client()).is_ok_and(|pem| credentials::is_usable(&pem, &file.node_name, now));
    if usable && layout.read().is_ok() && layout.text(&layout.ca()).is_ok() {
        return Ok(());
    }
    let ca = trust::find(&file.endpoint, &file.server_name, &flags.ca_cert_hash, now).await?;
    let target = Target { address: file.endpoint.clone(), server_name: file.server_name.clone() };
    let client = anonymous(target.clone(), &ca)?.bearer(&flags.token).ok_or_else(|| JoinError::TokenForm(String::new()))?;
    let identity = credentials::obtain(&client, &file.node_name, &Purpose::Client).await?;
    let client = Client::new(NodeTransport::new(target, ca.clone(), &identity)?);
    refuse_duplicate(&client, &file.node_name).await?;
    layout.save(&layout.ca(), &ca)?;
    layout.save(&layout.client(), &identity)?;
    Ok(())
}

/// A node of this name on another machine that is alive would be taken over silently.
async fn refuse_duplicate(client: &Client, name: &str) -> Result<(), JoinError> {
    let Some(node) = client.api("", "v1", "nodes", "").find::<Node>(name).await.map_err(JoinError::Ask)? else { return Ok(()) };
    let status = node.status.unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let own = machine::read();
    let same = info.machine_id.is_empty() || info.machine_id == own.machine_id && info.system_uuid == own.system_uuid;
    if ready && !same { Err(JoinError::Duplicate(name.to_owned())) } else { Ok(()) }
}

fn node_file(flags: &Join) -> Result<NodeFile, JoinError> {
    let NodeFlags { node_name, labels, taints, node_ip, runtime_endpoint, log_dir, manifests, cgroup_root, .. } = flags.node.clone();
    let endpoint = flags.endpoint.trim_start_matches("https://").trim_end_matches('/').to_owned();
    if endpoint.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
        return Err(JoinError::Endpoint(flags.endpoint.clone()));
    }
    let node_name = node_name.unwrap_or_else(machine::hostname);
    if !is_node_name(&node_name) {
        return Err(JoinError::Name(node_name));
    }
    Ok(NodeFile {
        endpoint,
        server_name: flags.server_name.clone(),
        node_name,
        labels,
        taints,
        node_ips: node_ip,
        runtime_socket: runtime_endpoint.map(|endpoint| PathBuf::from(endpoint.trim_start_matches("unix://"))),
        log_dir,
        manifests,
        cgroup_root,
        bridge: flags.node.bridge.clone(),
        port: flags.node.port,
        cluster_dns: flags.node.cluster_dns.clone(),
        cluster_domain: flags.node.cluster_domain.clone(),
        resolv_conf: flags.node.resolv_conf.clone(),
        max_pods: flags.node.max_pods,
        disk_reserve: flags.node.disk_reserve,
    })
}

fn is_token(text: &str) -> bool {
    let part = |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.split_once('.').is_some_and(|(id, secret)| part(id, 6) && part(secret, 16))
}

/// A DNS subdomain.
fn is_node_name(name: &str) -> bool {
    let label = |label: &str| {
        let edge = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(label.bytes().next()) && edge(label.bytes().last()) && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_right_is_refused_before_anything_is_sent() {
        assert!(is_token("abcdef.0123456789abcdef"));
        for bad in ["", "abcdef", "abcdef.short", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef.x"] {
            assert!(!is_token(bad), "{bad}");
        }
        assert!(is_node_name("vm-1.zone"));
        for bad in ["", "VM", "a_b", "-a", "a.", "a..b"] {
            assert!(!is_node_name(bad), "{bad}");
        }
    }
}
