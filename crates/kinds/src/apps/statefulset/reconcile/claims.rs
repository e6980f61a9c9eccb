//! The claims of a set's pods, and when they go: `spec.persistentVolumeClaimRetentionPolicy`.
//!
//! A claim that is to go with the set, or with a pod that is scaled away, names it as its owner; the garbage collector does the rest.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use super::{CLAIMS, Sync, identity};
use crate::plan::{Operation, Plan};
use crate::validation::{items, text};

/// Names of the set's claim templates.
pub fn templates(sync: &Sync<'_>) -> Vec<String> {
    items(&sync.spec.volume_claim_templates).iter().filter_map(|claim| claim.metadata.name.clone()).collect()
}

pub fn name(template: &str, pod: &str) -> String {
    format!("{template}-{pod}")
}

/// `Delete` rather than `Retain`: when the set is deleted, when it is scaled down.
fn policy(sync: &Sync<'_>) -> (bool, bool) {
    let policy = sync.spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
    (policy.when_deleted.as_deref() == Some("Delete"), policy.when_scaled.as_deref() == Some("Delete"))
}

/// The claims of one pod, as they are made.
pub fn wanted(sync: &Sync<'_>, ordinal: i32) -> Vec<Value> {
    let pod = identity::pod_name(sync.set, ordinal);
    let selected = sync.spec.selector.match_labels.clone().unwrap_or_default();
    let owners: Vec<Value> = if policy(sync).0 { vec![json!(reference("apps/v1", "StatefulSet", &sync.set.metadata))] } else { Vec::new() };
    let make = |template: &PersistentVolumeClaim| {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(selected.clone());
        let mut object = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name(text(&template.metadata.name), &pod), "namespace": sync.set.metadata.namespace,
                "labels": labels, "annotations": template.metadata.annotations,
            },
            "spec": template.spec,
        });
        if !owners.is_empty() {
            object["metadata"]["ownerReferences"] = json!(owners);
        }
        object
    };
    items(&sync.spec.volume_claim_templates).iter().map(make).collect()
}

fn reference(api_version: &str, kind: &str, owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        block_owner_deletion: Some(true),
        controller: Some(true),
        kind: kind.to_owned(),
        name: text(&owner.name).to_owned(),
        uid: text(&owner.uid).to_owned(),
    }
}

/// On its way out, or about to go with an earlier pod of the same name.
pub fn is_stale(sync: &Sync<'_>, claim: &PersistentVolumeClaim) -> bool {
    let of_gone_pod = |owner: &OwnerReference| owner.kind == "Pod" && sync.view.by_uid(&owner.uid).is_none();
    claim.metadata.deletion_timestamp.is_some() || items(&claim.metadata.owner_references).iter().any(of_gone_pod)
}

/// Makes the owners of a pod's claims what the policy says.
pub fn fix_owners(sync: &Sync<'_>, pod: &Pod, ordinal: i32, plan: &mut Plan) {
    let (when_deleted, when_scaled) = policy(sync);
    let condemned = !sync.is_in_range(ordinal);
    for template in templates(sync) {
        let claim_name = name(&template, text(&pod.metadata.name));
        let Some(claim) = sync.view.get::<PersistentVolumeClaim>(text(&sync.set.metadata.namespace), &claim_name) else { continue };
        let of_set = when_deleted && !(when_scaled && condemned);
        let of_pod = when_scaled && condemned;
        plan.operations.extend(with_owners(sync.set, pod, &claim, of_set, of_pod));
    }
}

fn with_owners(set: &StatefulSet, pod: &Pod, claim: &Arc<PersistentVolumeClaim>, of_set: bool, of_pod: bool) -> Option<Operation> {
    let present = items(&claim.metadata.owner_references);
    // Whoever else controls the claim keeps it.
    let ours = |owner: &OwnerReference| Some(&owner.uid) == set.metadata.uid.as_ref() || Some(&owner.uid) == pod.metadata.uid.as_ref();
    if present.iter().any(|owner| owner.controller == Some(true) && !ours(owner)) {
        return None;
    }
    let mut owners: Vec<OwnerReference> = present.iter().filter(|owner| !ours(owner)).cloned().collect();
    if of_set {
        owners.push(reference("apps/v1", "StatefulSet", &set.metadata));
    }
    if of_pod {
        owners.push(reference("v1", "Pod", &pod.metadata));
    }
    let uids = |owners: &[OwnerReference]| owners.iter().map(|owner| owner.uid.clone()).collect::<Vec<_>>();
    if uids(&owners) == uids(present) {
        return None;
    }
    // The controller's role has `update` on claims and no `patch`.
    let mut object = serde_json::to_value(&**claim).expect("a claim is plain data");
    object["metadata"]["ownerReferences"] = json!(owners);
    Some(Operation::Update { resource: CLAIMS, subresource: "", object })
}
