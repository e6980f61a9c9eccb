//! Encoded events, shared by the watches of one cluster.
//!
//! One transaction never writes two objects of one resource, so revision, resource, form and event name tell an encoding apart. The cache is
//! empty while no resource has two watches, and bounded in bytes: watches run close together, so the newest few events are all that is asked for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use wheelhouse_base::Revision;

use crate::request::media::Media;

/// The bytes that one cluster's cache may hold. A thousand pods of 3 KB fit.
const MAX_BYTES: usize = 4 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKey {
    pub revision: Revision,
    pub resource: usize,
    pub media: Media,
    pub name: &'static str,
}

#[derive(Default)]
pub struct EventCache(Mutex<Contents>);

#[derive(Default)]
struct Contents {
    /// Open watches by resource.
    watches: HashMap<usize, usize>,
    frames: HashMap<EventKey, Bytes>,
    order: VecDeque<EventKey>,
    bytes: usize,
}

/// One open watch; counts as one until it is dropped.
pub struct Watching {
    cache: Arc<EventCache>,
    resource: usize,
}

impl EventCache {
    /// Counts a watch on a resource (by storage index).
    pub fn open(self: &Arc<Self>, resource: usize) -> Watching {
        *self.0.lock().watches.entry(resource).or_default() += 1;
        Watching { cache: Arc::clone(self), resource }
    }
}

impl Watching {
    pub fn get(&self, key: &EventKey) -> Option<Bytes> {
        self.cache.0.lock().frames.get(key).cloned()
    }

    /// Keeps a frame for the other watches, if there are any.
    pub fn put(&self, key: EventKey, frame: Bytes) {
        let mut contents = self.cache.0.lock();
        if contents.watches.get(&self.resource).is_none_or(|watches| *watches < 2) {
            return;
        }
        contents.bytes += frame.len();
        if let Some(old) = contents.frames.insert(key, frame) {
            contents.bytes -= old.len();
        } else {
            contents.order.push_back(key);
        }
        while contents.bytes > MAX_BYTES {
            let Some(oldest) = contents.order.pop_front() else { break };
            if let Some(frame) = contents.frames.remove(&oldest) {
                contents.bytes -= frame.len();
            }
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut contents = self.cache.0.lock();
        if let Some(watches) = contents.watches.get_mut(&self.resource) {
            *watches -= 1;
            if *watches == 0 {
                contents.watches.remove(&self.resource);
            }
        }
        if contents.watches.is_empty() {
            *contents = Contents::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(revision: Revision) -> EventKey {
        EventKey { revision, resource: 0, media: Media::default(), name: "ADDED" }
    }

    #[test]
    fn frames_are_kept_for_two_watches_and_bounded() {
        let cache = Arc::new(EventCache::default());
        let one = cache.open(0);
        one.put(key(1), Bytes::from_static(b"x"));
        assert_eq!(one.get(&key(1)), None);
        let two = cache.open(0);
        let frame = Bytes::from(vec![0; MAX_BYTES / 3]);
        for revision in 1..=4 {
            one.put(key(revision), frame.clone());
        }
        assert_eq!(two.get(&key(1)), None);
        assert!(two.get(&key(4)).is_some());
        drop(one);
        drop(two);
        assert!(cache.0.lock().frames.is_empty());
        assert_eq!(cache.0.lock().bytes, 0);
    }
}
