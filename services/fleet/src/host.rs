//! The `host` reconciler: a host that is not heard is not ready.
//!
//! A host writes its own status with every heartbeat. This reconciler only notices when that stops. The clock that counts is the leader's: it
//! measures how long it has seen the same heartbeat, so that hosts' clocks do not matter.
//!
//! Memory after a leader change: empty, so every host is granted a full grace period.

use std::time::Duration;

use serde_json::json;
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::fleet::Host;
use wheelhouse_kinds::fleet::conditions::{self, READY, Reading, reason};
use wheelhouse_kinds::plan::{EventNote, EventType, Operation, PatchStrategy, Plan};
use wheelhouse_kinds::reconciler::{Context, Reconciler, Trigger};
use wheelhouse_kinds::view::{Key, View};

use crate::names::HOSTS;

/// Between a host's heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// Four heartbeats: what nodes have as well.
pub const GRACE: Duration = Duration::from_secs(40);

pub struct HostReconciler;

/// What was last heard, and when this leader heard it first.
#[derive(Debug, Default)]
pub struct Memory {
    heard: Option<(String, Timestamp)>,
}

impl Reconciler for HostReconciler {
    type Memory = Memory;

    fn name(&self) -> &'static str {
        "fleet-host-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        vec![Trigger::itself(HOSTS)]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut Memory) -> Plan {
        let mut plan = Plan::default();
        let Some(host) = view.get::<Host>("", &key.name) else {
            *memory = Memory::default();
            return plan;
        };
        let status = host.status.clone().unwrap_or_default();
        let beat = format!("{}/{}", status.incarnation, status.last_heartbeat.as_ref().map_or(0, |t| t.0.as_second()));
        if memory.heard.as_ref().is_none_or(|(last, _)| *last != beat) {
            memory.heard = Some((beat, cx.now));
        }
        let since = memory.heard.as_ref().map_or(cx.now, |(_, since)| *since);
        let silent_at = since.plus(GRACE);
        if cx.now < silent_at {
            plan.requeue_at = Some(silent_at);
            return plan;
        }
        let mut conditions = status.conditions;
        let message = format!("no heartbeat for {} s", GRACE.as_secs());
        let reading = Reading { kind: READY, status: None, reason: reason::HEARTBEAT_MISSED, message: message.clone() };
        if conditions::set(&mut conditions, reading, host.generation(), cx.now) {
            let patch = json!({"metadata": {"resourceVersion": host.metadata.resource_version}, "status": {"conditions": conditions}});
            plan.operations.push(Operation::Patch {
                resource: HOSTS,
                key: key.clone(),
                subresource: "status",
                strategy: PatchStrategy::Merge,
                patch,
            });
            plan.events.push(EventNote {
                api_version: wheelhouse_kinds::fleet::API_VERSION.to_owned(),
                kind: "Host".to_owned(),
                key: key.clone(),
                uid: host.uid().to_owned(),
                kind_of_event: EventType::Warning,
                reason: "HostNotReady".to_owned(),
                message,
            });
        }
        plan
    }
}
