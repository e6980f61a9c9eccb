//! The `host` reconciler: a host that is not heard is not ready.
//!
//! A host writes its own status with every heartbeat. This reconciler only notices when that stops. The clock that counts is the leader's: it
//! measures how long it has seen the same heartbeat, so that hosts' clocks do not matter.
//!
//! Memory after a leader change: empty, so every host is granted a full grace period.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::fleet::Host;
use wheelhouse_kinds::fleet::conditions::{self, READY, Reading, reason};
use wheelhouse_kinds::plan::{EventNote, EventType, Operation, PatchStrategy, Plan};
use wheelhouse_kinds::reconciler::{Context, Reconciler, Trigger};
use wheelhouse_kinds::view::{Key, View};

use crate::names::HOSTS;

/// How long a silent host is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Between a host's heartbeats.
    pub heartbeat: Duration,
    /// A host that was not ready for so long is given up. Shorter would move data after every reboot.
    pub gone_after: Duration,
}

/// Missed heartbeats after which a host is not ready: with ten seconds between them 40 s, what nodes had for long.
const MISSED: u32 = 4;

impl Default for Patience {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(10), gone_after: Duration::from_secs(10 * 60) }
    }
}

impl Patience {
    /// The silence after which a host is not ready.
    pub fn grace(&self) -> Duration {
        self.heartbeat * MISSED
    }
}

pub struct HostReconciler {
    pub patience: Patience,
}

/// For each host what was last heard, and when this leader heard it first.
pub type Memory = BTreeMap<Key, (String, Timestamp)>;

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
            memory.remove(key);
            return plan;
        };
        let status = host.status.clone().unwrap_or_default();
        let beat = format!("{}/{}", status.incarnation, status.last_heartbeat.as_ref().map_or(0, |t| t.0.as_second()));
        let heard = memory.entry(key.clone()).or_insert_with(|| (beat.clone(), cx.now));
        if heard.0 != beat {
            *heard = (beat, cx.now);
        }
        let since = heard.1;
        let silent_at = since.plus(self.patience.grace());
        if cx.now < silent_at {
            plan.requeue_at = Some(silent_at);
            return plan;
        }
        let mut conditions = status.conditions;
        let message = format!("no heartbeat for {} s", self.patience.grace().as_secs());
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use wheelhouse_kinds::fleet::Object;
    use wheelhouse_kinds::fleet::host::{HostSpec, HostStatus};
    use wheelhouse_kinds::plan::EffectKind;
    use wheelhouse_kinds::view::Record;

    /// A host of that name, heard at that second.
    fn beat(view: &mut View, name: &str, second: i64) {
        let mut host: Host = Object::new("Host", "", name, HostSpec::default());
        host.status =
            Some(HostStatus { last_heartbeat: Some(wheelhouse_kinds::time::api_time(Timestamp::from_secs(second))), ..HostStatus::default() });
        let mut value = serde_json::to_value(host).unwrap();
        let (metadata, status) = (value["metadata"].take(), value["status"].take());
        let body = format!("{},\"spec\":{{}},\"status\":{status}}}", &metadata.to_string()[1..]);
        let revision = u64::try_from(second).unwrap();
        let record = Record::parse(HOSTS, Key::cluster(name), wheelhouse_kinds::fleet::API_VERSION, "Host", revision, body.into()).unwrap();
        view.apply(record.reference(), Some(std::sync::Arc::new(record)));
    }

    #[test]
    fn a_silent_host_is_noticed_among_others_that_speak() {
        let (reconciler, mut view, mut memory) = (HostReconciler { patience: Patience::default() }, View::default(), Memory::default());
        let effects: BTreeMap<(EffectKind, String), Result<Value, String>> = BTreeMap::new();
        beat(&mut view, "silent", 1_000);
        let mut noticed = Vec::new();
        for second in 1_000..1_060 {
            beat(&mut view, "speaking", second);
            for name in ["silent", "speaking"] {
                let cx = Context { now: Timestamp::from_secs(second), failure: None, effects: &effects };
                let plan = reconciler.reconcile(&Key::cluster(name), &view, &cx, &mut memory);
                if !plan.operations.is_empty() {
                    noticed.push((name, second));
                }
            }
        }
        assert_eq!(noticed.first(), Some(&("silent", 1_040)), "after four missed heartbeats");
        assert!(noticed.iter().all(|(name, _)| *name == "silent"));
    }
}
