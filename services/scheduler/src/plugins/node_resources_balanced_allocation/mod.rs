//! Prefers nodes whose CPU and memory the pod makes more evenly used.
//!
//! Since 1.36 the score is the change in balance that the pod makes, on a scale from 50 to 100, not the balance that it leaves. A pod that asks for nothing
//! changes none, so it is not asked about.

use crate::plugins::MAX_SCORE;
use crate::pod::PodInfo;
use crate::resources::Resources;
use crate::snapshot::{NodeId, Snapshot};

pub const WEIGHT: i64 = 1;

pub fn score(pod: &PodInfo, snapshot: &Snapshot, nodes: &[NodeId]) -> Option<Vec<i64>> {
    if pod.requests.milli_cpu == 0 && pod.requests.memory == 0 {
        return None;
    }
    let one = |id: &NodeId| {
        let (used, has) = (&snapshot.node(*id).requested, &snapshot.facts(*id).allocatable);
        let with = balance(used.milli_cpu + pod.requests.milli_cpu, used.memory + pod.requests.memory, has);
        let without = balance(used.milli_cpu, used.memory, has);
        MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
    };
    Some(nodes.iter().map(one).collect())
}

/// 100 less the standard deviation of the used shares, in hundredths.
fn balance(milli_cpu: i64, memory: i64, has: &Resources) -> i64 {
    if has.milli_cpu == 0 || has.memory == 0 {
        return MAX_SCORE;
    }
    let share = |used: i64, has: i64| (used as f64 / has as f64).min(1.0);
    let deviation = ((share(milli_cpu, has.milli_cpu) - share(memory, has.memory)) / 2.0).abs();
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod, pod_with, sized};
    use serde_json::json;

    #[test]
    fn what_evens_out_the_use_is_better() {
        let mut world = World::default();
        world.node("cpu", sized("4", "4Gi", "10"));
        world.node("memory", sized("4", "4Gi", "10"));
        world.snapshot.place(pod_with("a", "2", "0"), "cpu");
        world.snapshot.place(pod_with("b", "0", "2Gi"), "memory");
        let nodes = world.snapshot.order();
        // 0.5/0 becomes 0.5/0.5 on the first, 0/0.5 becomes 0/1 on the second.
        assert_eq!(score(&pod_with("p", "0", "2Gi"), &world.snapshot, &nodes), Some(vec![87, 62]));
        assert_eq!(score(&pod("p", json!({})), &world.snapshot, &nodes), None);
    }
}
