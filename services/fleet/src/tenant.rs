//! The `tenant` reconciler: a tenant's namespace, what the tenant may do in it, and its end.
//!
//! The tenant API acts as the tenant (`wheelhouse:tenant:<id>`, impersonated), so the RoleBinding written here is what confines it.
//! A deleted tenant's namespace is deleted with all its Clusters; the Tenant goes when the namespace has.
//!
//! Memory: none.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::json;
use wheelhouse_kinds::fleet::conditions::{self, READY, Reading, reason};
use wheelhouse_kinds::fleet::tenant::FINALIZER;
use wheelhouse_kinds::fleet::{Tenant, tenant_namespace, tenant_of_namespace};
use wheelhouse_kinds::plan::{DeleteOptions, Operation, PatchStrategy, Plan};
use wheelhouse_kinds::reconciler::{Context, Reconciler, Trigger};
use wheelhouse_kinds::view::{Key, ObjectChange, View};

use crate::bootstrap::TENANT_ROLE;
use crate::names::{CLUSTERS, NAMESPACES, ROLE_BINDINGS, TENANTS};

/// The user that the tenant API acts as for a tenant.
pub fn tenant_user(tenant: &str) -> String {
    format!("wheelhouse:tenant:{tenant}")
}

pub struct TenantReconciler;

impl Reconciler for TenantReconciler {
    type Memory = ();

    fn name(&self) -> &'static str {
        "fleet-tenant-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let of_namespace = |_: &View, change: &ObjectChange| tenant_of_namespace(&change.reference.key.name).map(Key::cluster).into_iter().collect();
        let of_cluster =
            |_: &View, change: &ObjectChange| tenant_of_namespace(&change.reference.key.namespace).map(Key::cluster).into_iter().collect();
        vec![
            Trigger::itself(TENANTS),
            Trigger { resource: NAMESPACES, keys: of_namespace },
            Trigger { resource: CLUSTERS, keys: of_cluster },
            Trigger { resource: ROLE_BINDINGS, keys: of_cluster },
        ]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, (): &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(tenant) = view.get::<Tenant>("", &key.name) else { return plan };
        let namespace = tenant_namespace(&key.name);
        let existing = view.get::<Namespace>("", &namespace);
        let patch = |subresource, patch| Operation::Patch { resource: TENANTS, key: key.clone(), subresource, strategy: PatchStrategy::Merge, patch };
        if tenant.is_deleting() {
            match existing {
                Some(existing) if existing.metadata.deletion_timestamp.is_none() => {
                    let options = DeleteOptions { uid: existing.metadata.uid.clone(), ..DeleteOptions::default() };
                    plan.operations.push(Operation::Delete { resource: NAMESPACES, key: Key::cluster(namespace.as_str()), options });
                }
                Some(_) => {}
                None if tenant.has_finalizer(FINALIZER) => {
                    let rest: Vec<&String> = tenant.metadata.finalizers.iter().flatten().filter(|f| *f != FINALIZER).collect();
                    plan.operations.push(patch("", json!({"metadata": {"resourceVersion": tenant.metadata.resource_version, "finalizers": rest}})));
                }
                None => {}
            }
            return plan;
        }
        if !tenant.has_finalizer(FINALIZER) {
            let mut finalizers = tenant.metadata.finalizers.clone().unwrap_or_default();
            finalizers.push(FINALIZER.to_owned());
            plan.operations.push(patch("", json!({"metadata": {"resourceVersion": tenant.metadata.resource_version, "finalizers": finalizers}})));
        }
        if existing.is_none() {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"fleet.wheelhouse.dev/tenant": key.name}}});
            plan.operations.push(Operation::Create { resource: NAMESPACES, namespace: String::new(), object });
        }
        if view.get::<RoleBinding>(&namespace, TENANT_ROLE).is_none() {
            let object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": TENANT_ROLE, "namespace": namespace},
                "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": tenant_user(&key.name)}],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": TENANT_ROLE},
            });
            plan.operations.push(Operation::Create { resource: ROLE_BINDINGS, namespace: namespace.clone(), object });
        }
        let mut status = tenant.status.clone().unwrap_or_default();
        status.observed_generation = tenant.generation();
        status.clusters = view.records(&CLUSTERS, Some(&namespace)).count() as i64;
        let (ready, why) = if tenant.spec.suspended { (false, reason::SUSPENDED) } else { (true, reason::SETTLED) };
        conditions::set(
            &mut status.conditions,
            Reading { kind: READY, status: Some(ready), reason: why, message: String::new() },
            tenant.generation(),
            cx.now,
        );
        if tenant.status.as_ref() != Some(&status) {
            plan.operations.push(patch("status", json!({"metadata": {"uid": tenant.uid()}, "status": status})));
        }
        plan
    }
}
