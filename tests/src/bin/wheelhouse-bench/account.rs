//! A tenant and the operator, as clients of the two APIs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Method;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use wheelhouse_client::kubeconfig::Connection;
use wheelhouse_client::{Client, HttpsTransport, ListOptions, PatchKind, Target, TlsOptions};
use wheelhouse_tests::Service;

/// Between two looks at a cluster that is being made: well under what is measured, and no load worth mentioning.
const LOOK: Duration = Duration::from_millis(20);

/// The same where many are made: the tenant API limits the requests of one address.
const LOOK_AT_MANY: Duration = Duration::from_millis(100);

/// A cluster that is not Ready by then will not become so.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// More clusters than any part makes; a new tenant may have fewer.
const QUOTA: u32 = 200;

const FLEET: (&str, &str) = ("fleet.wheelhouse.dev", "v1");

/// A tenant with its key for the tenant API.
pub struct Account {
    api: Client,
}

/// How long a cluster took, from before the request was sent.
pub struct Created {
    pub ready: Duration,
    /// Until a list of its namespaces was answered, with a kubeconfig made after it was Ready.
    pub usable: Duration,
}

impl Account {
    pub fn sign_up(service: &Service, name: &str) -> Result<Self> {
        let api = service.tenant(name).api();
        let roots = vec![CertificateDer::from_pem_file(&api.ca).context("the tenant API's CA")?];
        let target = Target { address: api.address, server_name: api.server_name };
        let key = api.headers.iter().find_map(|header| header.strip_prefix("Authorization: Bearer ")).context("the tenant has a key")?;
        let transport = HttpsTransport::new(target, TlsOptions { roots, identity: None })?;
        let api = Client::new(Arc::new(transport)).bearer(key).context("the key fits a header")?;
        Ok(Self { api })
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        Ok(self.api.request(Method::POST, path, Some("application/json"), Bytes::from(body.to_string())).await?)
    }

    pub async fn create(&self, name: &str) -> Result<Created> {
        let started = Instant::now();
        self.ask_for(name).await?;
        self.until_ready(name, LOOK).await?;
        let ready = started.elapsed();
        let client = self.connection(name).await?.client()?;
        client.api("", "v1", "namespaces", "").list::<Value>(&ListOptions::default()).await.context("listing the new cluster's namespaces")?;
        Ok(Created { ready, usable: started.elapsed() })
    }

    /// Asks for all of them, then waits for each; answers how long it took until the last one was Ready.
    pub async fn create_at_once(&self, names: &[String]) -> Result<Duration> {
        let started = Instant::now();
        futures::future::try_join_all(names.iter().map(|name| self.ask_for(name))).await?;
        for name in names {
            self.until_ready(name, LOOK_AT_MANY).await?;
        }
        Ok(started.elapsed())
    }

    async fn ask_for(&self, name: &str) -> Result<()> {
        self.post("/v1/clusters", json!({"name": name})).await.context("creating a cluster").map(drop)
    }

    async fn until_ready(&self, name: &str, look: Duration) -> Result<()> {
        let started = Instant::now();
        while self.cluster(name).await?["state"] != "Ready" {
            if started.elapsed() > READY_LIMIT {
                bail!("cluster {name} is not Ready within {READY_LIMIT:?}");
            }
            tokio::time::sleep(look).await;
        }
        Ok(())
    }

    pub async fn cluster(&self, name: &str) -> Result<Value> {
        Ok(self.api.request(Method::GET, &format!("/v1/clusters/{name}"), None, Bytes::new()).await?)
    }

    /// A fresh kubeconfig's server and credential.
    pub async fn connection(&self, name: &str) -> Result<Connection> {
        let path = format!("/v1/clusters/{name}/kubeconfigs");
        let answer = self.post(&path, json!({"description": "bench"})).await.context("making a kubeconfig")?;
        Ok(Connection::parse(answer["kubeconfig"].as_str().unwrap_or_default())?)
    }
}

/// The operator of the service, on the system control plane.
pub struct Operator {
    client: Client,
}

impl Operator {
    pub fn of(service: &Service) -> Result<Self> {
        let text = std::fs::read_to_string(service.data().join("system.kubeconfig")).context("the operator's kubeconfig")?;
        Ok(Self { client: wheelhouse_client::kubeconfig::client(&text)? })
    }

    /// Lets every tenant have as many clusters as a part makes.
    pub async fn lift_quotas(&self) -> Result<()> {
        let tenants = self.client.api(FLEET.0, FLEET.1, "tenants", "");
        let list: Value = tenants.list(&ListOptions::default()).await?;
        for tenant in list["items"].as_array().into_iter().flatten() {
            let name = tenant["metadata"]["name"].as_str().unwrap_or_default();
            tenants.patch::<Value>(name, "", PatchKind::Merge, "", &json!({"spec": {"quota": {"clusters": QUOTA}}})).await?;
        }
        Ok(())
    }

    /// The host that leads a cluster, and how many of its replicas are ready. `None` while the system control plane does not answer.
    pub async fn leadership(&self, id: &str) -> Option<(String, usize)> {
        let list: Value = self.client.api(FLEET.0, FLEET.1, "clusters", "").list(&ListOptions::default()).await.ok()?;
        let cluster = list["items"].as_array()?.iter().find(|cluster| cluster["status"]["clusterID"] == id)?;
        let ready = cluster["status"]["members"].as_array()?.iter().filter(|member| member["ready"] == true).count();
        Some((cluster["status"]["leader"].as_str().filter(|host| !host.is_empty())?.to_owned(), ready))
    }
}
