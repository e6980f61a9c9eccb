//! What every cluster has from the start: upstream's post-start hooks.
//!
//! Run where the leader is, again after every change of leadership and every start: it creates what is missing, adds what a newer version
//! brings, and takes nothing away. `kube-root-ca.crt` and `cluster-info` belong to controllers.
//!
//! The policy comes first, since everything else is authorized by it once others run; these writes themselves act as the server's own user.

use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use wheelhouse_access::bootstrap::{Change, plan};
use wheelhouse_client::{Client, ClientError, Identity};
use wheelhouse_mvcc::Snapshot;

use crate::config::Config;
use crate::connection::InProcess;
use crate::flow::bootstrap as flow;
use crate::server::ApiServer;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The last thing that is made: with it, everything is there.
const LAST: &[u8] = b"/registry/discovery.k8s.io/endpointslices/default/kubernetes";
const LAST_WITHOUT_SLICES: &[u8] = b"/registry/core/services/default/kubernetes";

/// Priorities that the control plane and node daemons run with.
const SYSTEM_PRIORITIES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    ("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their current node."),
];

/// A step that failed; the ones before it are done, and running again does the rest.
#[derive(Debug, thiserror::Error)]
#[error("could not make {what}")]
pub struct BootstrapError {
    what: String,
    #[source]
    source: ClientError,
}

/// Whether a cluster has been through [`run`].
pub fn is_done(snapshot: &Snapshot) -> bool {
    snapshot.get(LAST).is_some() || snapshot.get(LAST_WITHOUT_SLICES).is_some()
}

/// Makes what is missing.
pub async fn run(server: &Arc<ApiServer>) -> Result<(), BootstrapError> {
    let client = Client::new(Arc::new(InProcess(Arc::clone(server)))).user_agent("kube-apiserver").identity(Identity::loopback());
    let bootstrap = Bootstrap { server, client };
    for name in NAMESPACES {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        bootstrap.ensure("", "v1", "namespaces", "", &namespace).await?;
    }
    bootstrap.policy().await?;
    for (name, value, description) in SYSTEM_PRIORITIES {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, "description": description,
        });
        bootstrap.ensure("scheduling.k8s.io", "v1", "priorityclasses", "", &class).await?;
    }
    bootstrap.flow_control().await?;
    bootstrap.authentication().await?;
    bootstrap.kubernetes_service().await
}

struct Bootstrap<'a> {
    server: &'a ApiServer,
    client: Client,
}

