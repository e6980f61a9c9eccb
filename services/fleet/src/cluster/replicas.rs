//! ControlPlaneReplicas: made for members, kept in step with them, removed once the group has let them go.

use std::sync::Arc;

use serde_json::json;
use wheelhouse_base::{ClusterId, ReplicaId};
use wheelhouse_kinds::fleet::cluster::Member;
use wheelhouse_kinds::fleet::conditions::{self, READY, reason};
use wheelhouse_kinds::fleet::control_plane_replica::{ClusterRef, FINALIZER, ReplicaSpec, Role};
use wheelhouse_kinds::fleet::{ControlPlaneReplica, Object, SYSTEM_NAMESPACE};
use wheelhouse_kinds::plan::{DeleteOptions, Operation, PatchStrategy, Plan};
use wheelhouse_kinds::view::{Key, View};

use super::Subject;
use crate::facts;
use crate::names::{CLUSTER_LABEL, REPLICAS};

/// Every replica object of a cluster, also of former members.
pub(super) fn existing(view: &View, cluster: &ClusterId, last: u64) -> Vec<Arc<ControlPlaneReplica>> {
    let get = |id| view.get::<ControlPlaneReplica>(SYSTEM_NAMESPACE, &ControlPlaneReplica::object_name(cluster, ReplicaId(id)));
    (1..=last).filter_map(get).collect()
}

/// The replica that leads with the highest term, of those that say so.
pub(super) fn leader(replicas: &[Arc<ControlPlaneReplica>]) -> Option<&Arc<ControlPlaneReplica>> {
    let term = |r: &&Arc<ControlPlaneReplica>| r.status.as_ref().map_or(0, |s| s.term);
    replicas.iter().filter(|r| r.status.as_ref().is_some_and(|s| s.role == Role::Leader)).max_by_key(term)
}

/// Whether its host says that the data is gone.
pub(super) fn is_lost(replica: &ControlPlaneReplica) -> bool {
    let ready = replica.status.as_ref().and_then(|s| conditions::find(&s.conditions, READY));
    ready.is_some_and(|c| c.status == "False" && c.reason == reason::LOST)
}

/// Creates, updates and deletes replica objects towards the ordered members.
pub(super) fn bring_about(subject: &Subject<'_>, plan: &mut Plan) {
    for member in &subject.cluster.spec.members {
        let found = subject.replicas.iter().find(|r| r.spec.replica_id == member.replica_id);
        match found {
            None => plan.operations.push(create(subject, member)),
            Some(replica) => plan.operations.extend(update(subject, replica)),
        }
    }
    let former = subject.replicas.iter().filter(|r| !subject.cluster.spec.members.iter().any(|m| m.replica_id == r.spec.replica_id));
    for replica in former {
        if replica.is_deleting() {
            plan.operations.extend(release(subject, replica));
        } else if has_left(subject, replica.spec.replica_id) {
            plan.operations.push(delete(replica));
        }
    }
}

/// Whether the group's leader has removed a former member from its voters, under the present orders.
fn has_left(subject: &Subject<'_>, id: ReplicaId) -> bool {
    let leader = leader(&subject.replicas).and_then(|r| r.status.as_ref());
    leader.is_some_and(|s| s.observed_generation >= subject.cluster.generation() && !s.voters.is_empty() && !s.voters.contains(&id))
}

fn spec(subject: &Subject<'_>, member: &Member, founder: bool) -> ReplicaSpec {
    let cluster = &subject.cluster;
    ReplicaSpec {
        cluster_ref: ClusterRef { namespace: cluster.namespace().to_owned(), name: cluster.name().to_owned() },
        cluster_id: subject.id.clone(),
        host: member.host.clone(),
        replica_id: member.replica_id,
        generation: cluster.generation(),
        founder,
        members: cluster.spec.members.clone(),
        version: cluster.spec.version.clone(),
        network: cluster.spec.network.clone(),
        issuer: cluster.spec.issuer.clone(),
        suspended: subject.is_suspended(),
    }
}

fn create(subject: &Subject<'_>, member: &Member) -> Operation {
    // The group is founded once: by its first replica, while no replica has ever been there.
    let never_ran =
        subject.replicas.is_empty() && subject.cluster.status.as_ref().is_none_or(|s| s.members.iter().all(|m| !m.voter) && s.proven.is_empty());
    let founder = never_ran && member.replica_id == ReplicaId(1);
    let name = ControlPlaneReplica::object_name(&subject.id, member.replica_id);
    let mut replica: ControlPlaneReplica = Object::new("ControlPlaneReplica", SYSTEM_NAMESPACE, &name, spec(subject, member, founder));
    replica.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    replica.metadata.labels = Some([(CLUSTER_LABEL.to_owned(), subject.id.to_string())].into());
    let object = serde_json::to_value(&replica).unwrap_or_default();
    Operation::Create { resource: REPLICAS, namespace: SYSTEM_NAMESPACE.to_owned(), object }
}

fn update(subject: &Subject<'_>, replica: &ControlPlaneReplica) -> Option<Operation> {
    let member = Member { replica_id: replica.spec.replica_id, host: replica.spec.host.clone() };
    let wanted = spec(subject, &member, replica.spec.founder);
    if wanted == replica.spec || replica.is_deleting() {
        return None;
    }
    let patch = json!({
        "metadata": {"resourceVersion": replica.metadata.resource_version},
        "spec": {"members": wanted.members, "generation": wanted.generation, "suspended": wanted.suspended, "version": wanted.version},
    });
    Some(patch_replica(replica, patch))
}

pub(super) fn delete(replica: &ControlPlaneReplica) -> Operation {
    let options = DeleteOptions { uid: replica.metadata.uid.clone(), ..DeleteOptions::default() };
    Operation::Delete { resource: REPLICAS, key: Key::new(SYSTEM_NAMESPACE, replica.name()), options }
}

/// Lets a deleted replica go whose host will not say that it is destroyed: the host is deleted, or silent for so long that it is given up. Should it
/// come back, it finds that the replica is not its any more and destroys it then.
pub(super) fn release(subject: &Subject<'_>, replica: &ControlPlaneReplica) -> Option<Operation> {
    let host = facts::hosts(subject.view).into_iter().find(|h| h.name == replica.spec.host);
    let gone = host.is_none_or(|h| h.is_gone(subject.settings.patience.gone_after, subject.now));
    if !gone || !replica.has_finalizer(FINALIZER) {
        return None;
    }
    let rest: Vec<&String> = replica.metadata.finalizers.iter().flatten().filter(|f| *f != FINALIZER).collect();
    let patch = json!({"metadata": {"resourceVersion": replica.metadata.resource_version, "finalizers": rest}});
    Some(patch_replica(replica, patch))
}

fn patch_replica(replica: &ControlPlaneReplica, patch: serde_json::Value) -> Operation {
    let key = Key::new(SYSTEM_NAMESPACE, replica.name());
    Operation::Patch { resource: REPLICAS, key, subresource: "", strategy: PatchStrategy::Merge, patch }
}
