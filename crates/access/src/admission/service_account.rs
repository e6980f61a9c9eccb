//! ServiceAccount: every pod runs as one, and gets its token.

use serde_json::{Value, json};

use super::pod::{containers, is_mirror, list_mut, text};
use super::{Operation, Request};
use crate::lookups::{Answer, Lookups};

const DEFAULT_ACCOUNT: &str = "default";
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";
const TOKEN_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const ENFORCE_ANNOTATION: &str = "kubernetes.io/enforce-mountable-secrets";

/// Seconds. The API server takes this very number to mean an injected volume and extends such tokens; see the TokenRequest.
const TOKEN_EXPIRATION: i64 = 3607;

/// Upstream's alphabet of generated names: no vowels and nothing that looks like another character.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Characters of a generated name's tail.
const NAME_TAIL: usize = 5;

pub(super) fn mutate(request: &Request<'_>, pod: &mut Value, lookups: &dyn Lookups) -> Answer<()> {
    if !request.is("", "pods") || request.operation != Operation::Create {
        return Ok(());
    }
    if is_mirror(pod) {
        return validate(request, pod, lookups);
    }
    let name = account_name(pod).to_owned();
    // The old name of the field is kept equal for old clients.
    pod["spec"]["serviceAccountName"] = name.as_str().into();
    pod["spec"]["serviceAccount"] = name.as_str().into();
    let account = find(request, pod, lookups)?;
    if wants_token(&account, pod) {
        mount_token(pod, request.seed);
    }
    let pull_secrets = account["imagePullSecrets"].as_array().filter(|s| !s.is_empty());
    if let Some(secrets) = pull_secrets
        && pod["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
    {
        pod["spec"]["imagePullSecrets"] = secrets.iter().map(|s| json!({"name": text(s, "name")})).collect();
    }
    validate(request, pod, lookups)
}

pub(super) fn validate(request: &Request<'_>, pod: &Value, lookups: &dyn Lookups) -> Answer<()> {
    let creates = request.is("", "pods") && request.operation == Operation::Create;
    let debugs = request.group().is_empty() && request.resource() == "pods" && request.subresource() == "ephemeralcontainers";
    if !creates && !debugs {
        return Ok(());
    }
    if is_mirror(pod) {
        return validate_mirror(request, pod);
    }
    if account_field(pod).is_empty() {
        let why = format!("no service account specified for pod {}/{}", request.attributes.namespace(), text(&pod["metadata"], "name"));
        return Err(request.forbidden(Some(pod), why));
    }
    let account = find(request, pod, lookups)?;
    if matches!(text(&account["metadata"]["annotations"], ENFORCE_ANNOTATION), "1" | "t" | "T" | "true" | "TRUE" | "True") {
        limit_secrets(&account, pod, debugs).map_err(|why| request.forbidden(Some(pod), why))?;
    }
    Ok(())
}

fn account_field(pod: &Value) -> &str {
    let name = text(&pod["spec"], "serviceAccountName");
    if name.is_empty() { text(&pod["spec"], "serviceAccount") } else { name }
}

fn account_name(pod: &Value) -> &str {
    let name = account_field(pod);
    if name.is_empty() { DEFAULT_ACCOUNT } else { name }
}

/// The namespace whose `default` account a pod needs, if it needs it: the one account that comes into being by itself.
pub fn awaited_account<'a>(request: &Request<'a>, object: &Value) -> Option<&'a str> {
    let needs = request.is("", "pods") && request.operation == Operation::Create && !is_mirror(object) && account_name(object) == DEFAULT_ACCOUNT;
    needs.then(|| request.attributes.namespace())
}

fn find(request: &Request<'_>, pod: &Value, lookups: &dyn Lookups) -> Answer<Value> {
    let (namespace, name) = (request.attributes.namespace(), account_name(pod));
    lookups.get("", "serviceaccounts", namespace, name).ok_or_else(|| {
        let name_quoted = wheelhouse_meta::gotext::quote(name);
        request.forbidden(Some(pod), format!("error looking up service account {namespace}/{name}: serviceaccount {name_quoted} not found"))
    })
}

