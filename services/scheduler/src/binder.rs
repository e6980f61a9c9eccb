//! Requests about one pod: its binding, its status when it cannot be scheduled, the eviction of its victims.

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_client::{Client, ClientError, PatchKind};
use wheelhouse_kinds::core::pod::state;
use wheelhouse_kinds::plan::{DeleteOptions, EventNote, EventType};
use wheelhouse_kinds::time::api_time;

use crate::engine::Report;
use crate::pod::{DEFAULT_SCHEDULER, PodInfo};

/// The longest message of an event; longer ones end in ` ...`, as upstream cuts them.
const MAX_NOTE: usize = 1024;

/// Gives the pod its node. The uid makes sure that it is still the same pod.
pub async fn bind(client: &Client, pod: &PodInfo, node: &str) -> Result<(), ClientError> {
    let binding = json!({
        "kind": "Binding", "apiVersion": "v1",
        "metadata": {"name": &*pod.key.name, "namespace": pod.namespace(), "uid": pod.uid},
        "target": {"kind": "Node", "name": node},
    });
    client.api("", "v1", "pods", pod.namespace()).post::<Value>(&pod.key.name, "binding", &binding).await.map(drop)
}

/// Writes the pod's condition and nomination where they change.
pub async fn report(client: &Client, pod: &PodInfo, report: &Report, now: Timestamp) -> Result<(), ClientError> {
    let Some(status) = status_patch(pod, report, now) else { return Ok(()) };
    patch_status(client, pod, status).await
}

/// The status fields to write; `None` when there are none.
pub fn status_patch(pod: &PodInfo, report: &Report, now: Timestamp) -> Option<Value> {
    let mut status = json!({});
    if report.condition_changes {
        let known = state::condition(&pod.pod, "PodScheduled").filter(|condition| condition.status == "False");
        let since = known.and_then(|condition| condition.last_transition_time.clone()).unwrap_or_else(|| api_time(now));
        let mut condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": report.message,
            "lastProbeTime": null, "lastTransitionTime": since,
        });
        if let Some(generation) = pod.pod.metadata.generation {
            condition["observedGeneration"] = json!(generation);
        }
        status["conditions"] = json!([condition]);
    }
    if let Some(node) = &report.nomination {
        status["nominatedNodeName"] = if node.is_empty() { Value::Null } else { json!(node) };
    }
    status.as_object().is_some_and(|fields| !fields.is_empty()).then_some(status)
}

async fn patch_status(client: &Client, pod: &PodInfo, status: Value) -> Result<(), ClientError> {
    let patch = json!({"metadata": {"uid": pod.uid}, "status": status});
    let api = client.api("", "v1", "pods", pod.namespace());
    api.patch::<Value>(&pod.key.name, "status", PatchKind::Strategic, "", &patch).await.map(drop)
}

/// Marks a victim as disrupted and deletes it. One that is gone already is fine.
pub async fn evict(client: &Client, victim: &PodInfo, now: Timestamp) -> Result<(), ClientError> {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": format!("{DEFAULT_SCHEDULER}: preempting to accommodate a higher priority pod"),
        "lastProbeTime": null, "lastTransitionTime": api_time(now),
    });
    let gone = |result: Result<(), ClientError>| match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    };
    gone(patch_status(client, victim, json!({"conditions": [condition]})).await)?;
    let options = DeleteOptions { uid: Some(victim.uid.clone()), ..DeleteOptions::default() };
    let api = client.api("", "v1", "pods", victim.namespace());
    gone(api.delete(&victim.key.name, &options).await.map(drop))
}

pub fn scheduled_event(pod: &PodInfo, node: &str) -> EventNote {
    note(pod, EventType::Normal, "Scheduled", format!("Successfully assigned {} to {node}", pod.key))
}

pub fn failed_event(pod: &PodInfo, message: &str) -> EventNote {
    note(pod, EventType::Warning, "FailedScheduling", message.to_owned())
}

pub fn preempted_event(victim: &PodInfo, by: &PodInfo, node: &str) -> EventNote {
    note(victim, EventType::Normal, "Preempted", format!("Preempted by pod {} on node {node}", by.uid))
}

fn note(pod: &PodInfo, kind_of_event: EventType, reason: &str, mut message: String) -> EventNote {
    const CUT: &str = " ...";
    if message.len() > MAX_NOTE {
        let mut end = MAX_NOTE - CUT.len();
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str(CUT);
    }
    EventNote {
        api_version: "v1".into(),
        kind: "Pod".into(),
        key: pod.key.clone(),
        uid: pod.uid.clone(),
        kind_of_event,
        reason: reason.into(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn report(message: &str, nomination: Option<&str>) -> Report {
        Report { message: message.into(), condition_changes: true, nomination: nomination.map(str::to_owned), victims: Vec::new() }
    }

    #[test]
    fn the_time_of_a_condition_changes_only_with_its_status() {
        let now = Timestamp::from_secs(1_767_226_200);
        let fresh = status_patch(&pod("p", json!({})), &report("m", None), now).unwrap();
        assert_eq!(fresh["conditions"][0]["lastTransitionTime"], "2026-01-01T00:10:00Z");
        assert!(fresh.get("nominatedNodeName").is_none());
        let old = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastTransitionTime": "2025-01-01T00:00:00Z"});
        let waiting = pod("p", json!({"metadata": {"generation": 3}, "status": {"conditions": [old]}}));
        let kept = status_patch(&waiting, &report("m", Some("")), now).unwrap();
        assert_eq!(kept["conditions"][0]["lastTransitionTime"], "2025-01-01T00:00:00Z");
        assert_eq!((&kept["conditions"][0]["observedGeneration"], &kept["nominatedNodeName"]), (&json!(3), &Value::Null));
    }

    #[test]
    fn nothing_to_say_is_no_request() {
        let quiet = Report { condition_changes: false, ..report("m", None) };
        assert_eq!(status_patch(&pod("p", json!({})), &quiet, Timestamp::default()), None);
    }

    #[test]
    fn long_messages_are_cut() {
        let long = failed_event(&pod("p", json!({})), &"é".repeat(1_000));
        assert!(long.message.len() <= MAX_NOTE && long.message.ends_with(" ..."));
        assert_eq!(scheduled_event(&pod("p", json!({})), "n").message, "Successfully assigned default/p to n");
    }
}
