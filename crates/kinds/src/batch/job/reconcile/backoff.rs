//! How long a job waits before it replaces failed pods: 10 s, doubling with each failure since the last success, at most 10 minutes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use wheelhouse_base::Timestamp;

use crate::core::pod::state;
use crate::time::timestamp;
use crate::validation::items;

/// Upstream's `DefaultJobPodFailureBackOff`.
pub const FIRST: Duration = Duration::from_secs(10);
/// Upstream's `MaxJobPodFailureBackOff`.
pub const LONGEST: Duration = Duration::from_secs(600);

/// What upstream too keeps only in process: after a leader change the count starts afresh, and a job retries sooner than it would have.
#[derive(Default)]
pub struct Backoff {
    failures: u32,
    last: Option<Timestamp>,
    /// Pods that are counted and still hold their finalizer, so that looking again counts nothing twice.
    counted: BTreeSet<String>,
}

impl Backoff {
    /// Takes note of pods that have ended and are not in the job's counts yet.
    pub fn observe(&mut self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>], now: Timestamp) {
        let uid = |pod: &Arc<Pod>| pod.metadata.uid.clone().unwrap_or_default();
        let new = |pods: &[Arc<Pod>]| {
            let mut times: Vec<Timestamp> = pods.iter().filter(|pod| !self.counted.contains(&uid(pod))).map(|pod| finished_at(pod, now)).collect();
            times.sort_unstable();
            times
        };
        let (successes, failures) = (new(succeeded), new(failed));
        self.counted = succeeded.iter().chain(failed).map(uid).collect();
        let since = successes.last().copied();
        if since.is_some() {
            (self.failures, self.last) = (0, None);
        }
        for at in failures.into_iter().filter(|at| since.is_none_or(|since| *at > since)) {
            self.failures = self.failures.saturating_add(1);
            self.last = self.last.max(Some(at));
        }
    }

    /// When pods may be created again.
    pub fn until(&self) -> Option<Timestamp> {
        until(self.failures, self.last?)
    }
}

/// The end of the wait after so many failures, the last of them at `last`.
pub fn until(failures: u32, last: Timestamp) -> Option<Timestamp> {
    let doublings = failures.checked_sub(1)?;
    let wait = FIRST.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(LONGEST);
    Some(last.plus(wait))
}

/// When the last container of a pod ended; where the kubelet did not say, when the pod was no longer ready, was to be gone, or was made.
pub fn finished_at(pod: &Pod, now: Timestamp) -> Timestamp {
    let statuses = pod.status.as_ref().map(|status| items(&status.container_statuses)).unwrap_or_default();
    let ends: Option<Vec<Timestamp>> =
        statuses.iter().map(|status| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(timestamp)).collect();
    let unready = || {
        let condition = state::condition(pod, "Ready").filter(|condition| condition.status == "False")?;
        condition.last_transition_time.as_ref().map(timestamp)
    };
    let deleted = || {
        let grace = u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or(0)).unwrap_or(0);
        let at = timestamp(pod.metadata.deletion_timestamp.as_ref()?);
        Some(Timestamp::from_micros(at.as_micros() - i64::try_from(Duration::from_secs(grace).as_micros()).unwrap_or(0)))
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map(timestamp);
    ends.and_then(|ends| ends.into_iter().max()).or_else(unready).or_else(deleted).or_else(created).unwrap_or(now)
}
