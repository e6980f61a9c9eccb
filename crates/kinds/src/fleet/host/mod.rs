//! Host: a machine that runs replicas. Cluster-scoped and written by the host itself when it starts, then with every heartbeat.
//!
//! The operator owns `spec.unschedulable` (cordon), everything else in the spec is what the host says of itself. The status is the host's,
//! except `Ready`, which the fleet controller sets to Unknown when heartbeats stop. Deleting a Host means the machine will not come back: its
//! replicas are replaced.

mod validate;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_schema::Schema;

use super::conditions::{self, READY};
use super::object::{Object, resource};
use super::{GROUP, VERSION, schema as shapes};
use crate::kind::{Column, KindInfo, RequestContext, Scope, TypedKind, Verb, Verdict};
use crate::subresource::STATUS;
use crate::table;

pub type Host = Object<HostSpec, HostStatus>;

resource!(Host, "Host", "hosts", k8s_openapi::ClusterResourceScope);

/// On a host whose replicas must leave it: set by `wheelhouse host evacuate`, with `spec.unschedulable`.
pub const EVACUATE_ANNOTATION: &str = "fleet.wheelhouse.dev/evacuate";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostSpec {
    /// What fails together; replicas of one cluster are spread over zones. Empty: a zone of its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// No new replica is placed here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    #[serde(default)]
    pub addresses: HostAddresses,
}

/// `host:port`, as others reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostAddresses {
    /// Where endpoints send clients, by default port 6444.
    #[serde(default)]
    pub clients: String,
    /// Raft, routes and joins over mutual TLS, by default port 6445.
    #[serde(default)]
    pub peers: String,
    /// Prometheus text over plain HTTP, by default port 9444.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metrics: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<Time>,
    /// New with every start of the process, so that a restart is told from a pause.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incarnation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<HostCapacity>,
    /// Replicas that run here.
    #[serde(default)]
    pub replicas: i64,
    /// Groups led from here.
    #[serde(default)]
    pub leaders: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostCapacity {
    /// The most replicas that this host takes.
    #[serde(default)]
    pub replicas: i64,
    /// Bytes of the data directory's file system.
    #[serde(default)]
    pub disk_bytes: i64,
    #[serde(default)]
    pub disk_free_bytes: i64,
}

impl Host {
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|s| conditions::is_true(&s.conditions, READY))
    }

    /// The zone for spreading: the host's own name where none is set.
    pub fn zone(&self) -> &str {
        if self.spec.zone.is_empty() { self.name() } else { &self.spec.zone }
    }

    pub fn evacuates(&self) -> bool {
        self.annotation(EVACUATE_ANNOTATION).is_some_and(|v| v == "true")
    }
}

pub struct HostKind;

impl TypedKind for HostKind {
    type Object = Host;

    const INFO: KindInfo = KindInfo {
        group: GROUP,
        version: VERSION,
        kind: "Host",
        plural: "hosts",
        singular: "host",
        short_names: &[],
        categories: &["fleet"],
        scope: Scope::Cluster,
        verbs: Verb::ALL,
        subresources: &[STATUS],
        generation: true,
        create_on_update: false,
        unconditional_update: false,
    };

    fn schema() -> Option<Schema> {
        Some(schema())
    }

    fn prepare_create(object: &mut Host, _: &RequestContext<'_>) -> Verdict {
        object.clear_status();
        validate::host(object)
    }

    fn prepare_update(new: &mut Host, old: &Host, cx: &RequestContext<'_>) -> Verdict {
        new.restore(old, cx);
        validate::host(new)
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Zone", "What fails together with this host."),
        table::text("Ready", "Whether the host reports that it is well."),
        table::text("Status", "Why, and whether new replicas are placed here."),
        table::integer("Replicas", "Replicas that run here."),
        table::integer("Leaders", "Groups led from here."),
        table::wide("Clients", "Where endpoints send clients."),
        table::wide("Peers", "Where other hosts connect."),
        table::AGE,
    ];

    fn row(object: &Host, now: Timestamp) -> Vec<Value> {
        let status = object.status.clone().unwrap_or_default();
        let ready = conditions::find(&status.conditions, READY);
        let mut state = ready.map_or("NeverSeen", |c| c.reason.as_str()).to_owned();
        if object.evacuates() {
            state.push_str(",Evacuating");
        } else if object.spec.unschedulable {
            state.push_str(",SchedulingDisabled");
        }
        vec![
            object.name().into(),
            object.zone().into(),
            ready.map_or("Unknown", |c| c.status.as_str()).into(),
            state.into(),
            status.replicas.into(),
            status.leaders.into(),
            object.spec.addresses.clients.as_str().into(),
            object.spec.addresses.peers.as_str().into(),
            table::age(&object.metadata, now),
        ]
    }
}

pub fn schema() -> Schema {
    let addresses = shapes::structure([("clients", shapes::string()), ("peers", shapes::string()), ("metrics", shapes::string())]);
    let spec = shapes::structure([("zone", shapes::string()), ("unschedulable", shapes::boolean()), ("addresses", addresses)]);
    let capacity = shapes::structure([("replicas", shapes::int()), ("diskBytes", shapes::int()), ("diskFreeBytes", shapes::int())]);
    let status = shapes::structure([
        ("conditions", shapes::conditions()),
        ("lastHeartbeat", shapes::time()),
        ("incarnation", shapes::string()),
        ("capacity", capacity),
        ("replicas", shapes::int()),
        ("leaders", shapes::int()),
    ]);
    shapes::object(spec, Some(status))
}
