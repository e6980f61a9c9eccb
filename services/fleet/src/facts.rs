//! Hosts as placement sees them, out of their objects.

use wheelhouse_base::{HostName, Timestamp};
use wheelhouse_kinds::fleet::conditions::{self, READY, reason};
use wheelhouse_kinds::fleet::{Host, conditions::since};
use wheelhouse_kinds::view::View;

use crate::placement::HostFacts;

/// Replicas that a host takes when it names no capacity: what 24 GiB hold at 6 MiB each with room for load.
const DEFAULT_CAPACITY: i64 = 2_000;

/// Every host with a valid name.
pub fn hosts(view: &View) -> Vec<HostFacts> {
    view.list::<Host>(None).filter_map(|host| facts(&host)).collect()
}

fn facts(host: &Host) -> Option<HostFacts> {
    let name: HostName = host.name().parse().ok()?;
    let status = host.status.clone().unwrap_or_default();
    let ready = conditions::find(&status.conditions, READY);
    let is_ready = ready.is_some_and(|c| c.status == "True");
    let created = || host.metadata.creation_timestamp.as_ref().map_or(Timestamp::from_secs(0), |t| Timestamp::from_secs(t.0.as_second()));
    let capacity = status.capacity.as_ref().map_or(DEFAULT_CAPACITY, |c| if c.replicas > 0 { c.replicas } else { DEFAULT_CAPACITY });
    let reason = if !is_ready {
        match ready.map(|c| c.reason.as_str()) {
            Some(reason::DRAINING) => "draining",
            Some(reason::DISK_FULL) => "out of disk",
            _ => "not ready",
        }
    } else if host.spec.unschedulable {
        "cordoned"
    } else if host.is_deleting() {
        "being deleted"
    } else if status.replicas >= capacity {
        "full"
    } else {
        ""
    };
    Some(HostFacts {
        name,
        zone: host.zone().to_owned(),
        takes_replicas: reason.is_empty(),
        reason,
        silent_since: (!is_ready).then(|| ready.map_or_else(created, since)),
        evacuates: host.evacuates(),
        load: status.replicas,
    })
}

/// Whether a change of a host can change any placement: heartbeats and counts cannot.
pub fn matters(old: Option<&Host>, new: Option<&Host>) -> bool {
    let telling = |host: &Host| facts(host).map(|f| HostFacts { load: 0, ..f });
    old.map(telling) != new.map(telling)
}
