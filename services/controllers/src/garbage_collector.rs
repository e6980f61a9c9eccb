//! `garbage-collector-controller`: deletes what has lost its last owner, and carries foreground and orphan deletion through.
//!
//! Keyed by uid (as a cluster-scoped key), since it spans every resource. The view holds all objects at one revision, so an owner's absence is a
//! fact and needs no live look-up. Rules: <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use wheelhouse_kinds::plan::{DeleteOptions, EventNote, EventType, MAX_OPERATIONS, Operation, PatchStrategy, Plan, Propagation};
use wheelhouse_kinds::reconciler::{ANY, Context, Reconciler, Trigger, group_of};
use wheelhouse_kinds::view::{Key, Record, View};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Kinds that upstream never collects: events come and go by the thousand and own nothing.
const IGNORED: &[(&str, &str)] = &[("", "events"), ("events.k8s.io", "events")];

pub struct GarbageCollector;

/// An owner reference, as it stands in the view.
enum Owner<'a> {
    Present,
    /// It waits until its dependents are gone.
    Waiting(&'a OwnerReference),
    Absent(&'a OwnerReference),
}

impl Reconciler for GarbageCollector {
    type Memory = ();

    fn name(&self) -> &'static str {
        "garbage-collector-controller"
    }

    fn service_account(&self) -> &'static str {
        "generic-garbage-collector"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let all = Trigger {
            resource: ANY,
            keys: |view, change| {
                let key = |record: &Record| Key::cluster(record.uid());
                let mut keys = Vec::new();
                match (&change.old, &change.new) {
                    (_, Some(new)) => {
                        if !new.owners().is_empty() || new.deleting() {
                            keys.push(key(new));
                        }
                        // A dependent that begins to wait for its owner no more may be what the owner waited for.
                        let old_owners = change.old.iter().flat_map(|old| old.owners());
                        keys.extend(old_owners.filter(|o| !new.owners().contains(o)).map(|o| Key::cluster(o.uid.as_str())));
                        if new.deleting() && new.finalizers().iter().any(|f| f == FOREGROUND) {
                            keys.extend(view.dependents(new.uid()).map(|record| key(record)));
                        }
                    }
                    (Some(old), None) => {
                        keys.extend(view.dependents(old.uid()).map(|record| key(record)));
                        keys.extend(old.owners().iter().map(|owner| Key::cluster(owner.uid.as_str())));
                    }
                    (None, None) => {}
                }
                keys
            },
        };
        vec![all]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let Some(record) = view.by_uid(&key.name) else { return Plan::default() };
        if IGNORED.contains(&(&*record.resource.group, &*record.resource.plural)) {
            return Plan::default();
        }
        let has = |finalizer: &str| record.deleting() && record.finalizers().iter().any(|f| f == finalizer);
        let mut plan = if has(ORPHAN) {
            orphan_dependents(record, view)
        } else if has(FOREGROUND) {
            await_dependents(record, view)
        } else if record.deleting() {
            Plan::default()
        } else {
            collect(record, view)
        };
        if plan.operations.len() > MAX_OPERATIONS {
            plan.operations.truncate(MAX_OPERATIONS);
            plan.requeue_at = Some(cx.now);
        }
        plan
    }
}

/// Takes the owner out of its dependents, then lets it go.
fn orphan_dependents(owner: &Record, view: &View) -> Plan {
    let mut plan = Plan::default();
    for dependent in view.dependents(owner.uid()) {
        plan.operations.push(without_owners(dependent, &[owner.uid()]));
    }
    if plan.operations.is_empty() {
        plan.operations.push(without_finalizer(owner, ORPHAN));
    }
    plan
}

/// Lets the owner go once no dependent blocks it. The dependents themselves are keys of their own.
fn await_dependents(owner: &Record, view: &View) -> Plan {
    let mut plan = Plan::default();
    let blocks = |dependent: &Record| dependent.owners().iter().any(|o| o.uid == owner.uid() && o.block_owner_deletion == Some(true));
    if !view.dependents(owner.uid()).any(|dependent| blocks(dependent)) {
        plan.operations.push(without_finalizer(owner, FOREGROUND));
    }
    plan
}

