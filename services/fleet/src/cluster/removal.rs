//! Taking a deleted cluster down: replicas, then keys, then the object.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::json;
use std::time::Duration;
use wheelhouse_kinds::fleet::SYSTEM_NAMESPACE;
use wheelhouse_kinds::fleet::cluster::FINALIZER;
use wheelhouse_kinds::plan::{DeleteOptions, Operation, Plan};
use wheelhouse_kinds::view::{Key, ResourceName};

use super::{Subject, replicas};
use crate::names::{ROLE_BINDINGS, ROLES, SECRETS, bundle_name};

/// Whether a silent host has been given up meanwhile is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

pub(super) fn take_down(subject: &Subject<'_>) -> Plan {
    let mut plan = Plan::default();
    if !subject.replicas.is_empty() {
        for replica in &subject.replicas {
            if replica.is_deleting() {
                plan.operations.extend(replicas::release(subject, replica));
            } else {
                plan.operations.push(replicas::delete(replica));
            }
        }
        plan.requeue_at = Some(subject.now.plus(LOOK_AGAIN));
        return plan;
    }
    let name = bundle_name(&subject.id);
    let mut remove = |resource: ResourceName, exists: bool| {
        if exists {
            let key = Key::new(SYSTEM_NAMESPACE, name.as_str());
            plan.operations.push(Operation::Delete { resource, key, options: DeleteOptions::default() });
        }
    };
    // The keys last: were the plan cut short before, the cluster would still be there to be taken down.
    remove(ROLE_BINDINGS, subject.view.get::<RoleBinding>(SYSTEM_NAMESPACE, &name).is_some());
    remove(ROLES, subject.view.get::<Role>(SYSTEM_NAMESPACE, &name).is_some());
    remove(SECRETS, subject.view.get::<Secret>(SYSTEM_NAMESPACE, &name).is_some());
    if subject.cluster.has_finalizer(FINALIZER) {
        let rest: Vec<&String> = subject.cluster.metadata.finalizers.iter().flatten().filter(|f| *f != FINALIZER).collect();
        let patch = json!({"metadata": {"resourceVersion": subject.cluster.metadata.resource_version, "finalizers": rest}});
        plan.operations.push(subject.patch_cluster("", patch));
    }
    plan
}
