//! ConfigMaps, Secrets and tokens that pods need, read when a pod needs them.
//!
//! A pod's start reads them fresh; the refresh of its volumes reads them again. A token is kept until four fifths of its life are over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use parking_lot::Mutex;
use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_client::{Client, ClientError};

use crate::spec::{References, meta};
use crate::volumes::payload::{TokenWish, token_wishes};

/// Upstream renews a token after a day at the latest.
const TOKEN_KEPT: Duration = Duration::from_secs(24 * 3600);

type TokenKey = (String, TokenWish);

/// Reads for pods.
pub(super) struct ReferenceReader {
    client: Client,
    /// By pod uid and wish: the token and when it is to be renewed.
    tokens: Mutex<BTreeMap<TokenKey, (String, Timestamp)>>,
}

/// What a pod refers to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    config_maps: BTreeSet<String>,
    secrets: BTreeSet<String>,
}

impl ReferenceReader {
    pub(super) fn new(client: Client) -> Self {
        Self { client, tokens: Mutex::default() }
    }

    /// Everything that the pod refers to; what does not exist is left out.
    pub(super) async fn read(&self, pod: &Pod) -> Result<References, ClientError> {
        let namespace = meta(&pod.metadata.namespace);
        let names = names(pod);
        let mut references = References::default();
        for name in names.config_maps {
            if let Some(map) = self.client.api("", "v1", "configmaps", namespace).find::<ConfigMap>(&name).await? {
                references.config_maps.insert(name, map);
            }
        }
        for name in names.secrets {
            if let Some(secret) = self.client.api("", "v1", "secrets", namespace).find::<Secret>(&name).await? {
                references.secrets.insert(name, secret);
            }
        }
        Ok(references)
    }

    /// The tokens of the pod's projected volumes, new ones where they are due.
    pub(super) async fn tokens(&self, pod: &Pod, now: Timestamp) -> Result<BTreeMap<TokenWish, String>, ClientError> {
        let uid = meta(&pod.metadata.uid);
        let mut tokens = BTreeMap::new();
        for wish in token_wishes(pod) {
            let key = (uid.to_owned(), wish.clone());
            let known = self.tokens.lock().get(&key).filter(|(_, renew)| *renew > now).map(|(token, _)| token.clone());
            let token = match known {
                Some(token) => token,
                None => {
                    let token = self.request(pod, &wish).await?;
                    let life = Duration::from_secs(u64::try_from(wish.seconds).unwrap_or(0));
                    self.tokens.lock().insert(key, (token.clone(), now.plus((life * 4 / 5).min(TOKEN_KEPT))));
                    token
                }
            };
            tokens.insert(wish, token);
        }
        Ok(tokens)
    }

    async fn request(&self, pod: &Pod, wish: &TokenWish) -> Result<String, ClientError> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_else(|| "default".to_owned());
        let audiences = if wish.audience.is_empty() { json!([]) } else { json!([wish.audience]) };
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name, "uid": pod.metadata.uid});
        let body = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "spec": {"audiences": audiences, "expirationSeconds": wish.seconds, "boundObjectRef": bound}});
        let accounts = self.client.api("", "v1", "serviceaccounts", meta(&pod.metadata.namespace));
        let answer: Value = accounts.post(&account, "token", &body).await?;
        Ok(answer["status"]["token"].as_str().unwrap_or_default().to_owned())
    }

    /// A Secret for pulling, if it can be read: a pull without it may succeed.
    pub(super) async fn pull_secret(&self, namespace: &str, name: &str) -> Option<Secret> {
        self.client.api("", "v1", "secrets", namespace).find::<Secret>(name).await.ok().flatten()
    }

    pub(super) fn forget(&self, uid: &str) {
        self.tokens.lock().retain(|(pod, _), _| pod != uid);
    }
}

fn names(pod: &Pod) -> Names {
    let mut names = Names::default();
    let Some(spec) = &pod.spec else { return names };
    for (container, _) in crate::lifecycle::all_containers(spec) {
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            names.config_maps.extend(source.config_map_key_ref.iter().map(|r| r.name.clone()));
            names.secrets.extend(source.secret_key_ref.iter().map(|r| r.name.clone()));
        }
        for source in container.env_from.iter().flatten() {
            names.config_maps.extend(source.config_map_ref.iter().map(|r| r.name.clone()));
            names.secrets.extend(source.secret_ref.iter().map(|r| r.name.clone()));
        }
    }
    for volume in spec.volumes.iter().flatten() {
        names.config_maps.extend(volume.config_map.iter().map(|s| s.name.clone()));
        names.secrets.extend(volume.secret.iter().filter_map(|s| s.secret_name.clone()));
        for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
            names.config_maps.extend(source.config_map.iter().map(|s| s.name.clone()));
            names.secrets.extend(source.secret.iter().map(|s| s.name.clone()));
        }
    }
    names.config_maps.remove("");
    names.secrets.remove("");
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_refer_is_found() {
        let pod: Pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "m1"}}]}],
            "containers": [{"name": "c", "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}]}],
            "volumes": [{"name": "a", "secret": {"secretName": "s2"}}, {"name": "b", "projected": {"sources": [{"configMap": {"name": "m2"}}]}}]}}))
        .unwrap();
        let names = names(&pod);
        assert_eq!(names.config_maps, BTreeSet::from(["m1".to_owned(), "m2".to_owned()]));
        assert_eq!(names.secrets, BTreeSet::from(["s1".to_owned(), "s2".to_owned()]));
    }
}
