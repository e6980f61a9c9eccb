//! `init`: a new service out of nothing.

use std::time::Duration;

use anyhow::Context;
use wheelhouse_base::{Clock, ClusterId, ReplicaId, SystemClock, Timestamp};
use wheelhouse_client::kubeconfig::Connection;
use wheelhouse_fleet::bootstrap::{self, TENANT_API_USER};
use wheelhouse_fleet::names::{CLUSTER_ADMINS_GROUP, OPERATORS_GROUP};
use wheelhouse_kinds::fleet::cluster::{ClusterKind, Member};
use wheelhouse_kinds::fleet::control_plane_replica::{ClusterRef, ReplicaSpec};
use wheelhouse_kinds::fleet::host::HostAddresses;
use wheelhouse_kinds::fleet::{ControlPlaneReplica, SYSTEM_NAMESPACE};
use wheelhouse_kinds::kind::TypedKind;
use wheelhouse_pki::{Authority, ClusterBundle, Credential, Kubeconfig, Leaf, RsaKey, SealingKey, Subject, Usage, Validity};

use crate::config::{CredentialKind, Identity, Init};
use crate::directory::{Directory, HostFile, HostKeys, ReplicaFile};
use crate::identity::{self, ENDPOINTS_GROUP};

/// The operator's authority lasts ten years.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Certificates that people and endpoints hold last a year; `credentials` makes new ones.
pub const CREDENTIAL_LIFE: Duration = Duration::from_secs(365 * 86_400);

/// What `init` makes in the data directory, for the processes beside this host. The host renews them there.
const KEPT: [(CredentialKind, &str); 3] = [
    (CredentialKind::Endpoint, "credentials/endpoint"),
    (CredentialKind::TenantApi, "credentials/tenant-api.kubeconfig"),
    (CredentialKind::Operator, "credentials/operator.kubeconfig"),
];

/// `host.json` from the flags.
pub fn host_file(identity: &Identity, endpoint: &str) -> HostFile {
    let advertised = |listen: std::net::SocketAddr| format!("{}:{}", identity.advertise, listen.port());
    HostFile {
        name: identity.name.clone(),
        zone: identity.zone.clone(),
        base_domain: identity.base_domain.clone(),
        endpoint: endpoint.to_owned(),
        clients_listen: identity.clients_listen,
        peers_listen: identity.peers_listen,
        metrics_listen: identity.metrics_listen,
        addresses: HostAddresses {
            clients: advertised(identity.clients_listen),
            peers: advertised(identity.peers_listen),
            metrics: advertised(identity.metrics_listen),
        },
    }
}

/// Fills a new data directory, credentials for an endpoint, the tenant API and the operator included.
pub fn init(flags: &Init) -> anyhow::Result<()> {
    let directory = Directory::new(&flags.identity.data_dir);
    directory.create()?;
    let now = SystemClock.now();
    let host = host_file(&flags.identity, &flags.endpoint);
    let authority = Authority::create("wheelhouse-operator", Validity::lasting(now, AUTHORITY_LIFE)).context("making the operator's authority")?;
    let keys = HostKeys { operator: SealingKey::generate()?, host: SealingKey::generate()? };
    directory.write_keys(&authority, &keys)?;
    identity::issue(&directory, &authority, &host, identity::LIFE, now)?;

    let bundle =
        ClusterBundle::with_authority(ClusterId::system(), &authority, &RsaKey::generate()?, now).context("making the system cluster's keys")?;
    let founder = Member { replica_id: ReplicaId(1), host: host.name.clone() };
    let mut cluster = bootstrap::system_cluster_object(founder.clone());
    ClusterKind::default(&mut cluster);
    let spec = ReplicaSpec {
        cluster_ref: ClusterRef { namespace: SYSTEM_NAMESPACE.into(), name: ClusterId::SYSTEM.into() },
        cluster_id: ClusterId::system(),
        host: host.name.clone(),
        replica_id: founder.replica_id,
        generation: 0,
        founder: true,
        members: vec![founder],
        version: cluster.spec.version,
        network: cluster.spec.network,
        issuer: cluster.spec.issuer,
        suspended: false,
    };
    let name = ControlPlaneReplica::object_name(&spec.cluster_id, spec.replica_id);
    directory.write_replica(&name, &ReplicaFile::new(spec, String::new(), &bundle, &keys)?)?;
    directory.write_hosts(&[host.known()])?;
    for (kind, file) in KEPT {
        credentials(&directory, &authority, &host, kind, &directory.path(file), CREDENTIAL_LIFE)?;
    }
    directory.write_host(&host)?;
    Ok(())
}

/// Writes the data directory's own credentials anew where two thirds of their life are over; says how many. Those who use them read them again.
pub fn renew_credentials(directory: &Directory, authority: &Authority, host: &HostFile, now: Timestamp) -> anyhow::Result<usize> {
    let mut renewed = 0;
    for (kind, file) in KEPT {
        // A kubeconfig carries its certificate in base64, as its client reads it.
        let text = if kind == CredentialKind::Endpoint { directory.text(&format!("{file}/tls.crt")) } else { directory.text(file) };
        // A host that joined has none, and whoever removed one does not want it back.
        let Ok(text) = text else { continue };
        let due = match kind {
            CredentialKind::Endpoint => identity::is_due(&text, now),
            _ => Connection::parse(&text).map_or(true, |c| c.certificate().is_none_or(|der| identity::is_due_der(der, now))),
        };
        if due {
            credentials(directory, authority, host, kind, &directory.path(file), CREDENTIAL_LIFE)?;
            renewed += 1;
        }
    }
    Ok(renewed)
}