/// Deletes an object that no owner keeps; drops the references to owners that are gone or wait for it.
fn collect(record: &Record, view: &View) -> Plan {
    let mut plan = Plan::default();
    let owners: Vec<Owner<'_>> = record.owners().iter().map(|owner| standing(owner, record, view, &mut plan)).collect();
    if owners.is_empty() {
        return plan;
    }
    let waiting = owners.iter().any(|owner| matches!(owner, Owner::Waiting(_)));
    if owners.iter().any(|owner| matches!(owner, Owner::Present)) {
        let gone: Vec<&str> = owners
            .iter()
            .filter_map(|owner| match owner {
                Owner::Present => None,
                Owner::Waiting(o) | Owner::Absent(o) => Some(o.uid.as_str()),
            })
            .collect();
        if !gone.is_empty() {
            plan.operations.push(without_owners(record, &gone));
        }
        return plan;
    }
    let has_dependents = view.dependents(record.uid()).next().is_some();
    let finalizer = |name: &str| record.finalizers().iter().any(|f| f == name);
    let propagation = if waiting && has_dependents {
        // Its own dependents go first, so that the waiting owner sees the whole tree go.
        Propagation::Foreground
    } else if finalizer(ORPHAN) {
        Propagation::Orphan
    } else if finalizer(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let options = DeleteOptions {
        uid: record.meta.uid.clone(),
        resource_version: Some(record.revision.to_string()),
        propagation: Some(propagation),
        ..DeleteOptions::default()
    };
    plan.operations.push(Operation::Delete { resource: record.resource.clone(), key: record.key.clone(), options });
    plan
}

fn standing<'a>(owner: &'a OwnerReference, dependent: &Record, view: &View, plan: &mut Plan) -> Owner<'a> {
    let Some(found) = view.by_uid(&owner.uid) else { return Owner::Absent(owner) };
    let same_name = *found.key.name == *owner.name && found.kind == owner.kind && group_of(&found.api_version) == group_of(&owner.api_version);
    let same_place = found.key.namespace.is_empty() || found.key.namespace == dependent.key.namespace;
    if !same_name || !same_place {
        plan.events.push(EventNote {
            api_version: dependent.api_version.to_string(),
            kind: dependent.kind.to_string(),
            key: dependent.key.clone(),
            uid: dependent.uid().to_owned(),
            kind_of_event: EventType::Warning,
            reason: "OwnerRefInvalidNamespace".into(),
            message: format!(
                "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
                owner.api_version, owner.kind, dependent.key.namespace, owner.name, owner.uid, dependent.key.namespace
            ),
        });
        return Owner::Absent(owner);
    }
    let waits = found.deleting() && found.finalizers().iter().any(|f| f == FOREGROUND);
    if waits { Owner::Waiting(owner) } else { Owner::Present }
}

fn without_owners(record: &Record, uids: &[&str]) -> Operation {
    let left: Vec<Value> = record
        .owners()
        .iter()
        .filter(|owner| !uids.contains(&owner.uid.as_str()))
        .map(|owner| serde_json::to_value(owner).expect("an owner reference is plain data"))
        .collect();
    metadata_patch(record, "ownerReferences", json!(left))
}

fn without_finalizer(record: &Record, finalizer: &str) -> Operation {
    let left: Vec<&String> = record.finalizers().iter().filter(|f| *f != finalizer).collect();
    metadata_patch(record, "finalizers", json!(left))
}

