//! Prefers nodes that have the pod's images, the more the larger they are; an image that is on few nodes counts for less, so as not to pile pods up there.

use crate::plugins::MAX_SCORE;
use crate::pod::PodInfo;
use crate::snapshot::{NodeId, Snapshot};

pub const WEIGHT: i64 = 1;

/// Images below this total do not matter.
const LEAST: i64 = 23 * 1024 * 1024;
/// Images of one container beyond this total do not matter more.
const MOST_PER_CONTAINER: i64 = 1000 * 1024 * 1024;

/// `nodes_in_all` is how many nodes the cluster has.
pub fn score(pod: &PodInfo, snapshot: &Snapshot, nodes: &[NodeId], nodes_in_all: usize) -> Option<Vec<i64>> {
    let known: Vec<(&str, f64)> = pod
        .images
        .iter()
        .filter_map(|image| match snapshot.image_nodes(image) {
            0 => None,
            having => Some((image.as_str(), having as f64 / nodes_in_all as f64)),
        })
        .collect();
    if known.is_empty() {
        return None;
    }
    let most = MOST_PER_CONTAINER * i64::try_from(pod.containers.max(1)).unwrap_or(1);
    let one = |id: &NodeId| {
        let images = &snapshot.facts(*id).images;
        let sizes = known.iter().filter_map(|(image, share)| Some((*images.get(*image)? as f64 * share) as i64));
        let sum = sizes.sum::<i64>().clamp(LEAST, most);
        MAX_SCORE * (sum - LEAST) / (most - LEAST)
    };
    Some(nodes.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod};
    use serde_json::json;

    #[test]
    fn a_large_image_that_is_there_counts_by_its_spread() {
        let image = json!({"status": {"images": [{"names": ["big:1"], "sizeBytes": 1000 * 1024 * 1024}]}});
        let mut world = World::default();
        world.node("a", image);
        world.node("b", json!({}));
        let nodes = world.snapshot.order();
        let wanted = pod("p", json!({"spec": {"containers": [{"name": "c", "image": "big:1"}]}}));
        // Half of the nodes have it: (500 - 23) / (1000 - 23).
        assert_eq!(score(&wanted, &world.snapshot, &nodes, 2), Some(vec![48, 0]));
        let other = pod("p", json!({"spec": {"containers": [{"name": "c", "image": "other"}]}}));
        assert_eq!(score(&other, &world.snapshot, &nodes, 2), None);
    }
}
