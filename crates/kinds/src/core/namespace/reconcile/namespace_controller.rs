//! `namespace-controller`: empties a namespace that is being deleted, then releases it.
//!
//! Pods go first (KEP-5080), so that nothing they rely on, such as a NetworkPolicy, is taken from under them. What holds the deletion up is
//! told in the five conditions that upstream keeps.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::plan::{DeleteOptions, MAX_OPERATIONS, Operation, Plan, Propagation};
use crate::reconciler::{ANY, Context, Reconciler, Trigger};
use crate::time::api_time;
use crate::view::{Key, Record, ResourceName, View};

const NAMESPACES: ResourceName = ResourceName::new("", "namespaces");
const PODS: ResourceName = ResourceName::new("", "pods");
const FINALIZER: &str = "kubernetes";

pub struct NamespaceController;

/// What is left in a namespace.
#[derive(Default)]
struct Remaining<'a> {
    records: Vec<&'a Record>,
    per_resource: BTreeMap<String, usize>,
    per_finalizer: BTreeMap<String, usize>,
}

impl<'a> Remaining<'a> {
    fn of(namespace: &str, view: &'a View) -> Self {
        let mut remaining = Self::default();
        for resource in view.resources() {
            for record in view.records(resource, Some(namespace)) {
                *remaining.per_resource.entry(format!("{}.{}", resource.plural, resource.group)).or_default() += 1;
                for finalizer in record.finalizers() {
                    *remaining.per_finalizer.entry(finalizer.clone()).or_default() += 1;
                }
                remaining.records.push(record);
            }
        }
        remaining
    }

    /// The next objects to delete: pods while there are any, then the rest.
    fn deletions(&self) -> Vec<Operation> {
        let pods = self.records.iter().any(|record| record.resource == PODS);
        let next = self.records.iter().filter(|record| !record.deleting() && (!pods || record.resource == PODS));
        let delete = |record: &&Record| Operation::Delete {
            resource: record.resource.clone(),
            key: record.key.clone(),
            options: DeleteOptions { uid: record.meta.uid.clone(), propagation: Some(Propagation::Background), ..DeleteOptions::default() },
        };
        // One place is kept for the status.
        next.take(MAX_OPERATIONS - 1).map(delete).collect()
    }
}

impl Reconciler for NamespaceController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "namespace-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let content = Trigger {
            resource: ANY,
            keys: |view, change| {
                let key = Key::cluster(change.reference.key.namespace.clone());
                let ending = view.record(&NAMESPACES, &key).is_some_and(|record| record.deleting());
                if ending { vec![key] } else { Vec::new() }
            },
        };
        vec![Trigger::itself(NAMESPACES), content]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(namespace) = view.get::<Namespace>("", &key.name) else { return plan };
        let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
        if namespace.metadata.deletion_timestamp.is_none() || !finalizers.iter().any(|f| f == FINALIZER) {
            return plan;
        }
        let remaining = Remaining::of(&key.name, view);
        if remaining.records.is_empty() {
            let mut object = view.record(&NAMESPACES, key).map(|record| record.value()).unwrap_or_default();
            object["spec"]["finalizers"] = json!(finalizers.iter().filter(|f| *f != FINALIZER).collect::<Vec<_>>());
            plan.operations.push(Operation::Update { resource: NAMESPACES, subresource: "finalize", object });
            return plan;
        }
        plan.operations = remaining.deletions();
        if plan.operations.len() >= MAX_OPERATIONS - 1 {
            plan.requeue_at = Some(cx.now);
        }
        plan.operations.extend(conditions_update(&namespace, &remaining, view, key, cx));
        plan
    }
}

