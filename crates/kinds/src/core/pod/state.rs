//! Facts about a Pod that several controllers ask for.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use wheelhouse_base::Timestamp;

use crate::time::timestamp;

/// `controller.kubernetes.io/pod-deletion-cost`: which pods go first when a set shrinks.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Neither ended nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed") && pod.metadata.deletion_timestamp.is_none()
}

pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// When the pod became ready, if it is.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let condition = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    condition.last_transition_time.as_ref().map(timestamp)
}

/// Ready for at least `min_ready_seconds`. If it is ready but not yet for that long, when it will be.
pub fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Result<(), Option<Timestamp>> {
    if !is_ready(pod) {
        return Err(None);
    }
    if min_ready_seconds <= 0 {
        return Ok(());
    }
    let Some(since) = ready_since(pod) else { return Err(None) };
    let at = since.plus(std::time::Duration::from_secs(u64::try_from(min_ready_seconds).unwrap_or(0)));
    if at <= now { Ok(()) } else { Err(Some(at)) }
}

pub fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// The most restarts of any of its containers.
pub fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}

pub fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DELETION_COST));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_at(seconds: i64) -> Pod {
        let time = crate::time::api_time(Timestamp::from_secs(seconds)).0.to_string();
        let condition = serde_json::json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
        serde_json::from_value(serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "status": {"conditions": [condition]}})).unwrap()
    }

    #[test]
    fn availability_waits_for_the_minimum() {
        let pod = ready_at(100);
        assert_eq!(availability(&pod, 0, Timestamp::from_secs(100)), Ok(()));
        assert_eq!(availability(&pod, 10, Timestamp::from_secs(105)), Err(Some(Timestamp::from_secs(110))));
        assert_eq!(availability(&pod, 10, Timestamp::from_secs(110)), Ok(()));
        assert_eq!(availability(&Pod::default(), 0, Timestamp::from_secs(1)), Err(None));
    }
}
