//! Garbage on the node: images that nobody uses when the disk fills up. Pure; containers and sandboxes are collected pod by pod by their life cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wheelhouse_base::Timestamp;

use super::machine::Space;
use crate::cri::Image;

/// Upstream's `--image-gc-high-threshold` and `--image-gc-low-threshold`, in per cent of the disk.
const HIGH: u64 = 85;
const LOW: u64 = 80;
/// `--minimum-image-ttl-duration`: an image that was just pulled is about to be used.
const LEAST_AGE: Duration = Duration::from_secs(120);

/// When images were seen and used.
#[derive(Clone, Debug, Default)]
pub struct Known(BTreeMap<String, Times>);

#[derive(Clone, Copy, Debug)]
struct Times {
    first_seen: Timestamp,
    last_used: Timestamp,
}

impl Known {
    /// Takes in what is there and what is used, by image id.
    pub fn note(&mut self, images: &[Image], used: &BTreeSet<String>, now: Timestamp) {
        self.0.retain(|id, _| images.iter().any(|image| image.id == *id));
        for image in images {
            let times = self.0.entry(image.id.clone()).or_insert(Times { first_seen: now, last_used: Timestamp::from_secs(0) });
            if used.contains(&image.id) {
                times.last_used = now;
            }
        }
    }

    /// Images to remove, least recently used first, until the disk is below the low threshold. `now` all when the disk is short already.
    pub fn surplus(&self, images: &[Image], used: &BTreeSet<String>, disk: Space, pressed: bool, now: Timestamp) -> Vec<String> {
        let taken = disk.size.saturating_sub(disk.available);
        if disk.size == 0 || (!pressed && taken < disk.size / 100 * HIGH) {
            return Vec::new();
        }
        let mut to_free = if pressed { u64::MAX } else { taken.saturating_sub(disk.size / 100 * LOW) };
        let mut unused: Vec<(&Image, &Times)> = images
            .iter()
            .filter(|image| !used.contains(&image.id) && !image.pinned && !is_pause(image))
            .filter_map(|image| self.0.get(&image.id).map(|times| (image, times)))
            .filter(|(_, times)| now.since(times.first_seen) >= LEAST_AGE)
            .collect();
        unused.sort_by_key(|(_, times)| (times.last_used, times.first_seen));
        let mut surplus = Vec::new();
        for (image, _) in unused {
            if to_free == 0 {
                break;
            }
            to_free = to_free.saturating_sub(image.size);
            surplus.push(image.id.clone());
        }
        surplus
    }
}

/// Every sandbox needs it, and it cannot be pulled where there is no registry.
fn is_pause(image: &Image) -> bool {
    image.tags.iter().any(|tag| tag.contains("/pause:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, tag: &str) -> Image {
        Image { id: id.into(), tags: vec![tag.into()], digests: Vec::new(), size: 40, user: Default::default(), pinned: false }
    }

    #[test]
    fn the_least_recently_used_go_until_there_is_room() {
        let images = [image("a", "a:1"), image("b", "b:1"), image("c", "c:1"), image("p", "x/pause:1")];
        let mut known = Known::default();
        known.note(&images, &["a".to_owned()].into(), Timestamp::from_secs(100));
        known.note(&images, &["b".to_owned()].into(), Timestamp::from_secs(200));
        let used = BTreeSet::from(["c".to_owned()]);
        let at = Timestamp::from_secs(1000);
        let surplus = |available: u64, pressed: bool, now: Timestamp| {
            known.surplus(&images, &used, Space { size: 1000, available, ..Space::default() }, pressed, now)
        };
        assert!(surplus(200, false, at).is_empty(), "80 % are taken");
        assert_eq!(surplus(140, false, at), ["a", "b"], "60 to free take two of 40");
        assert_eq!(surplus(200, true, at), ["a", "b"], "all that nobody uses");
        assert!(surplus(100, false, Timestamp::from_secs(150)).is_empty(), "too young");
    }
}
