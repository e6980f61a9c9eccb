//! `endpoints.kubernetes.io/last-change-trigger-time`: when the change happened that the endpoints now show, for measuring how long
//! programming the network takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::core::pod::state;
use crate::view::Key;

pub const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What each service and its pods looked like when last seen. After a leader change every service counts as new once, so its next update is
/// dated by the service's creation, as upstream's is.
#[derive(Default)]
pub struct TriggerTimes(BTreeMap<Key, Seen>);

#[derive(Default)]
struct Seen {
    service: Option<Time>,
    pods: BTreeMap<String, Time>,
}

impl TriggerTimes {
    /// Takes note of the service and its pods, and answers the earliest change since the last call in the annotation's form.
    pub fn observe(&mut self, key: &Key, service: &Service, pods: &[Arc<Pod>]) -> Option<String> {
        let created = service.metadata.creation_timestamp.clone();
        let now = Seen { service: created.clone(), pods: pods.iter().filter_map(|pod| Some((pod.metadata.name.clone()?, changed(pod)?))).collect() };
        let Some(before) = self.0.get(key) else {
            self.0.insert(key.clone(), now);
            return created.map(|at| at.0.to_string());
        };
        let pods = now.pods.iter().filter(|(name, at)| before.pods.get(*name).is_none_or(|old| *at > old)).map(|(_, at)| at);
        let service = now.service.iter().filter(|at| before.service.as_ref().is_none_or(|old| *at > old));
        let earliest = pods.chain(service).min().map(|at| at.0.to_string());
        self.0.insert(key.clone(), now);
        earliest
    }

    pub fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

fn changed(pod: &Pod) -> Option<Time> {
    state::condition(pod, "Ready")?.last_transition_time.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn the_earliest_change_since_the_last_look_is_told() {
        let service: Service = from_value(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "s", "creationTimestamp": "2026-01-01T00:00:00Z"}}))
        .unwrap();
        let pod = |name: &str, at: &str| -> Arc<Pod> {
            let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": at});
            Arc::new(
                from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "status": {"conditions": [condition]}})).unwrap(),
            )
        };
        let key = Key::new("a", "s");
        let mut times = TriggerTimes::default();
        let first = [pod("p", "2026-01-01T00:01:00Z"), pod("q", "2026-01-01T00:02:00Z")];
        assert_eq!(times.observe(&key, &service, &first).as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!(times.observe(&key, &service, &first), None);
        let later = [pod("p", "2026-01-01T00:05:00Z"), pod("q", "2026-01-01T00:04:00Z")];
        assert_eq!(times.observe(&key, &service, &later).as_deref(), Some("2026-01-01T00:04:00Z"));
    }
}
