//! The `cluster` reconciler: from a Cluster to its keys, its replicas and its status.
//!
//! ```text
//! Cluster ─▶ keys (effect, Secret) ─┐
//!    └─▶ placement ─▶ spec.members ─┴─▶ ControlPlaneReplicas ─▶ hosts run them ─▶ their status ─▶ proof (effect) ─▶ Ready
//! deleted: ControlPlaneReplicas go first (hosts destroy data and keys), then the wrapped keys, then the Cluster
//! ```
//!
//! It also lets each member's host read the cluster's wrapped keys, and no other's: one Role and one RoleBinding for each bundle.
//!
//! Memory after a leader change: empty. Proofs that failed are tried again at once; what was proven is in the status and stays.

mod removal;
mod replicas;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::{Value, json};
use wheelhouse_base::{ClusterId, ReplicaId, Timestamp};
use wheelhouse_kinds::fleet::cluster::FINALIZER;
use wheelhouse_kinds::fleet::conditions::{self, READY};
use wheelhouse_kinds::fleet::{Cluster, ControlPlaneReplica, Host, SYSTEM_NAMESPACE, Tenant, tenant_namespace, tenant_of_namespace};
use wheelhouse_kinds::plan::{Effect, EffectKind, Operation, PatchStrategy, Plan};
use wheelhouse_kinds::reconciler::{Context, Reconciler, Trigger};
use wheelhouse_kinds::view::{Key, ObjectChange, View};

use crate::facts;
use crate::host::Patience;
use crate::names::{BUNDLE_KEY, CLUSTER_LABEL, CLUSTERS, HOSTS, REPLICAS, ROLE_BINDINGS, ROLES, SECRETS, TENANTS, bundle_name, host_user};
use crate::placement::{Placement, Wanted, place};

/// How long after a failed effect the next attempt is made.
const RETRY: Duration = Duration::from_secs(1);

/// What all clusters share.
#[derive(Clone, Debug)]
pub struct Settings {
    pub base_domain: String,
    /// `https://host:port`, as tenants reach the endpoint.
    pub endpoint: String,
    pub patience: Patience,
}

pub struct ClusterReconciler {
    pub settings: Settings,
}

/// What is remembered of each cluster.
pub type Memories = BTreeMap<Key, Memory>;

/// Attempts at effects, so that each has an id of its own.
#[derive(Debug, Default)]
pub struct Memory {
    attempts: u64,
    retry_at: Option<Timestamp>,
}

/// One cluster and what belongs to it.
struct Subject<'a> {
    cluster: Arc<Cluster>,
    id: ClusterId,
    replicas: Vec<Arc<ControlPlaneReplica>>,
    view: &'a View,
    settings: &'a Settings,
    now: Timestamp,
}

impl Reconciler for ClusterReconciler {
    type Memory = Memories;

    fn name(&self) -> &'static str {
        "fleet-cluster-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        vec![
            Trigger::itself(CLUSTERS),
            Trigger { resource: REPLICAS, keys: cluster_of_replica },
            Trigger { resource: HOSTS, keys: clusters_if_host_matters },
            Trigger { resource: TENANTS, keys: clusters_of_tenant },
            Trigger { resource: SECRETS, keys: cluster_of_bundle },
        ]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memories: &mut Memories) -> Plan {
        let Some(cluster) = view.get::<Cluster>(&key.namespace, &key.name) else {
            memories.remove(key);
            return Plan::default();
        };
        let memory = memories.entry(key.clone()).or_default();
        let id = cluster.cluster_id();
        let replicas = replicas::existing(view, &id, cluster.spec.last_replica_id);
        let subject = Subject { cluster, id, replicas, view, settings: &self.settings, now: cx.now };
        if subject.cluster.is_deleting() && !subject.cluster.is_system() {
            return removal::take_down(&subject);
        }

        let mut plan = Plan::default();
        let placement = subject.placement();
        let settled = subject.order_members(&placement, &mut plan);
        let keyed = subject.ensure_keys(cx, memory, &mut plan);
        if settled && keyed {
            subject.grant_keys(&mut plan);
            replicas::bring_about(&subject, &mut plan);
        }
        status::report(&subject, &placement, cx, memory, &mut plan);
        if let Some(at) = placement.look_again {
            plan.requeue_no_later_than(at);
        }
        plan
    }
}

