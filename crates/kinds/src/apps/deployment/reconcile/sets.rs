//! ReplicaSets of a Deployment: finding the one of the present template, making it, annotating it, and forgetting old ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::{Value, json};

use super::{REPLICA_SETS, Rollout, note, patch_set, rolling};
use crate::owned::{controller_reference, safe_encode};
use crate::plan::{DeleteOptions, EventType, Operation, Plan};
use crate::reconciler::Context;
use crate::view::{Key, View};

pub const HASH_LABEL: &str = "pod-template-hash";
pub const REVISION: &str = "deployment.kubernetes.io/revision";
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations of a Deployment that its sets do not take over.
const KEPT_BACK: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

pub fn wanted(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
}

pub fn annotation<'a>(annotations: Option<&'a BTreeMap<String, String>>, name: &str) -> Option<&'a str> {
    annotations?.get(name).map(String::as_str)
}

/// A set's revision number; 0 for none.
pub fn revision(set: &ReplicaSet) -> i64 {
    annotation(set.metadata.annotations.as_ref(), REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn template(deployment: &Deployment) -> Value {
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    serde_json::to_value(template).expect("a pod template is plain data")
}

/// Whether the set's template is the Deployment's, its hash label aside.
pub fn same_template(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let of_set = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let mut of_set = serde_json::to_value(of_set).expect("a pod template is plain data");
    if let Some(labels) = of_set.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    let mut of_deployment = template(deployment);
    if let Some(labels) = of_deployment.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    of_set == of_deployment
}

/// FNV-1a over the template's canonical JSON and the collision count, in upstream's alphabet.
fn template_hash(deployment: &Deployment, collisions: i32) -> String {
    let text = template(deployment).to_string();
    let mut hash: u32 = 0x811c_9dc5;
    for byte in text.bytes().chain(collisions.to_le_bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    safe_encode(hash)
}

fn next_revision(rollout: &Rollout<'_>) -> i64 {
    rollout.old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1
}

/// The annotations that a set takes over from its Deployment.
fn inherited(deployment: &Deployment) -> BTreeMap<String, String> {
    let annotations = deployment.metadata.annotations.clone().unwrap_or_default();
    annotations.into_iter().filter(|(name, _)| !KEPT_BACK.contains(&name.as_str())).collect()
}

/// Creates the set of the present template. A set of that name which is not ours is a hash collision: it is counted, and the next try has another hash.
pub fn create_new(rollout: &Rollout<'_>, view: &View, cx: &Context<'_>, plan: &mut Plan) {
    let deployment = rollout.deployment;
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
    let hash = template_hash(deployment, collisions);
    let name = format!("{}-{hash}", rollout.name());
    if view.get::<ReplicaSet>(rollout.namespace(), &name).is_some() {
        let mut object = serde_json::to_value(deployment).expect("a Deployment is plain data");
        object["status"]["collisionCount"] = json!(collisions + 1);
        plan.operations.push(Operation::Update { resource: super::DEPLOYMENTS, subresource: "status", object });
        return;
    }
    let mut template = template(deployment);
    if !template["metadata"].is_object() {
        template["metadata"] = json!({});
    }
    template["metadata"]["labels"][HASH_LABEL] = json!(hash);
    let mut selector = serde_json::to_value(deployment.spec.as_ref().map(|spec| &spec.selector)).expect("a selector is plain data");
    selector["matchLabels"][HASH_LABEL] = json!(hash);
    let replicas = rolling::new_set_size(rollout, 0);
    let mut annotations = inherited(deployment);
    annotations.insert(REVISION.into(), next_revision(rollout).to_string());
    annotations.insert(DESIRED_REPLICAS.into(), rollout.replicas.to_string());
    annotations.insert(MAX_REPLICAS.into(), (rollout.replicas + rolling::max_surge(rollout)).to_string());
    let object = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": name, "namespace": rollout.namespace(), "labels": template["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": [controller_reference("apps/v1", "Deployment", &deployment.metadata)],
        },
        "spec": {
            "replicas": replicas, "selector": selector, "template": template,
            "minReadySeconds": deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0),
        },
    });
    plan.operations.push(Operation::Create { resource: REPLICA_SETS, namespace: rollout.namespace().to_owned(), object });
    if let Some(failure) = cx.failure.filter(|failure| failure.resource == REPLICA_SETS) {
        let message = format!("Failed to create new replica set {name:?}: {}", failure.message);
        plan.events.push(note(deployment, EventType::Warning, "ReplicaSetCreateError", message));
    } else if replicas > 0 {
        plan.events.push(note(deployment, EventType::Normal, "ScalingReplicaSet", format!("Scaled up replica set {name} from 0 to {replicas}")));
    }
}

