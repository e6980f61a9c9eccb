//! The files of configMap, secret, downwardAPI and projected volumes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, ServiceAccountTokenProjection, Volume};

use crate::spec::{ConfigError, NodeFacts, References, fields, meta};

/// The API's default of `defaultMode`.
const DEFAULT_MODE: u32 = 0o644;
/// A projected token's default life, in seconds.
pub const TOKEN_SECONDS: i64 = 3600;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub bytes: Vec<u8>,
    pub mode: u32,
}

/// Files by relative path.
pub type Payload = BTreeMap<String, File>;

/// A token to ask for: audience (empty for the API server's) and seconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenWish {
    pub audience: String,
    pub seconds: i64,
}

/// What files are made of.
pub struct Inputs<'a> {
    pub pod: &'a Pod,
    pub node: &'a NodeFacts,
    pub ips: &'a [String],
    pub references: &'a References,
    pub tokens: &'a BTreeMap<TokenWish, String>,
}

/// Whether the volume consists of files that the kubelet writes.
pub fn is_payload(volume: &Volume) -> bool {
    volume.config_map.is_some() || volume.secret.is_some() || volume.downward_api.is_some() || volume.projected.is_some()
}

/// The tokens that a pod's projected volumes hold.
pub fn token_wishes(pod: &Pod) -> Vec<TokenWish> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let sources = volumes.flat_map(|volume| volume.projected.iter()).flat_map(|projected| projected.sources.iter().flatten());
    sources.filter_map(|source| source.service_account_token.as_ref()).map(wish).collect()
}

fn wish(projection: &ServiceAccountTokenProjection) -> TokenWish {
    TokenWish { audience: projection.audience.clone().unwrap_or_default(), seconds: projection.expiration_seconds.unwrap_or(TOKEN_SECONDS) }
}

pub fn files(volume: &Volume, inputs: &Inputs<'_>) -> Result<Payload, ConfigError> {
    let mut payload = Payload::new();
    if let Some(source) = &volume.config_map {
        let mode = mode(source.default_mode);
        config_map(&mut payload, inputs, &source.name, &source.items, source.optional, mode)?;
    }
    if let Some(source) = &volume.secret {
        secret(&mut payload, inputs, meta(&source.secret_name), &source.items, source.optional, mode(source.default_mode))?;
    }
    if let Some(source) = &volume.downward_api {
        downward(&mut payload, inputs, source.items.as_deref(), mode(source.default_mode))?;
    }
    if let Some(projected) = &volume.projected {
        let mode = mode(projected.default_mode);
        for source in projected.sources.iter().flatten() {
            if let Some(s) = &source.config_map {
                config_map(&mut payload, inputs, &s.name, &s.items, s.optional, mode)?;
            }
            if let Some(s) = &source.secret {
                secret(&mut payload, inputs, &s.name, &s.items, s.optional, mode)?;
            }
            if let Some(s) = &source.downward_api {
                downward(&mut payload, inputs, s.items.as_deref(), mode)?;
            }
            if let Some(s) = &source.service_account_token {
                let token = inputs.tokens.get(&wish(s)).ok_or_else(|| ConfigError("failed to fetch token".into()))?;
                // The container's user must be able to read it, others need not.
                let group = inputs.pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref()).and_then(|context| context.fs_group);
                let mode = if group.is_some() { 0o640 } else { mode };
                payload.insert(checked(&s.path)?, File { bytes: token.clone().into_bytes(), mode });
            }
            if source.cluster_trust_bundle.is_some() || source.pod_certificate.is_some() {
                return Err(ConfigError("projected volumes of trust bundles and pod certificates are not supported by this node".into()));
            }
        }
    }
    Ok(payload)
}

fn mode(mode: Option<i32>) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(DEFAULT_MODE) & 0o777
}

fn config_map(
    payload: &mut Payload,
    inputs: &Inputs<'_>,
    name: &str,
    items: &Option<Vec<KeyToPath>>,
    optional: Option<bool>,
    mode: u32,
) -> Result<(), ConfigError> {
    let Some(map) = inputs.references.config_maps.get(name) else { return absent("configmap", name, optional) };
    let text = map.data.iter().flatten().map(|(key, value)| (key.as_str(), value.as_bytes().to_vec()));
    let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.clone()));
    select(payload, text.chain(binary).collect(), items, optional, mode, "configmap")
}