impl Bootstrap<'_> {
    fn serves(&self, group: &str, version: &str, plural: &str) -> bool {
        self.server.catalogue.find(group, version, plural).is_some()
    }

    /// Creates an object if its kind is served and it is not there.
    async fn ensure(&self, group: &str, version: &str, plural: &str, namespace: &str, object: &Value) -> Result<(), BootstrapError> {
        if !self.serves(group, version, plural) {
            return Ok(());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or("");
        let failed = |source| BootstrapError { what: format!("{plural} {name}"), source };
        let api = self.client.api(group, version, plural, namespace);
        if api.find::<Value>(name).await.map_err(failed)?.is_some() {
            return Ok(());
        }
        match api.create::<Value>(object).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Roles and bindings of upstream's bootstrap policy.
    async fn policy(&self) -> Result<(), BootstrapError> {
        const GROUP: &str = "rbac.authorization.k8s.io";
        let operations = plan(&self.server.security.lookups());
        for operation in operations {
            let object = operation.object;
            let plural = object.kind.resource();
            let failed = |source| BootstrapError { what: format!("{plural} {}", object.name), source };
            let api = self.client.api(GROUP, "v1", plural, &object.namespace);
            let done = match operation.change {
                Change::Create => api.create::<Value>(&object.body).await.map(|_| ()),
                Change::Update => api.update::<Value>(&object.name, "", &object.body).await.map(|_| ()),
                Change::Replace => match api.delete(&object.name, &Default::default()).await {
                    Ok(_) => api.create::<Value>(&object.body).await.map(|_| ()),
                    Err(error) => Err(error),
                },
            };
            match done {
                // Another leader's run, or an administrator, was faster.
                Err(error) if error.is_already_exists() || error.is_conflict() => {}
                done => done.map_err(failed)?,
            }
        }
        Ok(())
    }

    /// Flow schemas and priority levels, where their kinds are served.
    async fn flow_control(&self) -> Result<(), BootstrapError> {
        let objects = flow::objects();
        // A new cluster waits for this, so they share log entries.
        let mut made = FuturesUnordered::new();
        for (plural, wanted) in &objects {
            made.push(self.flow_control_object(plural, wanted).boxed());
        }
        while let Some(one) = made.next().await {
            one?;
        }
        Ok(())
    }

    async fn flow_control_object(&self, plural: &str, wanted: &Value) -> Result<(), BootstrapError> {
        self.ensure(flow::GROUP, "v1", plural, "", wanted).await?;
        self.update_flow_control(plural, wanted).await
    }

    /// Brings an object that this server keeps up to date back to what it should be.
    async fn update_flow_control(&self, plural: &str, wanted: &Value) -> Result<(), BootstrapError> {
        if !self.serves(flow::GROUP, "v1", plural) {
            return Ok(());
        }
        let name = wanted["metadata"]["name"].as_str().unwrap_or("");
        let failed = |source| BootstrapError { what: format!("{plural} {name}"), source };
        let api = self.client.api(flow::GROUP, "v1", plural, "");
        let Some(mut there) = api.find::<Value>(name).await.map_err(failed)? else { return Ok(()) };
        let kept = flow::is_mandatory(name) || there["metadata"]["annotations"][flow::AUTO_UPDATE] == "true";
        if !kept || holds(&there["spec"], &wanted["spec"]) {
            return Ok(());
        }
        there["spec"] = wanted["spec"].clone();
        match api.update::<Value>(name, "", &there).await {
            Err(error) if !error.is_conflict() => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Where extension API servers learn whom to trust. Renewed authorities are brought up to date; what others put there stays.
    async fn authentication(&self) -> Result<(), BootstrapError> {
        const NAME: &str = "extension-apiserver-authentication";
        let failed = |source| BootstrapError { what: format!("configmaps {NAME}"), source };
        let data = authentication_data(&self.server.config);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": "kube-system"}, "data": data});
        self.ensure("", "v1", "configmaps", "kube-system", &object).await?;
        let api = self.client.api("", "v1", "configmaps", "kube-system");
        let Some(mut there) = api.find::<Value>(NAME).await.map_err(failed)? else { return Ok(()) };
        if holds(&there["data"], &data) {
            return Ok(());
        }
        for (key, value) in data.as_object().into_iter().flatten() {
            there["data"][key] = value.clone();
        }
        match api.update::<Value>(NAME, "", &there).await {
            Err(error) if !error.is_conflict() => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// `default/kubernetes`: the first address of the Service range, in front of the API address.
    async fn kubernetes_service(&self) -> Result<(), BootstrapError> {
        let config = &self.server.config;
        let labels = json!({"component": "apiserver", "provider": "kubernetes"});
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
            "spec": {
                "type": "ClusterIP", "clusterIP": config.services.address(1).to_string(), "sessionAffinity": "None",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": config.api_port}],
            },
        });
        self.ensure("", "v1", "services", "default", &service).await?;
        let mirrored = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
        let endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": mirrored},
            "subsets": [{
                "addresses": [{"ip": config.api_address.to_string()}],
                "ports": [{"name": "https", "port": config.api_port, "protocol": "TCP"}],
            }],
        });
        self.ensure("", "v1", "endpoints", "default", &endpoints).await?;
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [config.api_address.to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": config.api_port, "protocol": "TCP"}],
        });
        self.ensure("discovery.k8s.io", "v1", "endpointslices", "default", &slice).await
    }
}

/// Whether everything that is wanted is there as wanted; defaults may have been added to it.
fn holds(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| there.get(key).map_or(value.is_null() || *value == 0 || *value == false, |there| holds(there, value)))
        }
        (Value::Array(there), Value::Array(wanted)) => there.len() == wanted.len() && there.iter().zip(wanted).all(|(t, w)| holds(t, w)),
        _ => there == wanted,
    }
}

/// What upstream publishes of its flags: the cluster's CA, and how the front proxy names the user it speaks for.
fn authentication_data(config: &Config) -> Value {
    let mut data = json!({"client-ca-file": config.client_ca_pem});
    if !config.front_proxy_ca_pem.is_empty() {
        data["requestheader-client-ca-file"] = config.front_proxy_ca_pem.as_str().into();
        for (key, list) in [
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ] {
            data[key] = list.into();
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_proxys_headers_are_told_with_its_authority() {
        let config = |front_proxy: &str| Config { client_ca_pem: "ca".into(), front_proxy_ca_pem: front_proxy.into(), ..Config::default() };
        assert_eq!(authentication_data(&config("")), json!({"client-ca-file": "ca"}));
        let data = authentication_data(&config("proxy"));
        assert_eq!(
            (&data["requestheader-client-ca-file"], &data["requestheader-username-headers"]),
            (&json!("proxy"), &json!("[\"X-Remote-User\"]"))
        );
        assert_eq!(data.as_object().map(serde_json::Map::len), Some(7));
    }

    #[test]
    fn defaults_make_no_difference() {
        assert!(holds(&json!({"a": 1, "b": {"c": [1, {"d": 2, "e": 3}]}}), &json!({"b": {"c": [1, {"d": 2}]}, "zero": 0})));
        for wanted in [json!({"a": 2}), json!({"b": 1}), json!({"c": [1]})] {
            assert!(!holds(&json!({"a": 1, "c": [1, 2]}), &wanted), "{wanted}");
        }
    }
}
