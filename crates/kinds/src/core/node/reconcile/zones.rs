//! How fast nodes may be tainted for eviction: slower where many fail at once, since then the network is likelier to be at fault.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use wheelhouse_base::Timestamp;

use super::status_of;

/// `--node-eviction-rate`, 0.1 a second.
const NORMAL_INTERVAL: Duration = Duration::from_secs(10);
/// `--secondary-node-eviction-rate`, 0.01 a second.
const REDUCED_INTERVAL: Duration = Duration::from_secs(100);
/// `--large-cluster-size-threshold`: a smaller zone that is partly disrupted has no evictions at all.
const LARGE_ZONE: usize = 50;
/// `--unhealthy-zone-threshold` in percent.
const UNHEALTHY_PERCENT: usize = 55;
/// Fewer nodes than this do not disrupt a zone that has ready ones.
const MIN_UNHEALTHY: usize = 3;
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// Region and zone.
pub type Zone = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Normal,
    /// Most nodes fail.
    Partial,
    /// No node is ready.
    Full,
}

/// A zone's nodes by whether they are ready.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    ready: usize,
    not_ready: usize,
}

/// Every zone at one moment.
#[derive(Default)]
pub struct Zones(BTreeMap<Zone, Count>);

pub fn zone_of(node: &Node) -> Zone {
    let labels = node.metadata.labels.as_ref();
    let label = |names: [&str; 2]| names.iter().find_map(|name| labels?.get(*name)).cloned().unwrap_or_default();
    (
        label(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]),
        label(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]),
    )
}

impl Zones {
    pub fn of<T: std::ops::Deref<Target = Node>>(nodes: impl Iterator<Item = T>) -> Self {
        let mut zones = Self::default();
        for node in nodes {
            if node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED)) {
                continue;
            }
            let count = zones.0.entry(zone_of(&node)).or_default();
            if status_of(&node, "Ready") == Some("True") {
                count.ready += 1;
            } else {
                count.not_ready += 1;
            }
        }
        zones
    }

    /// Whether no node anywhere is ready. Then the control plane itself is likely to be cut off, and nothing is evicted.
    pub fn all_down(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|count| state(*count) == State::Full)
    }

    /// The least time between two taints in the zone; None for no taints at all.
    pub fn interval(&self, zone: &Zone) -> Option<Duration> {
        let count = self.0.get(zone).copied().unwrap_or_default();
        match state(count) {
            State::Normal | State::Full => Some(NORMAL_INTERVAL),
            State::Partial if count.ready + count.not_ready > LARGE_ZONE => Some(REDUCED_INTERVAL),
            State::Partial => None,
        }
    }
}

fn state(count: Count) -> State {
    let Count { ready, not_ready } = count;
    if ready == 0 && not_ready > 0 {
        State::Full
    } else if not_ready >= MIN_UNHEALTHY && not_ready * 100 >= (ready + not_ready) * UNHEALTHY_PERCENT {
        State::Partial
    } else {
        State::Normal
    }
}

/// When each zone's last taint was granted. Empty after a leader change: one taint may then come early.
#[derive(Default)]
pub struct Limits(BTreeMap<Zone, Timestamp>);

impl Limits {
    /// Takes the zone's next turn, or says when it comes.
    pub fn take(&mut self, zone: Zone, interval: Duration, now: Timestamp) -> Result<(), Timestamp> {
        match self.0.get(&zone).map(|last| last.plus(interval)) {
            Some(next) if next > now => Err(next),
            _ => {
                self.0.insert(zone, now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_judged_as_upstream_judges_them() {
        let judge = |ready, not_ready| state(Count { ready, not_ready });
        assert_eq!(judge(0, 0), State::Normal);
        assert_eq!(judge(0, 1), State::Full);
        assert_eq!(judge(1, 2), State::Normal, "two nodes disrupt nothing");
        assert_eq!(judge(2, 3), State::Partial);
        assert_eq!(judge(9, 11), State::Partial);
        assert_eq!(judge(10, 11), State::Normal);
    }

    #[test]
    fn a_zone_waits_for_its_turn() {
        let mut limits = Limits::default();
        let (zone, now) = (Zone::default(), Timestamp::from_secs(100));
        assert_eq!(limits.take(zone.clone(), NORMAL_INTERVAL, now), Ok(()));
        assert_eq!(limits.take(zone.clone(), NORMAL_INTERVAL, Timestamp::from_secs(105)), Err(Timestamp::from_secs(110)));
        assert_eq!(limits.take(zone, NORMAL_INTERVAL, Timestamp::from_secs(110)), Ok(()));
    }
}
