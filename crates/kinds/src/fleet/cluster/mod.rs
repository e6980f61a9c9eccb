//! Cluster: a hosted control plane that a tenant asked for.
//!
//! The tenant writes `replicas`, `version`, `suspended` and, at creation only, `network` and `issuer`. The fleet controller writes `members`:
//! which replica runs on which host. Members lie in the spec because they are an order, numbered by `metadata.generation`: the group's leader
//! moves its Raft membership to them and never to those of an older generation.
//!
//! The id that names the cluster everywhere outside this object (server names, disk ranges, metrics) follows from the object's uid, so it
//! is known from the first moment, is never reused, and needs no allocation. The system cluster is the Cluster `system` in
//! `wheelhouse-system`; its id is `system`.

mod validate;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wheelhouse_base::{ClusterId, HostName, ReplicaId, Timestamp};
use wheelhouse_schema::Schema;

use super::conditions::{self, PROGRESSING, READY};
use super::object::{Object, resource};
use super::{GROUP, SYSTEM_NAMESPACE, VERSION, schema as shapes};
use crate::kind::{Column, KindInfo, RequestContext, Scope, TypedKind, Verb, Verdict};
use crate::subresource::STATUS;
use crate::table;

pub type Cluster = Object<ClusterSpec, ClusterStatus>;

resource!(Cluster, "Cluster", "clusters", k8s_openapi::NamespaceResourceScope);

/// Holds a deleted cluster until its replicas and every copy of its keys are destroyed.
pub const FINALIZER: &str = "fleet.wheelhouse.dev/cluster";

/// `"true"` allows `replicas: 1`, which no quorum protects. For development machines.
pub const DEVELOPMENT_ANNOTATION: &str = "fleet.wheelhouse.dev/development";

/// Kubernetes versions that can be asked for; the last is the default.
pub const VERSIONS: &[&str] = &["v1.36"];

/// Replicas of a cluster that names no number.
pub const DEFAULT_REPLICAS: i64 = 3;

pub const DEFAULT_POD_CIDR: &str = "10.244.0.0/16";
pub const DEFAULT_SERVICE_CIDR: &str = "10.96.0.0/16";
pub const DEFAULT_DNS: &str = "10.96.0.10";
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// 3 or 5; 1 with [`DEVELOPMENT_ANNOTATION`].
    #[serde(default)]
    pub replicas: i64,
    /// One of [`VERSIONS`].
    #[serde(default)]
    pub version: String,
    /// Where its replicas run. Written by the fleet controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// The highest replica id ever given out, so that none is reused. Never falls.
    #[serde(default, rename = "lastReplicaID", skip_serializing_if = "is_zero")]
    pub last_replica_id: u64,
    #[serde(default)]
    pub network: Network,
    /// The `iss` of service-account tokens.
    #[serde(default)]
    pub issuer: String,
    /// The replicas keep their data and answer nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    #[serde(rename = "replicaID")]
    pub replica_id: ReplicaId,
    pub host: HostName,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    #[serde(default, rename = "podCIDR")]
    pub pod_cidr: String,
    #[serde(default, rename = "serviceCIDR")]
    pub service_cidr: String,
    /// The cluster DNS service's address.
    #[serde(default)]
    pub dns: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// What names the cluster outside the system API.
    #[serde(default, rename = "clusterID", skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// The group's voters as its leader last reported them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberStatus>,
    /// The leading replica's host; empty while none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub leader: String,
    /// `https://host:port`, the address that tenants' kubeconfigs name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// For which membership and leadership `Ready` was last proven, `<generation>/<term>`; empty if never.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub proven: String,
    /// The TLS server name that the endpoint routes by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub observed_generation: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    #[serde(rename = "replicaID")]
    pub replica_id: ReplicaId,
    pub host: HostName,
    #[serde(default)]
    pub ready: bool,
    #[serde(default)]
    pub voter: bool,
}

impl Cluster {
    /// The id, from the uid (FNV-1a of its text). Two uids meeting in 50 bits is for placement to refuse, not expected: with a million
    /// clusters ever made the chance of one collision is below one in two thousand.
    pub fn cluster_id(&self) -> ClusterId {
        if self.is_system() {
            return ClusterId::system();
        }
        ClusterId::from_random(fnv1a(self.uid().as_bytes()))
    }

    /// Whether this is the control plane that the service itself runs on.
    pub fn is_system(&self) -> bool {
        self.namespace() == SYSTEM_NAMESPACE && self.name() == ClusterId::SYSTEM
    }

    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|s| conditions::is_true(&s.conditions, READY))
    }
}

/// FNV-1a, folded so that the low 50 bits depend on all.
fn fnv1a(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    hash ^ (hash >> 50)
}

pub struct ClusterKind;

impl TypedKind for ClusterKind {
    type Object = Cluster;

