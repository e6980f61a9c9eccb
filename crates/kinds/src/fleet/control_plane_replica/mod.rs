//! ControlPlaneReplica: one replica of one cluster, assigned to one host. In `wheelhouse-system`, named `<cluster id>-r<replica id>`.
//!
//! The fleet controller writes the spec, the host the status. The spec carries all that a host needs to start the replica besides the
//! wrapped keys, and the host keeps a copy on disk, so that a restart needs nobody. Which cluster, which host and which id never change; `members`
//! and `generation` move together, and a host refuses a generation older than the one it has seen.
//!
//! A replica told to join never initialises its group: only the one with `founder` does, once, with the members of its first generation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wheelhouse_base::{ClusterId, HostName, ReplicaId, Timestamp};
use wheelhouse_meta::field::{FieldError, Path};
use wheelhouse_schema::Schema;

use super::cluster::{Member, Network, member_schema, network_schema};
use super::conditions::{self, READY};
use super::object::{Object, resource};
use super::{GROUP, SYSTEM_NAMESPACE, VERSION, schema as shapes};
use crate::kind::{Column, KindInfo, RequestContext, Scope, TypedKind, Verb, Verdict};
use crate::subresource::STATUS;
use crate::table;

pub type ControlPlaneReplica = Object<ReplicaSpec, ReplicaStatus>;

resource!(ControlPlaneReplica, "ControlPlaneReplica", "controlplanereplicas", k8s_openapi::NamespaceResourceScope);

/// Holds a deleted replica until its host has destroyed its data, its keys and its certificates.
pub const FINALIZER: &str = "fleet.wheelhouse.dev/replica";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSpec {
    pub cluster_ref: ClusterRef,
    #[serde(rename = "clusterID")]
    pub cluster_id: ClusterId,
    pub host: HostName,
    #[serde(rename = "replicaID")]
    pub replica_id: ReplicaId,
    /// The Cluster's generation that `members` is from.
    #[serde(default)]
    pub generation: i64,
    /// Initialises the group with `members` if it has never run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub founder: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub network: Network,
    #[serde(default)]
    pub issuer: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

/// Only so that an object without a spec can be decoded and refused with field errors.
impl Default for ReplicaSpec {
    fn default() -> Self {
        Self {
            cluster_ref: ClusterRef::default(),
            cluster_id: ClusterId::system(),
            host: "unset".parse().expect("a constant label"),
            replica_id: ReplicaId(0),
            generation: 0,
            founder: false,
            members: Vec::new(),
            version: String::new(),
            network: Network::default(),
            issuer: String::new(),
            suspended: false,
        }
    }
}

/// The Cluster object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRef {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Leader,
    Follower,
    Learner,
    /// Not running, or without contact to its group.
    #[default]
    Unknown,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Leader => "Leader",
            Role::Follower => "Follower",
            Role::Learner => "Learner",
            Role::Unknown => "Unknown",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub role: Role,
    /// The leadership that `role` is about. The leader with the highest term is the one to believe.
    #[serde(default)]
    pub term: u64,
    /// The store's revision when the status was written.
    #[serde(default)]
    pub revision: u64,
    /// The group's voters, as this replica has applied them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub voters: Vec<ReplicaId>,
    #[serde(default)]
    pub observed_generation: i64,
}

impl ControlPlaneReplica {
    /// The name of a replica's object.
    pub fn object_name(cluster: &ClusterId, replica: ReplicaId) -> String {
        format!("{cluster}-r{replica}")
    }

    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|s| conditions::is_true(&s.conditions, READY))
    }
}

pub struct ControlPlaneReplicaKind;

impl TypedKind for ControlPlaneReplicaKind {
    type Object = ControlPlaneReplica;

    const INFO: KindInfo = KindInfo {
        group: GROUP,
        version: VERSION,
        kind: "ControlPlaneReplica",
        plural: "controlplanereplicas",
        singular: "controlplanereplica",
        short_names: &["cpr"],
        categories: &["fleet"],
        scope: Scope::Namespaced,
        verbs: Verb::ALL,
        subresources: &[STATUS],
        generation: true,
        create_on_update: false,
        unconditional_update: false,
    };

    fn schema() -> Option<Schema> {
        Some(schema())
    }

    fn prepare_create(object: &mut ControlPlaneReplica, _: &RequestContext<'_>) -> Verdict {
        object.clear_status();
        validate(object)
    }

    fn prepare_update(new: &mut ControlPlaneReplica, old: &ControlPlaneReplica, cx: &RequestContext<'_>) -> Verdict {
        new.restore(old, cx);
        let mut verdict = validate(new);
        let spec = Path::new("spec");
        if new.spec.cluster_id != old.spec.cluster_id {
            verdict.errors.push(FieldError::immutable(&spec.child("clusterID"), new.spec.cluster_id.as_str()));
        }
        if new.spec.host != old.spec.host {
            verdict.errors.push(FieldError::immutable(&spec.child("host"), new.spec.host.as_str()));
        }
        if new.spec.replica_id != old.spec.replica_id {
            verdict.errors.push(FieldError::immutable(&spec.child("replicaID"), new.spec.replica_id.0));
        }
        if new.spec.generation < old.spec.generation {
            verdict.errors.push(FieldError::invalid(&spec.child("generation"), new.spec.generation, "must not fall"));
        }
        verdict
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Cluster", "Namespace and name of the cluster."),
        table::text("Host", "Where the replica runs."),
        table::text("Role", "Its role in the Raft group."),
        table::text("Ready", "Whether it serves requests."),
        table::integer("Revision", "The store's revision when last reported."),
        table::AGE,
    ];