/// The five conditions, if any of them changes.
fn conditions_update(namespace: &Namespace, remaining: &Remaining<'_>, view: &View, key: &Key, cx: &Context<'_>) -> Option<Operation> {
    let mut conditions = namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let before = conditions.clone();
    let content = (!remaining.per_resource.is_empty()).then(|| {
        let parts: Vec<String> = remaining.per_resource.iter().map(|(r, n)| format!("{r} has {n} resource instances")).collect();
        ("SomeResourcesRemain", format!("Some resources are remaining: {}", parts.join(", ")))
    });
    let finalizers = (!remaining.per_finalizer.is_empty()).then(|| {
        let parts: Vec<String> = remaining.per_finalizer.iter().map(|(f, n)| format!("{f} in {n} resource instances")).collect();
        ("SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {}", parts.join(", ")))
    });
    let none = || None::<(&str, String)>;
    let wanted = [
        ("NamespaceDeletionDiscoveryFailure", none(), "ResourcesDiscovered", "All resources successfully discovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", none(), "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ("NamespaceDeletionContentFailure", none(), "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ("NamespaceContentRemaining", content, "ContentRemoved", "All content successfully removed"),
        ("NamespaceFinalizersRemaining", finalizers, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
    ];
    for (kind, problem, reason, message) in wanted {
        let status = if problem.is_some() { "True" } else { "False" };
        let (reason, message) = problem.unwrap_or((reason, message.to_owned()));
        set_condition(&mut conditions, kind, status, reason, &message, api_time(cx.now));
    }
    if conditions == before {
        return None;
    }
    let mut object = view.record(&NAMESPACES, key)?.value();
    object["status"]["conditions"] = serde_json::to_value(conditions).expect("conditions are plain data");
    Some(Operation::Update { resource: NAMESPACES, subresource: "status", object })
}

fn set_condition(conditions: &mut Vec<NamespaceCondition>, kind: &str, status: &str, reason: &str, message: &str, now: Time) {
    let position = conditions.iter().position(|condition| condition.type_ == kind);
    let changed = position.is_none_or(|at| conditions[at].status != status);
    let at = position.unwrap_or_else(|| {
        conditions.push(NamespaceCondition { type_: kind.to_owned(), ..NamespaceCondition::default() });
        conditions.len() - 1
    });
    let condition = &mut conditions[at];
    if changed {
        condition.last_transition_time = Some(now);
    }
    condition.status = status.to_owned();
    condition.reason = Some(reason.to_owned());
    condition.message = Some(message.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    const TERMINATING: &str = r#"
        {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","uid":"n","deletionTimestamp":"2026-01-01T00:00:00Z"},
         "spec":{"finalizers":["kubernetes"]},"status":{"phase":"Terminating"}}"#;

    fn plan(world: &World) -> Plan {
        NamespaceController.reconcile(&Key::cluster("a"), world.view(), &context(), &mut ())
    }

    fn deleted(plan: &Plan) -> Vec<String> {
        let names = plan.operations.iter().filter_map(|operation| match operation {
            Operation::Delete { resource, key, .. } => Some(format!("{resource} {key}")),
            _ => None,
        });
        names.collect()
    }

    #[test]
    fn an_empty_namespace_is_released() {
        let world = World::new().with(TERMINATING);
        let plan = plan(&world);
        let [Operation::Update { subresource: "finalize", object, .. }] = &plan.operations[..] else { panic!("{plan:?}") };
        assert_eq!(object["spec"]["finalizers"], json!([]));
    }

    #[test]
    fn pods_go_before_everything_else() {
        let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"a","uid":"m"}}"#;
        let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a","uid":"p"},"spec":{"containers":[]}}"#;
        let other = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"b","uid":"x"}}"#;
        let world = World::new().with(TERMINATING).with(map).with(other).with(pod);
        assert_eq!(deleted(&plan(&world)), ["pods a/p"]);
        let world = World::new().with(TERMINATING).with(map).with(other);
        assert_eq!(deleted(&plan(&world)), ["configmaps a/m"]);
    }

    #[test]
    fn what_holds_the_deletion_up_is_told() {
        let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"a","uid":"m",
            "deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x.io/y"]}}"#;
        let world = World::new().with(TERMINATING).with(map);
        let plan = plan(&world);
        let [Operation::Update { subresource: "status", object, .. }] = &plan.operations[..] else { panic!("{plan:?}") };
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let messages: Vec<_> = conditions.iter().filter(|c| c["status"] == "True").map(|c| c["message"].as_str().unwrap()).collect();
        assert_eq!(
            messages,
            [
                "Some resources are remaining: configmaps. has 1 resource instances",
                "Some content in the namespace has finalizers remaining: x.io/y in 1 resource instances"
            ]
        );
    }

    #[test]
    fn a_living_namespace_is_left_alone() {
        let world =
            World::new().with(r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","uid":"n"},"spec":{"finalizers":["kubernetes"]}}"#);
        assert!(plan(&world).is_empty());
    }
}
