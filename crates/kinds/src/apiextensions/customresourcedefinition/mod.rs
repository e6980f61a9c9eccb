//! CustomResourceDefinition: a kind that a cluster defines for itself.
//!
//! ```text
//! create -> NamesAccepted -> Established: served -> deleted: Terminating, its objects go -> the finalizer goes, and the definition with it
//! ```
//!
//! What it defines is served once its names are accepted, from the store's own state and on every replica. CEL rules
//! (`x-kubernetes-validations`) are kept and not evaluated, which every write of a definition that has some warns of.

mod defaults;
pub mod reconcile;
mod structural;
mod validate;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinitionCondition, CustomResourceDefinitionNames, CustomResourceDefinitionStatus,
};
use serde_json::json;
use wheelhouse_meta::time::rfc3339;

use crate::prelude::*;

pub struct CustomResourceDefinitionKind;

/// Keeps a deleted definition until none of its objects is left.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

const NOT_EVALUATED: &str = "x-kubernetes-validations are kept but not evaluated by this server";

impl TypedKind for CustomResourceDefinitionKind {
    type Object = CustomResourceDefinition;

    const INFO: KindInfo = KindInfo {
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        subresources: &[subresource::STATUS],
        generation: true,
        unconditional_update: false,
        ..KindInfo::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "customresourcedefinition")
    };

    fn default(object: &mut CustomResourceDefinition) {
        defaults::apply(object);
    }

    fn prepare_create(object: &mut CustomResourceDefinition, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(CustomResourceDefinitionStatus { accepted_names: Some(no_names()), ..CustomResourceDefinitionStatus::default() });
        keep_stored_versions(object);
        Verdict { errors: validate::create(object), warnings: warnings(object) }
    }

    fn prepare_update(new: &mut CustomResourceDefinition, old: &CustomResourceDefinition, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            new.metadata.labels.clone_from(&old.metadata.labels);
            new.metadata.annotations.clone_from(&old.metadata.annotations);
            new.metadata.finalizers.clone_from(&old.metadata.finalizers);
            new.metadata.owner_references.clone_from(&old.metadata.owner_references);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        keep_stored_versions(new);
        Verdict { errors: validate::update(new, old), warnings: warnings(new) }
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::CREATED_AT];

    fn row(object: &CustomResourceDefinition, _: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), table::created_at(&object.metadata)]
    }
}

/// What an object shows whose names nobody has looked at yet.
fn no_names() -> CustomResourceDefinitionNames {
    CustomResourceDefinitionNames::default()
}

/// A version in which objects are, or were, stored.
fn keep_stored_versions(object: &mut CustomResourceDefinition) {
    let Some(storage) = object.spec.versions.iter().find(|v| v.storage).map(|v| v.name.clone()) else { return };
    let stored = object.status.get_or_insert_default().stored_versions.get_or_insert_default();
    if !stored.contains(&storage) {
        stored.push(storage);
    }
}

fn warnings(object: &CustomResourceDefinition) -> Vec<String> {
    let has_rules = serde_json::to_string(&object.spec.versions).is_ok_and(|text| text.contains("\"x-kubernetes-validations\":["));
    if has_rules { vec![NOT_EVALUATED.to_owned()] } else { Vec::new() }
}

/// Whether a condition is true.
pub fn is_true(object: &CustomResourceDefinition, condition: &str) -> bool {
    conditions(object).iter().any(|c| c.type_ == condition && c.status == "True")
}

fn conditions(object: &CustomResourceDefinition) -> &[CustomResourceDefinitionCondition] {
    object.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default()
}

/// The first step of deleting a definition: it waits for its objects, and says so. In place on the object as JSON, as the registry's deletion has it.
pub fn begin_deletion(object: &mut Value, now: Timestamp) {
    let finalizers = &mut object["metadata"]["finalizers"];
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Some(finalizers) = finalizers.as_array_mut().filter(|f| !f.iter().any(|f| f == CLEANUP_FINALIZER)) {
        finalizers.push(CLEANUP_FINALIZER.into());
    }
    let condition = json!({
        "type": "Terminating", "status": "True", "lastTransitionTime": rfc3339(now), "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    let conditions = &mut object["status"]["conditions"];
    match conditions.as_array_mut() {
        Some(conditions) if conditions.iter().any(|c| c["type"] == "Terminating") => {}
        Some(conditions) => conditions.push(condition),
        None => *conditions = json!([condition]),
    }
}
