//! `crd-finalizer`: deletes the objects of a deleted definition, then lets it go.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use wheelhouse_meta::time::rfc3339;

use super::super::CLEANUP_FINALIZER;
use super::DEFINITIONS;
use crate::plan::{DeleteOptions, MAX_OPERATIONS, Operation, Plan};
use crate::reconciler::{ANY, Context, Reconciler, Trigger};
use crate::view::{Key, Record, ResourceName, View};

/// Keyed by the definition.
pub struct CrdFinalizer;

impl Reconciler for CrdFinalizer {
    type Memory = ();

    fn name(&self) -> &'static str {
        "crd-finalizer"
    }

    fn is_part_of_the_server(&self) -> bool {
        true
    }

    fn triggers(&self) -> Vec<Trigger> {
        // The last object that goes sets its definition free, whose name follows from the object's resource.
        let objects = Trigger {
            resource: ANY,
            keys: |view, change| {
                let resource = &change.reference.resource;
                let key = Key::cluster(format!("{}.{}", resource.plural, resource.group));
                let waits = change.new.is_none() && view.record(&DEFINITIONS, &key).is_some_and(|definition| definition.deleting());
                if waits { vec![key] } else { Vec::new() }
            },
        };
        vec![Trigger::itself(DEFINITIONS), objects]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(record) = view.record(&DEFINITIONS, key) else { return plan };
        if !record.deleting() || !record.finalizers().iter().any(|f| f == CLEANUP_FINALIZER) {
            return plan;
        }
        let Some(definition) = record.typed::<CustomResourceDefinition>() else { return plan };
        let resource = ResourceName { group: definition.spec.group.clone().into(), plural: definition.spec.names.plural.clone().into() };
        let objects: Vec<_> = view.records(&resource, None).collect();
        let progress = if objects.is_empty() {
            ("False", "InstanceDeletionCompleted", "removed all instances")
        } else {
            ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
        };
        // One write of the definition at a time: the next look follows from it.
        if let Some(object) = with_progress(record, progress, cx) {
            plan.operations.push(Operation::Update { resource: DEFINITIONS, subresource: "status", object });
            return plan;
        }
        if objects.is_empty() {
            let mut object = record.value();
            if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|f| f != CLEANUP_FINALIZER);
            }
            plan.operations.push(Operation::Update { resource: DEFINITIONS, subresource: "", object });
            return plan;
        }
        let going = objects.into_iter().filter(|object| !object.deleting()).take(MAX_OPERATIONS);
        plan.operations.extend(going.map(|object| Operation::Delete {
            resource: resource.clone(),
            key: object.key.clone(),
            options: DeleteOptions { uid: Some(object.uid().to_owned()), ..DeleteOptions::default() },
        }));
        plan
    }
}

/// The definition with how far its end has come; `None` if it says so already.
fn with_progress(record: &Record, (status, reason, message): (&str, &str, &str), cx: &Context<'_>) -> Option<Value> {
    let mut object = record.value();
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let conditions = conditions.as_array_mut()?;
    let mut condition = json!({"type": "Terminating", "status": status, "lastTransitionTime": rfc3339(cx.now), "reason": reason, "message": message});
    match conditions.iter_mut().find(|c| c["type"] == "Terminating") {
        Some(old) if old["reason"] == reason => return None,
        Some(old) => {
            if old["status"] == status {
                condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    #[test]
    fn a_definition_goes_when_its_objects_are_gone() {
        let definition = |conditions: Value| {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "configmaps.k.io", "uid": "d", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x", CLEANUP_FINALIZER]},
                "spec": {"group": "k.io", "scope": "Cluster", "versions": [], "names": {"plural": "configmaps", "kind": "Thing"}},
                "status": {"conditions": conditions},
            })
            .to_string()
        };
        let plan = |conditions: Value| {
            let world = World::new().with(&definition(conditions));
            CrdFinalizer.reconcile(&Key::cluster("configmaps.k.io"), world.view(), &context(), &mut ())
        };
        let done = json!({"type": "Terminating", "status": "False", "reason": "InstanceDeletionCompleted"});
        let first = plan(json!([]));
        assert!(
            matches!(&first.operations[..], [Operation::Update { subresource: "status", object, .. }] if object["status"]["conditions"][0]["reason"] == done["reason"])
        );
        let last = plan(json!([done]));
        assert!(
            matches!(&last.operations[..], [Operation::Update { subresource: "", object, .. }] if object["metadata"]["finalizers"] == json!(["x"]))
        );
    }
}