fn validate_mirror(request: &Request<'_>, pod: &Value) -> Answer<()> {
    let refuse = |why: &str| Err(request.forbidden(Some(pod), why));
    if !account_field(pod).is_empty() {
        return refuse("a mirror pod may not reference service accounts");
    }
    let volumes = containers(pod, "volumes");
    let sources = |v: &Value| v["projected"]["sources"].as_array().cloned().unwrap_or_default();
    if volumes.iter().any(|v| v["secret"].is_object() || sources(v).iter().any(|s| s["secret"].is_object()))
        || !secret_references(pod, true).is_empty()
    {
        return refuse("a mirror pod may not reference secrets");
    }
    if volumes.iter().any(|v| sources(v).iter().any(|s| s["serviceAccountToken"].is_object())) {
        return refuse("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// The pod's word counts before the account's; silence of both means yes.
fn wants_token(account: &Value, pod: &Value) -> bool {
    let said = pod["spec"]["automountServiceAccountToken"].as_bool().or_else(|| account["automountServiceAccountToken"].as_bool());
    said.unwrap_or(true)
}

fn mount_token(pod: &mut Value, seed: u64) {
    let existing = containers(pod, "volumes").iter().map(|v| text(v, "name")).find(|name| name.starts_with(TOKEN_VOLUME_PREFIX)).map(str::to_owned);
    let has_volume = existing.is_some();
    let volume = existing.unwrap_or_else(|| format!("{TOKEN_VOLUME_PREFIX}{}", name_tail(seed)));
    let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_MOUNT_PATH});
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            // A container that mounts something there itself keeps it.
            let taken = container["volumeMounts"].as_array().is_some_and(|m| m.iter().any(|m| m["mountPath"] == TOKEN_MOUNT_PATH));
            if !taken {
                list_mut(container, "volumeMounts").push(mount.clone());
                needed = true;
            }
        }
    }
    if needed && !has_volume {
        list_mut(&mut pod["spec"], "volumes").push(json!({"name": volume, "projected": token_sources()}));
    }
}

fn token_sources() -> Value {
    json!({
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_EXPIRATION, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ],
    })
}

fn name_tail(mut seed: u64) -> String {
    let base = NAME_ALPHABET.len() as u64;
    (0..NAME_TAIL)
        .map(|_| {
            let c = NAME_ALPHABET[(seed % base) as usize];
            seed /= base;
            char::from(c)
        })
        .collect()
}

/// One use of a secret by a container: how the message names it, and the secret.
fn secret_references(pod: &Value, ephemeral: bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let lists = [("initContainers", "init container"), ("containers", "container"), ("ephemeralContainers", "ephemeral container")];
    for (list, word) in lists.into_iter().filter(|(list, _)| ephemeral || *list != "ephemeralContainers") {
        for container in containers(pod, list) {
            let name = text(container, "name");
            for env in container["env"].as_array().into_iter().flatten() {
                if let Some(secret) = env["valueFrom"]["secretKeyRef"]["name"].as_str() {
                    found.push((format!("{word} {name} with envVar {} referencing", text(env, "name")), secret.to_owned()));
                }
            }
            for source in container["envFrom"].as_array().into_iter().flatten() {
                if let Some(secret) = source["secretRef"]["name"].as_str() {
                    found.push((format!("{word} {name} with envFrom referencing"), secret.to_owned()));
                }
            }
        }
    }
    found
}

/// What the account does not let its pods use, in upstream's words.
fn limit_secrets(account: &Value, pod: &Value, ephemeral: bool) -> Result<(), String> {
    let listed = |key: &str, name: &str| account[key].as_array().is_some_and(|l| l.iter().any(|s| text(s, "name") == name));
    let account_name = text(&account["metadata"], "name");
    let tail =
        |secret: &str| format!("secret.secretName=\"{secret}\" is not allowed because service account {account_name} does not reference that secret");
    if !ephemeral {
        for volume in containers(pod, "volumes") {
            if let Some(secret) = volume["secret"]["secretName"].as_str().filter(|s| !listed("secrets", s)) {
                return Err(format!("volume with {}", tail(secret)));
            }
        }
    }
    for (who, secret) in secret_references(pod, ephemeral) {
        if !listed("secrets", &secret) {
            return Err(format!("{who} {}", tail(&secret)));
        }
    }
    if ephemeral {
        return Ok(());
    }
    for (i, reference) in pod["spec"]["imagePullSecrets"].as_array().into_iter().flatten().enumerate() {
        let name = text(reference, "name");
        if !listed("imagePullSecrets", name) {
            return Err(format!(
                "imagePullSecrets[{i}].name=\"{name}\" is not allowed because service account {account_name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}
