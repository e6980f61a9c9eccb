//! Signs of life: a node's lease and its Ready condition, each dated by when this controller saw it change.
//!
//! The node's own clock counts for nothing. What is remembered lives in process only, so a new leader gives every node a full grace period
//! from its first look, as upstream does after a restart.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use wheelhouse_base::Timestamp;

use super::condition;
use crate::time::timestamp;

/// How long a node may be silent: upstream's `--node-monitor-grace-period`, 50 s since 1.32 (40 s before): five times the kubelet's 10 s.
pub const GRACE: Duration = Duration::from_secs(50);
/// The same for a node whose kubelet never said anything: `--node-startup-grace-period`.
pub const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// Marks conditions that the kubelet never wrote.
pub const NEVER_UPDATED: &str = "NodeStatusNeverUpdated";

/// What was last seen of one node.
pub struct Heartbeat {
    pub uid: String,
    condition: Option<Option<Time>>,
    lease: Option<MicroTime>,
    seen: Timestamp,
}

impl Heartbeat {
    /// Takes note of what the node and its lease show now. Answers when the node's time is up unless it shows more; silence counts from
    /// `grace_from` at the earliest.
    pub fn observe(memory: &mut Option<Self>, node: &Node, lease: Option<&Lease>, grace_from: Option<Timestamp>, now: Timestamp) -> Timestamp {
        let ready = kubelets(condition(node, "Ready"));
        let shown = ready.map(|ready| ready.last_heartbeat_time.clone());
        let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.clone());
        let created = node.metadata.creation_timestamp.as_ref().map_or(now, timestamp);
        let beat = memory.get_or_insert_with(|| Self {
            uid: node.metadata.uid.clone().unwrap_or_default(),
            condition: shown.clone(),
            lease: None,
            seen: if ready.is_some() { now } else { created },
        });
        if beat.condition != shown {
            beat.condition = shown;
            beat.seen = now;
        }
        if renewed.is_some() && renewed > beat.lease {
            beat.lease = renewed;
            beat.seen = now;
        }
        beat.seen = grace_from.map_or(beat.seen, |from| beat.seen.max(from));
        beat.seen.plus(if ready.is_some() { GRACE } else { STARTUP_GRACE })
    }
}

/// A condition that this controller filled in for a silent kubelet is no sign of life.
fn kubelets(condition: Option<&NodeCondition>) -> Option<&NodeCondition> {
    condition.filter(|condition| condition.reason.as_deref() != Some(NEVER_UPDATED))
}
