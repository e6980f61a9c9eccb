//! Which objects a controller owns: claiming by selector, names for what it creates, owner references.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector as ApiSelector, ObjectMeta, OwnerReference};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wheelhouse_meta::selector::LabelSelector;

use crate::plan::{Operation, PatchStrategy};
use crate::view::{Key, ResourceName, View};

/// Upstream's alphabet for generated names: no vowels, so no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The reference to the controller of an object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// A controller's reference to put on what it creates.
pub fn controller_reference(api_version: &str, kind: &str, owner: &ObjectMeta) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "name": owner.name, "uid": owner.uid, "controller": true, "blockOwnerDeletion": true,
    })
}

/// A selector that matches nothing if it is absent or malformed, as controllers read it.
pub fn selector(selector: Option<&ApiSelector>) -> LabelSelector {
    let value = selector.and_then(|selector| serde_json::to_value(selector).ok());
    LabelSelector::from_object(value.as_ref()).unwrap_or_else(|_| LabelSelector::nothing())
}

pub fn matches(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    selector.matches_by(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
}

/// What claiming found, and the patches that make it true.
pub struct Claim<T> {
    /// Owned already, and matching.
    pub owned: Vec<Arc<T>>,
    /// Adoptions of matching orphans and releases of what matches no more.
    pub operations: Vec<Operation>,
}

/// Upstream's controller-ref manager: owns what it controls and selects, adopts orphans that it selects, releases what it selects no more.
/// An owner that is being deleted adopts and releases nothing.
pub fn claim<T>(view: &View, owner: &ObjectMeta, api_version: &str, kind: &str, selector: &LabelSelector) -> Claim<T>
where
    T: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + Sync + 'static,
{
    claim_with_finalizer(view, owner, api_version, kind, selector, None)
}

/// [`claim`], with a finalizer that what is adopted gets and what is released loses.
pub fn claim_with_finalizer<T>(
    view: &View,
    owner: &ObjectMeta,
    api_version: &str,
    kind: &str,
    selector: &LabelSelector,
    finalizer: Option<&str>,
) -> Claim<T>
where
    T: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + Sync + 'static,
{
    let resource = ResourceName::of::<T>();
    let namespace = owner.namespace.as_deref().unwrap_or_default();
    let uid = owner.uid.as_deref().unwrap_or_default();
    let settled = owner.deletion_timestamp.is_none();
    let mut claim = Claim { owned: Vec::new(), operations: Vec::new() };
    for record in view.records(&resource, Some(namespace)) {
        let selected = matches(selector, record.meta.labels.as_ref());
        match controller_of(&record.meta) {
            Some(reference) if reference.uid == uid => {
                if selected {
                    claim.owned.extend(record.typed::<T>());
                } else if settled {
                    let mut release = owners_patch(&resource, &record.key, &record.meta, |owners| owners.retain(|o| o["uid"] != uid));
                    if let Some(finalizer) = finalizer {
                        set_finalizer(&mut release, &record.meta, finalizer, false);
                    }
                    claim.operations.push(release);
                }
            }
            Some(_) => {}
            None if selected && settled && !record.deleting() && !selector.is_everything() => {
                let reference = controller_reference(api_version, kind, owner);
                let mut adopt = owners_patch(&resource, &record.key, &record.meta, |owners| owners.push(reference.clone()));
                if let Some(finalizer) = finalizer {
                    set_finalizer(&mut adopt, &record.meta, finalizer, true);
                }
                claim.operations.push(adopt);
            }
            None => {}
        }
    }
    claim
}

fn owners_patch(resource: &ResourceName, key: &Key, meta: &ObjectMeta, change: impl Fn(&mut Vec<Value>)) -> Operation {
    let owners = meta.owner_references.iter().flatten();
    let mut owners: Vec<Value> = owners.map(|owner| serde_json::to_value(owner).expect("an owner reference is plain data")).collect();
    change(&mut owners);
    let patch = json!({"metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version,
        "ownerReferences": if owners.is_empty() { Value::Null } else { Value::Array(owners) },
    }});
    Operation::Patch { resource: resource.clone(), key: key.clone(), subresource: "", strategy: PatchStrategy::Merge, patch }
}

fn set_finalizer(operation: &mut Operation, meta: &ObjectMeta, finalizer: &str, wanted: bool) {
    if let Operation::Patch { patch, .. } = operation {
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        finalizers.retain(|name| name != finalizer);
        if wanted {
            finalizers.push(finalizer.to_owned());
        }
        patch["metadata"]["finalizers"] = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
    }
}

/// Takes a finalizer away; nothing if it is not there.
pub fn without_finalizer<T: k8s_openapi::Resource>(meta: &ObjectMeta, finalizer: &str) -> Option<Operation> {
    let left: Vec<&String> = meta.finalizers.iter().flatten().filter(|name| *name != finalizer).collect();
    if left.len() == meta.finalizers.as_ref().map_or(0, Vec::len) {
        return None;
    }
    let value = if left.is_empty() { Value::Null } else { json!(left) };
    Some(Operation::patch::<T>(meta, json!({"metadata": {"finalizers": value}})))
}

/// A pod as its controller makes it: the template's labels, annotations, finalizers and spec under a name.
pub fn pod_from_template<K: k8s_openapi::Resource>(template: &PodTemplateSpec, owner: &ObjectMeta, name: &str) -> Value {
    let mut object = serde_json::to_value(template).expect("a pod template is plain data");
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Pod");
    let metadata = match object["metadata"].take() {
        Value::Object(mut given) => {
            given.retain(|field, _| matches!(field.as_str(), "labels" | "annotations" | "finalizers"));
            given
        }
        _ => serde_json::Map::new(),
    };
    object["metadata"] = Value::Object(metadata);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(owner.namespace);
    object["metadata"]["ownerReferences"] = json!([controller_reference(K::API_VERSION, K::KIND, owner)]);
    object
}

/// The name of a new object: the base and five characters that follow from `seed` alone, so that carrying a plan out twice creates nothing twice.
/// Bases are cut so that the whole stays within 63 characters.
pub fn generated_name(base: &str, seed: &[&str]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in seed {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash ^= hash >> 29;
    let mut name: String = base.chars().take(58).collect();
    for _ in 0..5 {
        name.push(char::from(ALPHABET[(hash % 27) as usize]));
        hash /= 27;
    }
    name
}

/// Text in upstream's alphabet from a number's decimal digits, as `rand.SafeEncodeString` makes the pod-template-hash.
pub fn safe_encode(number: u32) -> String {
    number.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % 27])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_their_seed() {
        let name = |seed: &[&str]| generated_name("web-", seed);
        assert_eq!(name(&["u", "1"]), name(&["u", "1"]));
        assert_ne!(name(&["u", "1"]), name(&["u", "2"]));
        assert_ne!(name(&["u1", ""]), name(&["u", "1"]), "parts do not run together");
        assert!(generated_name(&"x".repeat(100), &["u"]).len() == 63);
    }
}