/// A merge patch that loses to any other change of the object: the resourceVersion in it is a precondition.
fn metadata_patch(record: &Record, field: &str, value: Value) -> Operation {
    let value = if value.as_array().is_some_and(Vec::is_empty) { Value::Null } else { value };
    let mut metadata = json!({"uid": record.uid(), "resourceVersion": record.revision.to_string()});
    metadata[field] = value;
    Operation::Patch {
        resource: record.resource.clone(),
        key: record.key.clone(),
        subresource: "",
        strategy: PatchStrategy::Merge,
        patch: json!({"metadata": metadata}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_kinds::reconciler::testing::{World, context};

    fn object(name: &str, extra: &str) -> String {
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}"{extra}}}}}"#)
    }

    fn owned(name: &str, owner: &str) -> String {
        object(
            name,
            &format!(r#","ownerReferences":[{{"apiVersion":"v1","kind":"ConfigMap","name":"{owner}","uid":"u-{owner}","blockOwnerDeletion":true}}]"#),
        )
    }

    fn ending(name: &str, finalizer: &str) -> String {
        object(name, &format!(r#","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["{finalizer}"]"#))
    }

    fn plan(world: &World, name: &str) -> Vec<String> {
        let plan = GarbageCollector.reconcile(&Key::cluster(format!("u-{name}")), world.view(), &context(), &mut ());
        let lines = plan.operations.iter().map(|operation| match operation {
            Operation::Delete { key, options, .. } => format!("delete {key} {}", options.propagation.unwrap().as_str()),
            Operation::Patch { key, patch, .. } => {
                let mut metadata = patch["metadata"].clone();
                metadata.as_object_mut().unwrap().retain(|name, _| name != "uid" && name != "resourceVersion");
                format!("patch {key} {metadata}")
            }
            other => panic!("{other:?}"),
        });
        lines.collect()
    }

    #[test]
    fn an_orphaned_dependent_is_deleted() {
        let world = World::new().with(&owned("child", "gone"));
        assert_eq!(plan(&world, "child"), ["delete a/child Background"]);
    }

    #[test]
    fn one_living_owner_is_enough() {
        let both = object(
            "child",
            r#","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"u-gone"},{"apiVersion":"v1","kind":"ConfigMap","name":"here","uid":"u-here"}]"#,
        );
        let world = World::new().with(&object("here", "")).with(&both);
        assert_eq!(
            plan(&world, "child"),
            [r#"patch a/child {"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"here","uid":"u-here"}]}"#]
        );
    }

    #[test]
    fn foreground_deletion_takes_the_tree_from_its_leaves() {
        let world = World::new().with(&ending("root", FOREGROUND)).with(&owned("middle", "root")).with(&owned("leaf", "middle"));
        assert_eq!(plan(&world, "root"), Vec::<String>::new(), "it waits");
        assert_eq!(plan(&world, "middle"), ["delete a/middle Foreground"]);
        let world = World::new().with(&ending("root", FOREGROUND)).with(&owned("middle", "root"));
        assert_eq!(plan(&world, "middle"), ["delete a/middle Background"]);
        let world = World::new().with(&ending("root", FOREGROUND));
        assert_eq!(plan(&world, "root"), [r#"patch a/root {"finalizers":null}"#]);
    }

    #[test]
    fn orphaning_frees_the_dependents_before_the_owner() {
        let world = World::new().with(&ending("root", ORPHAN)).with(&owned("child", "root"));
        assert_eq!(plan(&world, "root"), [r#"patch a/child {"ownerReferences":null}"#]);
        let world = World::new().with(&ending("root", ORPHAN)).with(&object("child", ""));
        assert_eq!(plan(&world, "root"), [r#"patch a/root {"finalizers":null}"#]);
    }

    #[test]
    fn an_owner_in_another_namespace_is_no_owner() {
        let stranger = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"gone","namespace":"b","uid":"u-gone"}}"#;
        let world = World::new().with(stranger).with(&owned("child", "gone"));
        let plan = GarbageCollector.reconcile(&Key::cluster("u-child"), world.view(), &context(), &mut ());
        assert!(matches!(&plan.operations[..], [Operation::Delete { .. }]), "{plan:?}");
        assert_eq!(plan.events[0].reason, "OwnerRefInvalidNamespace");
    }

    #[test]
    fn a_living_object_without_owners_is_left_alone() {
        let world = World::new().with(&object("x", ""));
        assert!(plan(&world, "x").is_empty());
    }
}
