//! Conditions: the type, the setter that keeps transition times, and the reasons that fleet objects give.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use wheelhouse_base::Timestamp;

use crate::time::api_time;

/// The object does what it is for: a cluster answers its tenant, a host runs replicas, a replica serves.
pub const READY: &str = "Ready";
/// Something is being changed towards the spec.
pub const PROGRESSING: &str = "Progressing";
/// Members are chosen for every wanted replica.
pub const PLACED: &str = "Placed";

/// Why a condition is what it is.
pub mod reason {
    /// An authenticated write and read through the endpoint passed.
    pub const PROVEN: &str = "Proven";
    /// The write or the read through the endpoint failed; the message says how.
    pub const PROBE_FAILED: &str = "ProbeFailed";
    /// No probe has answered yet.
    pub const NOT_PROVEN: &str = "NotProven";
    /// There is no schedulable host for at least one wanted replica.
    pub const NO_HOST: &str = "NoHost";
    pub const PLACED: &str = "Placed";
    /// Replicas are being started.
    pub const STARTING: &str = "Starting";
    /// Members are being added or removed.
    pub const MEMBERS_CHANGING: &str = "MembersChanging";
    /// Everything is as the spec says.
    pub const SETTLED: &str = "Settled";
    /// Suspended by its tenant or by the operator.
    pub const SUSPENDED: &str = "Suspended";
    pub const DELETING: &str = "Deleting";
    /// Too few voters are up to accept writes.
    pub const NO_QUORUM: &str = "NoQuorum";
    /// A host reports that it is well.
    pub const HEARTBEAT: &str = "Heartbeat";
    /// No heartbeat for longer than the grace period.
    pub const HEARTBEAT_MISSED: &str = "HeartbeatMissed";
    /// A host is draining before it exits.
    pub const DRAINING: &str = "Draining";
    /// Free disk space is below the host's reserve.
    pub const DISK_FULL: &str = "DiskFull";
    /// The replica serves requests.
    pub const SERVING: &str = "Serving";
    /// The replica stopped over an error of its own; the message says which.
    pub const FAULTED: &str = "Faulted";
    /// The host cannot prove that it still holds what it acknowledged; the replica must be replaced.
    pub const LOST: &str = "Lost";
}

pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == kind)
}

pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|c| c.status == "True")
}

/// When the condition took its present status.
pub fn since(condition: &Condition) -> Timestamp {
    Timestamp::from_secs(condition.last_transition_time.0.as_second())
}

/// A condition to [`set`].
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<'a> {
    pub kind: &'a str,
    /// `None` is `Unknown`.
    pub status: Option<bool>,
    pub reason: &'a str,
    pub message: String,
}

/// Adds or replaces a condition; the transition time moves only when the status does. Says whether anything but times changed.
pub fn set(conditions: &mut Vec<Condition>, reading: Reading<'_>, generation: i64, now: Timestamp) -> bool {
    let status = match reading.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let old = conditions.iter().position(|c| c.type_ == reading.kind);
    let kept = old.map(|at| &conditions[at]).filter(|c| c.status == status);
    let fresh = Condition {
        type_: reading.kind.to_owned(),
        status: status.to_owned(),
        reason: reading.reason.to_owned(),
        message: reading.message,
        observed_generation: Some(generation),
        last_transition_time: kept.map_or_else(|| api_time(now), |c| c.last_transition_time.clone()),
    };
    match old {
        Some(at) if conditions[at] == fresh => false,
        Some(at) => {
            conditions[at] = fresh;
            true
        }
        None => {
            conditions.push(fresh);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        let reading = |status, message: &str| Reading { kind: READY, status, reason: reason::PROVEN, message: message.to_owned() };
        assert!(set(&mut conditions, reading(Some(false), "a"), 1, Timestamp::from_secs(10)));
        assert!(set(&mut conditions, reading(Some(false), "b"), 1, Timestamp::from_secs(20)));
        assert_eq!(since(&conditions[0]), Timestamp::from_secs(10));
        assert!(!set(&mut conditions, reading(Some(false), "b"), 1, Timestamp::from_secs(30)));
        assert!(set(&mut conditions, reading(None, "b"), 1, Timestamp::from_secs(40)));
        assert_eq!((conditions[0].status.as_str(), since(&conditions[0])), ("Unknown", Timestamp::from_secs(40)));
    }
}
