//! Acting inside a tenant's cluster: the cluster's keys, and a client through the endpoint.
//!
//! A cluster's key bundle is a Secret of the system control plane, sealed with the operator's key. It is opened for the length of one request and
//! never kept.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use wheelhouse_client::{Client, HttpsTransport, Target, TlsOptions};
use wheelhouse_kinds::fleet::{Cluster, SYSTEM_NAMESPACE};
use wheelhouse_pki::{ClusterBundle, Subject};

use crate::problem::Problem;
use crate::state::App;

/// The group that is bound to cluster-admin in every cluster.
pub const ADMINS_GROUP: &str = "wheelhouse:cluster-admins";

/// This service's own credential in a tenant's cluster lasts for one request; clocks may differ by some minutes.
const OWN_LIFE: Duration = Duration::from_secs(600);

/// The name of the Secret that holds a cluster's sealed bundle; its data key is `bundle`.
pub fn bundle_secret(cluster: &Cluster) -> String {
    format!("bundle-{}", cluster.cluster_id())
}

/// The cluster's keys. A cluster that is still being made has none yet: 409, try again.
pub async fn bundle(app: &App, cluster: &Cluster) -> Result<ClusterBundle, Problem> {
    let secret: Option<Value> = app
        .system
        .api("", "v1", "secrets", SYSTEM_NAMESPACE)
        .find(&bundle_secret(cluster))
        .await
        .map_err(|error| Problem::from_client("cluster", cluster.name(), &error))?;
    let Some(secret) = secret else {
        let detail = format!("cluster {:?} is still being made; `wheelhouse cluster get {} --wait` waits for it", cluster.name(), cluster.name());
        return Err(Problem::conflict(detail));
    };
    let sealed = secret["data"]["bundle"].as_str().and_then(|text| STANDARD.decode(text).ok());
    let sealed = sealed.ok_or_else(|| Problem::internal("the cluster's key bundle is damaged"))?;
    ClusterBundle::unwrap(&sealed, &cluster.cluster_id(), &app.operator_key).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, cluster = cluster.name(), "a key bundle does not open");
        Problem::internal("the cluster's key bundle does not open")
    })
}

/// A client of the tenant's cluster, through the endpoint, as this service.
pub fn client(app: &App, cluster: &Cluster, bundle: &ClusterBundle) -> Result<Client, Problem> {
    let failed = |what: &'static str| move |_| Problem::internal(what);
    let subject = Subject::new("wheelhouse:tenant-api", &[ADMINS_GROUP]);
    let (certificate, key) =
        bundle.issue_client(subject, OWN_LIFE, app.clock.now()).map_err(|_| Problem::internal("no client certificate could be issued"))?;
    let certificates = |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let roots = certificates(&bundle.ca_certificate).map_err(failed("the cluster's CA does not parse"))?;
    let chain = certificates(&certificate).map_err(failed("the issued certificate does not parse"))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(failed("the issued key does not parse"))?;
    let target = Target { address: app.endpoint.clone(), server_name: format!("{}.{}", cluster.cluster_id(), app.base_domain) };
    let transport = HttpsTransport::new(target, TlsOptions { roots, identity: Some((chain, key)) });
    let transport = transport.map_err(|error| Problem::internal(format!("the endpoint cannot be reached: {error}")))?;
    Ok(Client::new(Arc::new(transport)).user_agent("wheelhouse-api"))
}