    fn row(object: &ControlPlaneReplica, now: Timestamp) -> Vec<Value> {
        let status = object.status.clone().unwrap_or_default();
        let ready = conditions::find(&status.conditions, READY);
        let spec = &object.spec;
        vec![
            object.name().into(),
            format!("{}/{}", spec.cluster_ref.namespace, spec.cluster_ref.name).into(),
            spec.host.as_str().into(),
            status.role.as_str().into(),
            ready.map_or("Unknown", |c| c.status.as_str()).into(),
            status.revision.into(),
            table::age(&object.metadata, now),
        ]
    }

    const SELECTABLE: &'static [&'static str] = &["spec.host", "spec.clusterID"];

    fn selectable_fields(object: &ControlPlaneReplica) -> Vec<(&'static str, String)> {
        vec![("spec.host", object.spec.host.to_string()), ("spec.clusterID", object.spec.cluster_id.to_string())]
    }
}

fn validate(replica: &ControlPlaneReplica) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = Path::new("spec");
    if replica.spec.replica_id.0 == 0 {
        verdict.errors.push(FieldError::invalid(&spec.child("replicaID"), 0, "must be greater than 0"));
    }
    let expected = ControlPlaneReplica::object_name(&replica.spec.cluster_id, replica.spec.replica_id);
    let metadata = Path::new("metadata");
    if replica.name() != expected {
        verdict.errors.push(FieldError::invalid(&metadata.child("name"), replica.name(), format!("must be {expected:?}")));
    }
    if replica.namespace() != SYSTEM_NAMESPACE {
        let detail = format!("must be {SYSTEM_NAMESPACE:?}");
        verdict.errors.push(FieldError::invalid(&metadata.child("namespace"), replica.namespace(), detail));
    }
    let cluster_ref = spec.child("clusterRef");
    for (name, value) in [("namespace", &replica.spec.cluster_ref.namespace), ("name", &replica.spec.cluster_ref.name)] {
        if value.is_empty() {
            verdict.errors.push(FieldError::required(&cluster_ref.child(name), ""));
        }
    }
    verdict
}

pub fn schema() -> Schema {
    let spec = shapes::structure([
        ("clusterRef", shapes::structure([("namespace", shapes::string()), ("name", shapes::string())])),
        ("clusterID", shapes::string()),
        ("host", shapes::string()),
        ("replicaID", shapes::int()),
        ("generation", shapes::int()),
        ("founder", shapes::boolean()),
        ("members", member_schema()),
        ("version", shapes::string()),
        ("network", network_schema()),
        ("issuer", shapes::string()),
        ("suspended", shapes::boolean()),
    ]);
    let status = shapes::structure([
        ("conditions", shapes::conditions()),
        ("role", shapes::string()),
        ("term", shapes::int()),
        ("revision", shapes::int()),
        ("voters", shapes::atomic_list(shapes::int())),
        ("observedGeneration", shapes::int()),
    ]);
    shapes::object(spec, Some(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> ControlPlaneReplica {
        let spec = ReplicaSpec {
            cluster_ref: ClusterRef { namespace: "tenant-a".into(), name: "demo".into() },
            cluster_id: ClusterId::from_random(7),
            host: "host-a".parse().unwrap(),
            replica_id: ReplicaId(2),
            generation: 4,
            ..ReplicaSpec::default()
        };
        let name = ControlPlaneReplica::object_name(&spec.cluster_id, spec.replica_id);
        Object::new("ControlPlaneReplica", SYSTEM_NAMESPACE, &name, spec)
    }

    #[test]
    fn the_name_says_which_replica_it_is() {
        let mut replica = replica();
        assert!(validate(&replica).errors.is_empty());
        replica.spec.replica_id = ReplicaId(3);
        assert_eq!(validate(&replica).errors.len(), 1);
    }

    #[test]
    fn a_replica_keeps_its_host_and_never_goes_back_a_generation() {
        let old = replica();
        let mut new = old.clone();
        new.spec.host = "host-b".parse().unwrap();
        new.spec.generation = 3;
        let cx = RequestContext { subresource: "", ..RequestContext::default() };
        let verdict = ControlPlaneReplicaKind::prepare_update(&mut new, &old, &cx);
        let fields: Vec<&str> = verdict.errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["spec.host", "spec.generation"]);
    }

    #[test]
    fn a_status_update_touches_the_status_alone() {
        let old = replica();
        let mut new = old.clone();
        new.spec.founder = true;
        new.status = Some(ReplicaStatus { role: Role::Leader, ..ReplicaStatus::default() });
        let cx = RequestContext { subresource: "status", ..RequestContext::default() };
        assert!(ControlPlaneReplicaKind::prepare_update(&mut new, &old, &cx).errors.is_empty());
        assert_eq!((new.spec, new.status.unwrap().role), (old.spec, Role::Leader));
    }

    #[test]
    fn status_round_trips_through_json() {
        let mut object = replica();
        object.status = Some(ReplicaStatus { role: Role::Leader, voters: vec![ReplicaId(1), ReplicaId(2)], ..ReplicaStatus::default() });
        let text = serde_json::to_value(&object).unwrap();
        assert_eq!(text["status"]["voters"], serde_json::json!([1, 2]));
        assert_eq!(serde_json::from_value::<ControlPlaneReplica>(text).unwrap(), object);
    }
}