/// Keeps the new set's revision the highest, its annotations and minReadySeconds the Deployment's, and the Deployment's revision the new set's.
pub fn refresh_annotations(rollout: &Rollout<'_>, new: &Arc<ReplicaSet>, plan: &mut Plan) {
    let have = new.metadata.annotations.clone().unwrap_or_default();
    let mut want: BTreeMap<String, String> = inherited(rollout.deployment);
    let highest = next_revision(rollout);
    let own = revision(new);
    if own < highest {
        want.insert(REVISION.into(), highest.to_string());
        if own > 0 {
            let history = annotation(Some(&have), REVISION_HISTORY).map(|history| format!("{history},{own}")).unwrap_or_else(|| own.to_string());
            want.insert(REVISION_HISTORY.into(), history);
        }
    }
    let changed: BTreeMap<&String, &String> = want.iter().filter(|(name, value)| have.get(*name) != Some(value)).collect();
    let min_ready = |value: Option<i32>| value.unwrap_or(0);
    let wanted_min_ready = min_ready(rollout.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds));
    let mut patch = json!({"metadata": {}});
    if !changed.is_empty() {
        patch["metadata"]["annotations"] = json!(changed);
    }
    if min_ready(new.spec.as_ref().and_then(|spec| spec.min_ready_seconds)) != wanted_min_ready {
        patch["spec"]["minReadySeconds"] = json!(wanted_min_ready);
    }
    if patch != json!({"metadata": {}}) {
        plan.operations.push(patch_set(new, patch));
    }
    let shown = own.max(highest).to_string();
    let deployment = rollout.deployment;
    if annotation(deployment.metadata.annotations.as_ref(), REVISION) != Some(shown.as_str()) {
        // An update: the controller's role has no patch of Deployments.
        let mut object = serde_json::to_value(deployment).expect("a Deployment is plain data");
        object["metadata"]["annotations"][REVISION] = json!(shown);
        plan.operations.push(Operation::Update { resource: super::DEPLOYMENTS, subresource: "", object });
    }
}

/// Forgets the oldest empty sets beyond `revisionHistoryLimit`.
pub fn clean_up(rollout: &Rollout<'_>, plan: &mut Plan) {
    let limit = rollout.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
    let surplus = rollout.old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    let mut by_revision: Vec<&Arc<ReplicaSet>> = rollout.old.iter().collect();
    by_revision.sort_by_key(|set| revision(set));
    let status = |set: &ReplicaSet| set.status.clone().unwrap_or_default();
    let settled = |set: &ReplicaSet| {
        let observed = status(set).observed_generation.unwrap_or(0) >= set.metadata.generation.unwrap_or(0);
        status(set).replicas == 0 && wanted(set) == 0 && observed && set.metadata.deletion_timestamp.is_none()
    };
    for set in by_revision.into_iter().take(surplus).filter(|set| settled(set)) {
        let key = Key::new(rollout.namespace(), set.metadata.name.as_deref().unwrap_or_default());
        let options = DeleteOptions { uid: set.metadata.uid.clone(), ..DeleteOptions::default() };
        plan.operations.push(Operation::Delete { resource: REPLICA_SETS, key, options });
    }
}
