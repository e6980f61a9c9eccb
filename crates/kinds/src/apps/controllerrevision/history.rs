//! The templates that a StatefulSet or DaemonSet has had, each kept as a ControllerRevision, so that `kubectl rollout undo` finds them.
//!
//! A template that comes back is an old revision with a new number, and no new object.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::owned::{controller_reference, safe_encode};
use crate::plan::Operation;
use crate::validation::text;
use crate::view::{Key, ResourceName, View};

pub const REVISIONS: ResourceName = ResourceName::new("apps", "controllerrevisions");
/// Which revision a pod is of.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// The revisions of one owner, oldest first.
pub struct History<'a> {
    pub revisions: Vec<Arc<ControllerRevision>>,
    pub owner: &'a ObjectMeta,
}

/// Where the revision of the present template stands.
pub enum Present {
    Found(Arc<ControllerRevision>),
    /// It is being written or renumbered; it is found at the next look.
    Written(Operation),
    /// Its name is taken by a revision of another template: the owner must count the collision.
    Collision,
}

/// What a revision keeps: a patch that puts the template back.
pub fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).expect("a pod template is plain data");
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template that a revision keeps; `None` for data that is no such patch.
pub fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

pub fn name(revision: &ControllerRevision) -> &str {
    text(&revision.metadata.name)
}

/// FNV-1a over the data's canonical JSON and the collision count, in upstream's alphabet. Nothing may rely on its value.
fn hash(data: &Value, collisions: i32) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in data.to_string().bytes().chain(collisions.to_le_bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    safe_encode(hash)
}

impl<'a> History<'a> {
    pub fn new(owner: &'a ObjectMeta, mut revisions: Vec<Arc<ControllerRevision>>) -> Self {
        revisions.sort_by_key(|revision| (revision.revision, revision.metadata.name.clone()));
        Self { revisions, owner }
    }

    /// The revision of `template`. `hash_label` is the label that the new object carries its hash under.
    pub fn present<K: k8s_openapi::Resource>(&self, view: &View, template: &PodTemplateSpec, hash_label: &str, collisions: i32) -> Present {
        let data = data_of(template);
        let next = self.revisions.last().map_or(0, |last| last.revision) + 1;
        let equal = self.revisions.iter().rev().find(|revision| revision.data.as_ref().is_some_and(|kept| kept.0 == data));
        if let Some(equal) = equal {
            if equal.revision + 1 == next {
                return Present::Found(equal.clone());
            }
            return Present::Written(Operation::patch::<ControllerRevision>(&equal.metadata, json!({"metadata": {}, "revision": next})));
        }
        let hash = hash(&data, collisions);
        let owner = self.owner;
        let name = format!("{}-{hash}", text(&owner.name).chars().take(223).collect::<String>());
        if view.record(&REVISIONS, &Key::new(text(&owner.namespace), name.as_str())).is_some() {
            return Present::Collision;
        }
        let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
        labels.insert(hash_label.to_owned(), hash);
        let object = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {
                "name": name, "namespace": owner.namespace, "labels": labels, "annotations": owner.annotations,
                "ownerReferences": [controller_reference(K::API_VERSION, K::KIND, owner)],
            },
            "data": data, "revision": next,
        });
        Present::Written(Operation::Create { resource: REVISIONS, namespace: text(&owner.namespace).to_owned(), object })
    }

    pub fn named(&self, name: &str) -> Option<&Arc<ControllerRevision>> {
        self.revisions.iter().find(|revision| text(&revision.metadata.name) == name)
    }

    /// Deletes the oldest that nobody is of, beyond `limit`.
    pub fn clean_up(&self, limit: i32, is_live: impl Fn(&ControllerRevision) -> bool) -> Vec<Operation> {
        let unused: Vec<&Arc<ControllerRevision>> = self.revisions.iter().filter(|revision| !is_live(revision)).collect();
        let surplus = unused.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        unused.into_iter().take(surplus).map(|revision| Operation::delete::<ControllerRevision>(&revision.metadata)).collect()
    }
}

/// The revision that a pod's label names.
pub fn revision_of(meta: &ObjectMeta) -> &str {
    meta.labels.as_ref().and_then(|labels| labels.get(REVISION_LABEL)).map(String::as_str).unwrap_or_default()
}

/// A revision's own hash, under whichever label its owner's kind keeps it.
pub fn hash_of<'a>(revision: &'a ControllerRevision, hash_label: &str) -> &'a str {
    revision.metadata.labels.as_ref().and_then(|labels| labels.get(hash_label)).map(String::as_str).unwrap_or_default()
}