impl Subject<'_> {
    fn placement(&self) -> Placement {
        let spec = &self.cluster.spec;
        let lost: Vec<ReplicaId> = self.replicas.iter().filter(|r| replicas::is_lost(r)).map(|r| r.spec.replica_id).collect();
        let wanted = Wanted {
            lost: &lost,
            replicas: usize::try_from(spec.replicas).unwrap_or(0),
            members: &spec.members,
            last_replica_id: spec.last_replica_id,
            leader: replicas::leader(&self.replicas).map(|r| r.spec.replica_id),
            starts_small: self.cluster.is_system(),
            gone_after: self.settings.patience.gone_after,
        };
        place(wanted, &facts::hosts(self.view), self.now)
    }

    /// Writes the finalizer and the members. True when both are as they should be, so that replicas may be made of them.
    fn order_members(&self, placement: &Placement, plan: &mut Plan) -> bool {
        let cluster = &self.cluster;
        let held = cluster.has_finalizer(FINALIZER);
        let placed = placement.members == cluster.spec.members;
        if held && placed {
            return true;
        }
        let mut finalizers = cluster.metadata.finalizers.clone().unwrap_or_default();
        if !held {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({
            "metadata": {"resourceVersion": cluster.metadata.resource_version, "finalizers": finalizers},
            "spec": {"members": placement.members, "lastReplicaID": placement.last_replica_id},
        });
        plan.operations.push(self.patch_cluster("", patch));
        false
    }

    fn patch_cluster(&self, subresource: &'static str, patch: Value) -> Operation {
        let key = Key::new(self.cluster.namespace(), self.cluster.name());
        Operation::Patch { resource: CLUSTERS, key, subresource, strategy: PatchStrategy::Merge, patch }
    }

    /// True when the wrapped keys are stored.
    fn ensure_keys(&self, cx: &Context<'_>, memory: &mut Memory, plan: &mut Plan) -> bool {
        if self.view.get::<Secret>(SYSTEM_NAMESPACE, &bundle_name(&self.id)).is_some() {
            return true;
        }
        let effect = |attempt: u64| format!("{}#{attempt}", self.cluster.uid());
        match cx.effects.get(&(EffectKind::IssueClusterKeys, effect(memory.attempts))) {
            Some(Ok(wrapped)) => plan.operations.push(self.bundle_secret(wrapped)),
            Some(Err(error)) => {
                plan.events.push(status::warning(&self.cluster, "KeysNotIssued", error));
                memory.attempts += 1;
                plan.requeue_no_later_than(self.now.plus(RETRY));
            }
            None => {
                plan.effects.push(Effect { kind: EffectKind::IssueClusterKeys, id: effect(memory.attempts), input: json!({"clusterID": self.id}) })
            }
        }
        false
    }

    /// The effect's answer is the wrapped bundle in base64, as a Secret's data is.
    fn bundle_secret(&self, wrapped: &Value) -> Operation {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": bundle_name(&self.id), "namespace": SYSTEM_NAMESPACE, "labels": {CLUSTER_LABEL: self.id},
                "annotations": {"fleet.wheelhouse.dev/cluster": format!("{}/{}", self.cluster.namespace(), self.cluster.name())}},
            "type": "fleet.wheelhouse.dev/bundle",
            "data": {BUNDLE_KEY: wrapped},
        });
        Operation::Create { resource: SECRETS, namespace: SYSTEM_NAMESPACE.to_owned(), object }
    }

    /// The members' hosts, and those of replicas that are still to be taken down, may read this cluster's bundle.
    fn grant_keys(&self, plan: &mut Plan) {
        let name = bundle_name(&self.id);
        let mut users: Vec<String> = self.cluster.spec.members.iter().map(|m| host_user(&m.host)).collect();
        users.extend(self.replicas.iter().map(|r| host_user(&r.spec.host)));
        users.sort();
        users.dedup();
        let metadata = json!({"name": name, "namespace": SYSTEM_NAMESPACE, "labels": {CLUSTER_LABEL: self.id}});
        if self.view.get::<Role>(SYSTEM_NAMESPACE, &name).is_none() {
            let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"]}]);
            let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules});
            plan.operations.push(Operation::Create { resource: ROLES, namespace: SYSTEM_NAMESPACE.to_owned(), object });
        }
        let subjects: Vec<Value> = users.iter().map(|u| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": u})).collect();
        match self.view.get::<RoleBinding>(SYSTEM_NAMESPACE, &name) {
            None => {
                let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
                let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata, "subjects": subjects, "roleRef": role});
                plan.operations.push(Operation::Create { resource: ROLE_BINDINGS, namespace: SYSTEM_NAMESPACE.to_owned(), object });
            }
            Some(binding) if binding.subjects.iter().flatten().map(|s| s.name.as_str()).ne(users.iter().map(String::as_str)) => {
                let patch = json!({"metadata": {"resourceVersion": binding.metadata.resource_version}, "subjects": subjects});
                let key = Key::new(SYSTEM_NAMESPACE, name);
                plan.operations.push(Operation::Patch { resource: ROLE_BINDINGS, key, subresource: "", strategy: PatchStrategy::Merge, patch });
            }
            Some(_) => {}
        }
    }

    /// Whether a replica serves, as far as anybody can tell: a host that is not heard any more cannot take its word back.
    fn serves(&self, replica: &ControlPlaneReplica) -> bool {
        let host = self.view.get::<Host>("", replica.spec.host.as_str());
        let silent = |host: &Host| host.status.as_ref().and_then(|s| conditions::find(&s.conditions, READY)).is_some_and(|c| c.status == "Unknown");
        replica.is_ready() && host.is_some_and(|host| !silent(&host))
    }

    /// Suspended itself, or its tenant is.
    fn is_suspended(&self) -> bool {
        let tenant = tenant_of_namespace(self.cluster.namespace()).and_then(|t| self.view.get::<Tenant>("", t));
        self.cluster.spec.suspended || tenant.is_some_and(|t| t.spec.suspended)
    }
}

