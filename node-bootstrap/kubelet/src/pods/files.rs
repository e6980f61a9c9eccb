//! Static pods: manifests in a folder of the node, and the API's copies of them.
//!
//! ```text
//! folder --read--> pods with uid and name of this node --> manager (they run without an API server)
//!                                                      --> mirror pods in the API, so that everybody sees them
//! ```
//!
//! The uid is derived from the manifest, so a changed manifest is another pod: the old one is stopped and the new one started.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use tokio::sync::watch;
use wheelhouse_client::{Client, ClientError};
use wheelhouse_kinds::plan::DeleteOptions;
use wheelhouse_runtime::Stop;

use crate::spec::{labels, meta};

/// How often the folder is read. Upstream's default is 20 s and it watches beside; reading some small files is as cheap.
const LOOK: Duration = Duration::from_secs(2);
/// A manifest is a few kilobytes; more is not one.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the folder and tells of its pods until stopped.
pub async fn watch_folder(folder: &Path, node: &str, sender: watch::Sender<BTreeMap<String, Arc<Pod>>>, mut stop: Stop) {
    let mut look = tokio::time::interval(LOOK);
    while stop.or(look.tick()).await.is_some() {
        let pods = read(folder, node);
        sender.send_if_modified(|known| {
            // A pod's uid says what its manifest says.
            let changed = !known.keys().eq(pods.keys());
            if changed {
                *known = pods;
            }
            changed
        });
    }
}

fn read(folder: &Path, node: &str) -> BTreeMap<String, Arc<Pod>> {
    let mut pods = BTreeMap::new();
    let mut entries: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let small = std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_BYTES);
        if hidden || !small {
            continue;
        }
        match std::fs::read_to_string(&path).map_err(|error| error.to_string()).and_then(|text| parse(&text, node)) {
            Ok(pod) => drop(pods.insert(meta(&pod.metadata.uid).to_owned(), Arc::new(pod))),
            Err(error) => tracing::warn!(file = %path.display(), error, "not a pod's manifest"),
        }
    }
    pods
}

/// A manifest as a pod of this node, with the API's defaults.
fn parse(text: &str, node: &str) -> Result<Pod, String> {
    let value: Value = serde_norway::from_str(text).map_err(|error| error.to_string())?;
    let mut pod: Pod = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let name = pod.metadata.name.clone().filter(|name| !name.is_empty()).ok_or("the manifest names no pod")?;
    let spec = pod.spec.as_mut().filter(|spec| !spec.containers.is_empty()).ok_or("the manifest has no containers")?;
    spec.node_name = Some(node.to_owned());
    // Nothing but its manifest ends it.
    spec.tolerations.get_or_insert_default().push(Toleration {
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        ..Toleration::default()
    });
    let hash = hash(&format!("{node}\0{text}"));
    let metadata = &mut pod.metadata;
    metadata.name = Some(format!("{name}-{node}"));
    metadata.namespace.get_or_insert_with(|| "default".to_owned());
    metadata.uid = Some(hash.clone());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(labels::STATIC_SOURCE.to_owned(), "file".to_owned());
    annotations.insert(labels::STATIC_HASH.to_owned(), hash);
    wheelhouse_kinds::core::pod::defaults::pod(&mut pod);
    Ok(pod)
}

/// 128 bits of FNV-1a as hexadecimal digits: it tells manifests apart and protects nothing.
fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("{hash:032x}")
}

/// What has to happen to the API's copies.
#[derive(Debug, PartialEq)]
pub enum Mirror {
    Create(Box<Pod>),
    /// Of an old manifest, or of none: namespace, name, uid.
    Delete(String, String, String),
}

/// Compares the node's static pods with the mirror pods that the API has for it.
pub fn plan(files: &BTreeMap<String, Arc<Pod>>, api: &BTreeMap<(String, String), Arc<Pod>>, node: &Node) -> Vec<Mirror> {
    let mut plan = Vec::new();
    let key = |pod: &Pod| (meta(&pod.metadata.namespace).to_owned(), meta(&pod.metadata.name).to_owned());
    let hash_of = |pod: &Pod| pod.metadata.annotations.as_ref().and_then(|all| all.get(labels::MIRROR)).cloned();
    for (at, pod) in api {
        let Some(hash) = hash_of(pod) else { continue };
        let current = files.values().any(|file| key(file) == *at && file.metadata.uid.as_ref() == Some(&hash));
        if !current && pod.metadata.deletion_timestamp.is_none() {
            plan.push(Mirror::Delete(at.0.clone(), at.1.clone(), meta(&pod.metadata.uid).to_owned()));
        }
    }
    for file in files.values().filter(|file| !api.contains_key(&key(file))) {
        let mut mirror = Pod::clone(file);
        let metadata = &mut mirror.metadata;
        let hash = metadata.uid.take().unwrap_or_default();
        metadata.annotations.get_or_insert_default().insert(labels::MIRROR.to_owned(), hash);
        metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: meta(&node.metadata.name).to_owned(),
            uid: meta(&node.metadata.uid).to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
        plan.push(Mirror::Create(Box::new(mirror)));
    }
    plan
}

pub async fn carry_out(client: &Client, step: &Mirror) -> Result<(), ClientError> {
    match step {
        Mirror::Create(pod) => client.api("", "v1", "pods", meta(&pod.metadata.namespace)).create::<Value>(pod).await.map(drop),
        Mirror::Delete(namespace, name, uid) => {
            let options = DeleteOptions { uid: Some(uid.clone()), grace_period_seconds: Some(0), ..DeleteOptions::default() };
            client.api("", "v1", "pods", namespace).delete(name, &options).await.map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd, namespace: kube-system}\nspec: {containers: [{name: c, image: i}]}\n";

    #[test]
    fn a_manifest_becomes_a_pod_of_the_node() {
        let pod = parse(MANIFEST, "n1").unwrap();
        assert_eq!((meta(&pod.metadata.name), meta(&pod.metadata.namespace)), ("etcd-n1", "kube-system"));
        assert_eq!(pod.spec.as_ref().unwrap().restart_policy.as_deref(), Some("Always"), "the API's defaults");
        let other = parse(&MANIFEST.replace("image: i", "image: j"), "n1").unwrap();
        assert_ne!(pod.metadata.uid, other.metadata.uid);
        assert!(parse("kind: Pod\napiVersion: v1\nmetadata: {name: x}\nspec: {containers: []}", "n1").is_err());
    }

    #[test]
    fn copies_follow_the_files() {
        let node: Node = serde_json::from_str(r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","uid":"u"}}"#).unwrap();
        let pod = Arc::new(parse(MANIFEST, "n1").unwrap());
        let files = BTreeMap::from([(meta(&pod.metadata.uid).to_owned(), pod)]);
        let steps = plan(&files, &BTreeMap::new(), &node);
        let [Mirror::Create(mirror)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(mirror.metadata.owner_references.as_ref().unwrap()[0].uid, "u");
        let mut stored = Pod::clone(mirror);
        stored.metadata.uid = Some("api".into());
        let api = BTreeMap::from([(("kube-system".to_owned(), "etcd-n1".to_owned()), Arc::new(stored))]);
        assert!(plan(&files, &api, &node).is_empty());
        assert_eq!(plan(&BTreeMap::new(), &api, &node), [Mirror::Delete("kube-system".into(), "etcd-n1".into(), "api".into())]);
    }
}
