//! Eviction: what the node runs short of, and which pod goes. Pure.
//!
//! Thresholds are upstream's hard ones. A pod goes at once, one at a time; then the node looks again.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::core::pod::qos::qos_class;

use super::machine::{Memory, Space};
use super::object::{MEMORY_RESERVE, Pressure};
use crate::spec::resources::request;

/// `nodefs.available<10%`, and of inodes half as much: upstream's `nodefs.inodesFree<5%`.
pub const DISK_RESERVE: u64 = 10;
/// How long a condition is held after the shortage is over, so that pods do not come back into it; upstream's `--eviction-pressure-transition-period`.
const HOLD: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Memory,
    Disk,
}

impl Resource {
    /// The name in messages.
    fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Disk => "ephemeral-storage",
        }
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    pub memory: Memory,
    pub disk: Space,
}

/// What is short now; `reserve` is per cent of the disk.
pub fn short(measured: &Measured, reserve: u64) -> Vec<Resource> {
    let Measured { memory, disk } = measured;
    let mut short = Vec::new();
    // Nothing measured is nothing known.
    if memory.total > 0 && memory.available < MEMORY_RESERVE {
        short.push(Resource::Memory);
    }
    let below = |left: u64, of: u64, percent: u64| of > 0 && left < of / 100 * percent;
    if below(disk.available, disk.size, reserve) || below(disk.inodes_free, disk.inodes, reserve / 2) {
        short.push(Resource::Disk);
    }
    short
}

/// When each resource was last short.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    memory: Option<Timestamp>,
    disk: Option<Timestamp>,
}

impl Seen {
    pub fn note(&mut self, short: &[Resource], now: Timestamp) -> Pressure {
        for resource in short {
            match resource {
                Resource::Memory => self.memory = Some(now),
                Resource::Disk => self.disk = Some(now),
            }
        }
        let held = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) < HOLD);
        Pressure { memory: held(self.memory), disk: held(self.disk), pids: false }
    }
}

/// A pod with what it uses of the resource, in bytes.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub pod: Arc<Pod>,
    pub memory: u64,
    pub disk: u64,
}

/// Which pod goes: one over its request before one below, then the lowest priority, then the one most over. Critical pods and static ones stay.
pub fn choose(resource: Resource, candidates: &[Candidate]) -> Option<&Candidate> {
    let spared = |pod: &Pod| {
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        priority >= 2_000_000_000 || crate::pods::is_static(pod)
    };
    let rank = |candidate: &&Candidate| {
        let used = match resource {
            Resource::Memory => candidate.memory,
            Resource::Disk => candidate.disk,
        };
        let over = i128::from(used) - i128::from(requested(&candidate.pod, resource));
        let priority = candidate.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        (over > 0, -i64::from(priority), over)
    };
    candidates.iter().filter(|candidate| !spared(&candidate.pod)).max_by_key(rank)
}

fn requested(pod: &Pod, resource: Resource) -> i64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.filter_map(|container| request(container.resources.as_ref(), resource.name())).map(|quantity| quantity.value()).sum()
}

/// What the pod's status says.
pub fn message(resource: Resource, pod: &Pod, used: u64) -> String {
    let class = pod.spec.as_ref().map_or("BestEffort", qos_class);
    let asked = requested(pod, resource);
    format!("The node was low on resource: {name}. The pod ({class}) was using {used} bytes, request is {asked}.", name = resource.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn candidate(name: &str, priority: i32, asked: &str, memory: u64) -> Candidate {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"memory": asked}}}]}});
        Candidate { pod: Arc::new(serde_json::from_value(pod).unwrap()), memory, disk: 0 }
    }

    #[test]
    fn who_exceeds_its_request_goes_first_then_the_least_important() {
        let chosen = |candidates: &[Candidate]| choose(Resource::Memory, candidates).map(|c| c.pod.metadata.name.clone().unwrap());
        let modest = candidate("modest", 0, "100Mi", 50 << 20);
        let greedy = candidate("greedy", 10, "10Mi", 60 << 20);
        let greedier = candidate("greedier", 10, "10Mi", 90 << 20);
        let important = candidate("important", 1000, "0", 900 << 20);
        let critical = candidate("critical", 2_000_001_000, "0", 900 << 20);
        assert_eq!(chosen(&[modest.clone(), greedy.clone(), important.clone(), critical.clone()]).as_deref(), Some("greedy"));
        assert_eq!(chosen(&[greedy, greedier, important]).as_deref(), Some("greedier"));
        assert_eq!(chosen(&[modest, critical.clone()]).as_deref(), Some("modest"));
        assert_eq!(chosen(&[critical]), None);
    }

    #[test]
    fn a_shortage_is_remembered_for_a_while() {
        let measured = Measured {
            memory: Memory { total: 1 << 30, available: 50 << 20 },
            disk: Space { size: 1000, available: 500, inodes: 100, inodes_free: 3 },
        };
        assert_eq!(short(&measured, DISK_RESERVE), [Resource::Memory, Resource::Disk]);
        assert!(short(&Measured::default(), DISK_RESERVE).is_empty());
        let (mut seen, now) = (Seen::default(), Timestamp::from_secs(1000));
        assert!(seen.note(&short(&measured, DISK_RESERVE), now).memory);
        assert!(seen.note(&[], now.plus(Duration::from_secs(299))).disk);
        assert_eq!(seen.note(&[], now.plus(HOLD)), Pressure::default());
    }
}