fn cluster_of_replica(_: &View, change: &ObjectChange) -> Vec<Key> {
    let record = change.new.as_ref().or(change.old.as_ref());
    let replica = record.and_then(|r| r.typed::<ControlPlaneReplica>());
    replica.map(|r| Key::new(r.spec.cluster_ref.namespace.as_str(), r.spec.cluster_ref.name.as_str())).into_iter().collect()
}

fn clusters_if_host_matters(view: &View, change: &ObjectChange) -> Vec<Key> {
    let host = |record: &Option<Arc<wheelhouse_kinds::view::Record>>| record.as_ref().and_then(|r| r.typed::<Host>());
    if !facts::matters(host(&change.old).as_deref(), host(&change.new).as_deref()) {
        return Vec::new();
    }
    view.records(&CLUSTERS, None).map(|r| r.key.clone()).collect()
}

fn clusters_of_tenant(view: &View, change: &ObjectChange) -> Vec<Key> {
    let namespace = tenant_namespace(&change.reference.key.name);
    view.records(&CLUSTERS, Some(&namespace)).map(|r| r.key.clone()).collect()
}

fn cluster_of_bundle(_: &View, change: &ObjectChange) -> Vec<Key> {
    let record = change.new.as_ref().or(change.old.as_ref());
    let named = record.and_then(|r| r.meta.annotations.as_ref()?.get("fleet.wheelhouse.dev/cluster")?.split_once('/').map(|(ns, n)| Key::new(ns, n)));
    named.into_iter().collect()
}

#[cfg(test)]
mod tests;