/// Writes a credential of one kind to `out`, to live for `life`.
pub fn credentials(
    directory: &Directory,
    authority: &Authority,
    host: &HostFile,
    kind: CredentialKind,
    out: &std::path::Path,
    life: Duration,
) -> anyhow::Result<()> {
    let subject = match kind {
        CredentialKind::Endpoint => Subject::new("wheelhouse:endpoint", &[ENDPOINTS_GROUP]),
        CredentialKind::TenantApi => Subject::new(TENANT_API_USER, &[]),
        CredentialKind::Operator => Subject::new("wheelhouse:operator", &[OPERATORS_GROUP]),
        CredentialKind::ClusterAdmin => anyhow::bail!("a cluster's administrator is certified by the cluster's own authority"),
    };
    let leaf = Leaf { subject: subject.clone(), alt_names: vec![], usage: Usage::Client, validity: Validity::lasting(SystemClock.now(), life) };
    let (certificate, key) = authority.issue_with_key(&leaf)?;
    let parent = if kind == CredentialKind::Endpoint { Some(out) } else { out.parent() };
    if let Some(parent) = parent {
        std::fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
    }
    let beside = Directory::new(parent.unwrap_or(directory.root()));
    if kind == CredentialKind::Endpoint {
        beside.write_text("ca.crt", &authority.certificate_pem())?;
        beside.write_text("tls.key", &key)?;
        beside.write_text("tls.crt", &certificate)?;
        return Ok(());
    }
    let config = Kubeconfig {
        name: "wheelhouse-system".into(),
        user: subject.common_name,
        server: host.endpoint.clone(),
        tls_server_name: format!("{}.{}", ClusterId::SYSTEM, host.base_domain),
        ca_certificate: authority.certificate_pem(),
        credential: Credential::Certificate { certificate, key },
    };
    let file = out.file_name().context("--out names no file")?.to_string_lossy();
    beside.write_text(&file, &config.render())?;
    Ok(())
}

/// Writes a kubeconfig for an administrator of a hosted cluster, from the keys that this host holds for its replica.
pub fn cluster_admin(directory: &Directory, host: &HostFile, cluster: &ClusterId, out: &std::path::Path) -> anyhow::Result<()> {
    let replicas = directory.replicas()?;
    let file = replicas.values().find(|r| r.spec.cluster_id == *cluster).with_context(|| format!("no replica of {cluster} is on this host"))?;
    let bundle = file.bundle(&directory.keys()?).map_err(anyhow::Error::msg)?;
    let subject = Subject::new("wheelhouse:operator", &[CLUSTER_ADMINS_GROUP]);
    let (certificate, key) = bundle.issue_client(subject.clone(), CREDENTIAL_LIFE, SystemClock.now())?;
    let config = Kubeconfig {
        name: cluster.to_string(),
        user: subject.common_name,
        server: host.endpoint.clone(),
        tls_server_name: format!("{cluster}.{}", host.base_domain),
        ca_certificate: bundle.ca_certificate.clone(),
        credential: Credential::Certificate { certificate, key },
    };
    let file = out.file_name().context("--out names no file")?.to_string_lossy();
    Directory::new(out.parent().unwrap_or(directory.root())).write_text(&file, &config.render())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_new_service_has_one_host_with_one_founder() {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("a");
        let cli = crate::config::Cli::parse_from(["wheelhouse-host", "init", "--name", "host-a", "--data-dir", data.to_str().unwrap()]);
        let Some(crate::config::Command::Init(flags)) = cli.command else { panic!("not init") };
        init(&flags).unwrap();
        assert!(init(&flags).is_err(), "an occupied directory is left alone");

        let directory = Directory::new(&data);
        let keys = directory.keys().unwrap();
        let replicas = directory.replicas().unwrap();
        let founder = &replicas["system-r1"];
        assert!(founder.spec.founder && founder.spec.members.len() == 1);
        let bundle = founder.bundle(&keys).unwrap();
        assert_eq!(bundle.authority().unwrap().hash(), directory.authority(&keys).unwrap().hash(), "hosts' certificates count in the system API");
        let kubeconfig = directory.text("credentials/operator.kubeconfig").unwrap();
        assert!(kubeconfig.contains("tls-server-name: \"system.wheelhouse.internal\""));
        let (authority, host, now) = (directory.authority(&keys).unwrap(), directory.host().unwrap(), SystemClock.now());
        assert_eq!(renew_credentials(&directory, &authority, &host, now).unwrap(), 0);
        assert_eq!(renew_credentials(&directory, &authority, &host, now.plus(CREDENTIAL_LIFE * 3 / 4)).unwrap(), 3);
        assert_ne!(directory.text("credentials/operator.kubeconfig").unwrap(), kubeconfig);
    }
}