fn secret(
    payload: &mut Payload,
    inputs: &Inputs<'_>,
    name: &str,
    items: &Option<Vec<KeyToPath>>,
    optional: Option<bool>,
    mode: u32,
) -> Result<(), ConfigError> {
    let Some(secret) = inputs.references.secrets.get(name) else { return absent("secret", name, optional) };
    let data = secret.data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.clone())).collect();
    select(payload, data, items, optional, mode, "secret")
}

fn absent(kind: &str, name: &str, optional: Option<bool>) -> Result<(), ConfigError> {
    if optional == Some(true) { Ok(()) } else { Err(ConfigError(format!("{kind} \"{name}\" not found"))) }
}

/// All keys, or those that `items` names under the paths it gives.
fn select(
    payload: &mut Payload,
    data: BTreeMap<&str, Vec<u8>>,
    items: &Option<Vec<KeyToPath>>,
    optional: Option<bool>,
    default: u32,
    kind: &str,
) -> Result<(), ConfigError> {
    let Some(items) = items.as_ref().filter(|items| !items.is_empty()) else {
        for (key, bytes) in data {
            payload.insert(checked(key)?, File { bytes, mode: default });
        }
        return Ok(());
    };
    for item in items {
        match data.get(item.key.as_str()) {
            Some(bytes) => {
                let mode = item.mode.map_or(default, |own| mode(Some(own)));
                payload.insert(checked(&item.path)?, File { bytes: bytes.clone(), mode });
            }
            None if optional == Some(true) => {}
            None => return Err(ConfigError(format!("{kind} references non-existent config key: {}", item.key))),
        }
    }
    Ok(())
}

fn downward(payload: &mut Payload, inputs: &Inputs<'_>, items: Option<&[DownwardAPIVolumeFile]>, default: u32) -> Result<(), ConfigError> {
    for item in items.unwrap_or_default() {
        let text = if let Some(selector) = &item.field_ref {
            fields::field(inputs.pod, inputs.node, inputs.ips, selector)?
        } else if let Some(selector) = &item.resource_field_ref {
            fields::resource(inputs.pod, inputs.node, None, selector)?
        } else {
            String::new()
        };
        let mode = item.mode.map_or(default, |own| mode(Some(own)));
        payload.insert(checked(&item.path)?, File { bytes: text.into_bytes(), mode });
    }
    Ok(())
}

/// A path that stays inside the volume and does not meet the names of the atomic update.
fn checked(path: &str) -> Result<String, ConfigError> {
    let leaves = path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == ".." || part.is_empty() || part == ".");
    if leaves || path.starts_with("..") {
        return Err(ConfigError(format!("invalid path in a volume: {path:?}")));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_projected_volume_of_every_pod_comes_together() {
        let volume: Volume = serde_json::from_value(json!({"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]}}))
        .unwrap();
        let pod: Pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns"},
            "spec": {"containers": [], "volumes": [volume]}}))
        .unwrap();
        assert_eq!(token_wishes(&pod), [TokenWish { audience: String::new(), seconds: 3607 }]);
        let map =
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"ca.crt": "CA", "other": "x"}})).unwrap();
        let references = References { config_maps: [("kube-root-ca.crt".to_owned(), map)].into(), ..References::default() };
        let tokens = [(TokenWish { audience: String::new(), seconds: 3607 }, "jwt".to_owned())].into();
        let node = NodeFacts::default();
        let payload = files(&volume, &Inputs { pod: &pod, node: &node, ips: &[], references: &references, tokens: &tokens }).unwrap();
        let all: Vec<String> =
            payload.iter().map(|(path, file)| format!("{path} {:o} {}", file.mode, String::from_utf8_lossy(&file.bytes))).collect();
        assert_eq!(all, ["ca.crt 644 CA", "namespace 644 ns", "token 644 jwt"]);
    }

    #[test]
    fn paths_stay_inside() {
        for bad in ["", "/a", "a/../b", "..data", "a//b", "./a"] {
            assert!(checked(bad).is_err(), "{bad}");
        }
        assert!(checked("a/b..c").is_ok());
    }
}