    const INFO: KindInfo = KindInfo {
        group: GROUP,
        version: VERSION,
        kind: "Cluster",
        plural: "clusters",
        singular: "cluster",
        short_names: &[],
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

    fn default(object: &mut Cluster) {
        let fill = |field: &mut String, value: &str| {
            if field.is_empty() {
                value.clone_into(field);
            }
        };
        let spec = &mut object.spec;
        if spec.replicas == 0 {
            spec.replicas = DEFAULT_REPLICAS;
        }
        fill(&mut spec.version, VERSIONS[VERSIONS.len() - 1]);
        fill(&mut spec.network.pod_cidr, DEFAULT_POD_CIDR);
        fill(&mut spec.network.service_cidr, DEFAULT_SERVICE_CIDR);
        fill(&mut spec.network.dns, DEFAULT_DNS);
        fill(&mut spec.issuer, DEFAULT_ISSUER);
    }

    fn prepare_create(object: &mut Cluster, _: &RequestContext<'_>) -> Verdict {
        object.clear_status();
        validate::create(object)
    }

    fn prepare_update(new: &mut Cluster, old: &Cluster, cx: &RequestContext<'_>) -> Verdict {
        new.restore(old, cx);
        validate::update(new, old)
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Id", "What names the cluster outside the system API."),
        table::text("Version", "The Kubernetes version it serves."),
        table::text("Replicas", "Replicas that serve, of those wanted."),
        table::text("Leader", "The host of the leading replica."),
        table::text("Ready", "Whether the tenant can write and read."),
        table::text("Status", "Why."),
        table::wide("Endpoint", "Where its clients connect."),
        table::wide("Members", "Hosts of its replicas."),
        table::AGE,
    ];

    fn row(object: &Cluster, now: Timestamp) -> Vec<Value> {
        let status = object.status.clone().unwrap_or_default();
        let ready = conditions::find(&status.conditions, READY);
        let serving = status.members.iter().filter(|m| m.ready).count();
        let hosts: Vec<&str> = object.spec.members.iter().map(|m| m.host.as_str()).collect();
        vec![
            object.name().into(),
            status.cluster_id.as_str().into(),
            object.spec.version.as_str().into(),
            format!("{serving}/{}", object.spec.replicas).into(),
            or_none(&status.leader),
            ready.map_or("Unknown", |c| c.status.as_str()).into(),
            state(object, &status).into(),
            or_none(&status.endpoint),
            or_none(&hosts.join(",")),
            table::age(&object.metadata, now),
        ]
    }
}

fn or_none(text: &str) -> Value {
    Value::from(if text.is_empty() { "<none>" } else { text })
}

/// The most telling reason: what is being done while something is, else why it is ready or not.
fn state(cluster: &Cluster, status: &ClusterStatus) -> String {
    if cluster.is_deleting() {
        return conditions::reason::DELETING.to_owned();
    }
    let progressing = conditions::find(&status.conditions, PROGRESSING);
    let ready = conditions::find(&status.conditions, READY);
    let telling = progressing.filter(|c| c.status == "True").or(ready);
    telling.map_or("Pending", |c| c.reason.as_str()).to_owned()
}

pub(super) fn member_schema() -> Schema {
    shapes::map_list(shapes::structure([("replicaID", shapes::int()), ("host", shapes::string())]), "replicaID")
}

pub(super) fn network_schema() -> Schema {
    shapes::structure([("podCIDR", shapes::string()), ("serviceCIDR", shapes::string()), ("dns", shapes::string())])
}

pub fn schema() -> Schema {
    let spec = shapes::structure([
        ("replicas", shapes::int()),
        ("version", shapes::string()),
        ("members", member_schema()),
        ("lastReplicaID", shapes::int()),
        ("network", network_schema()),
        ("issuer", shapes::string()),
        ("suspended", shapes::boolean()),
    ]);
    let member_status =
        shapes::structure([("replicaID", shapes::int()), ("host", shapes::string()), ("ready", shapes::boolean()), ("voter", shapes::boolean())]);
    let status = shapes::structure([
        ("clusterID", shapes::string()),
        ("members", shapes::map_list(member_status, "replicaID")),
        ("leader", shapes::string()),
        ("endpoint", shapes::string()),
        ("proven", shapes::string()),
        ("serverName", shapes::string()),
        ("conditions", shapes::conditions()),
        ("observedGeneration", shapes::int()),
    ]);
    shapes::object(spec, Some(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_the_uid() {
        let mut cluster: Cluster = Object::new("Cluster", "tenant-a", "demo", ClusterSpec::default());
        cluster.metadata.uid = Some("5d3c1e0e-0f5b-4a53-9d0a-1f5a3e2b7c11".into());
        let id = cluster.cluster_id();
        assert_eq!(id, cluster.cluster_id());
        cluster.metadata.uid = Some("5d3c1e0e-0f5b-4a53-9d0a-1f5a3e2b7c12".into());
        assert_ne!(id, cluster.cluster_id());
        cluster.metadata.name = Some("system".into());
        assert_ne!(cluster.cluster_id(), ClusterId::system(), "a tenant's cluster of that name is not the system's");
        cluster.metadata.namespace = Some(SYSTEM_NAMESPACE.into());
        assert_eq!(cluster.cluster_id(), ClusterId::system());
    }

    #[test]
    fn an_empty_spec_gets_every_default() {
        let mut cluster: Cluster = serde_json::from_value(serde_json::json!({"metadata": {"name": "demo", "namespace": "tenant-a"}})).unwrap();
        ClusterKind::default(&mut cluster);
        let before = cluster.clone();
        ClusterKind::default(&mut cluster);
        assert_eq!(cluster, before, "defaulting is idempotent");
        let cx = RequestContext { subresource: "", ..RequestContext::default() };
        assert!(ClusterKind::prepare_create(&mut cluster, &cx).errors.is_empty());
        assert_eq!((cluster.spec.replicas, cluster.spec.network.dns.as_str()), (3, "10.96.0.10"));
    }
}
