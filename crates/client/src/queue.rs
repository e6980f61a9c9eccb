//! The work queue of a controller: keys, each at most once, never two at the same time, with back-off and timers.
//!
//! A pure structure; whoever owns it waits for [`WorkQueue::next_due`]. Upstream's rate limiter per key is kept: 5 ms doubling to 1000 s.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use wheelhouse_base::Timestamp;

/// The first retry's delay.
pub const BASE_DELAY: Duration = Duration::from_millis(5);
/// The longest delay between retries.
pub const MAX_DELAY: Duration = Duration::from_secs(1000);

/// See the module's text. `K` is the key.
#[derive(Debug)]
pub struct WorkQueue<K> {
    ready: VecDeque<K>,
    /// Members of `ready`, and keys that changed again while being worked on.
    dirty: HashSet<K>,
    working: HashSet<K>,
    /// Timers, and each key's own timer, so that an earlier one replaces a later one.
    timers: BTreeSet<(Timestamp, u64)>,
    timer_keys: BTreeMap<u64, K>,
    timer_of: HashMap<K, (Timestamp, u64)>,
    failures: HashMap<K, u32>,
    serial: u64,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            working: HashSet::new(),
            timers: BTreeSet::new(),
            timer_keys: BTreeMap::new(),
            timer_of: HashMap::new(),
            failures: HashMap::new(),
            serial: 0,
        }
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// Asks for `key` to be worked on. A key that is being worked on is taken up again once that is done.
    pub fn add(&mut self, key: K) {
        if self.dirty.insert(key.clone()) && !self.working.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// Asks for `key` at a time. Of several times the earliest counts.
    pub fn add_at(&mut self, key: K, at: Timestamp) {
        if let Some(timer) = self.timer_of.get(&key).copied() {
            if timer.0 <= at {
                return;
            }
            self.timers.remove(&timer);
            self.timer_keys.remove(&timer.1);
        }
        self.serial += 1;
        self.timers.insert((at, self.serial));
        self.timer_keys.insert(self.serial, key.clone());
        self.timer_of.insert(key, (at, self.serial));
    }

    /// Asks for `key` after its back-off, which doubles with each call until [`WorkQueue::forget`].
    pub fn add_rate_limited(&mut self, key: K, now: Timestamp) {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let delay = BASE_DELAY.saturating_mul(1u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(MAX_DELAY);
        *failures += 1;
        self.add_at(key, now.plus(delay));
    }

    /// Ends the back-off of `key`.
    pub fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// The next key to work on. Call [`WorkQueue::done`] with it afterwards.
    pub fn pop(&mut self, now: Timestamp) -> Option<K> {
        while let Some(timer) = self.timers.first().copied().filter(|timer| timer.0 <= now) {
            self.timers.remove(&timer);
            if let Some(key) = self.timer_keys.remove(&timer.1) {
                self.timer_of.remove(&key);
                self.add(key);
            }
        }
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.working.insert(key.clone());
        Some(key)
    }

    pub fn done(&mut self, key: &K) {
        self.working.remove(key);
        if self.dirty.contains(key) {
            self.ready.push_back(key.clone());
        }
    }

    /// When the next timer fires.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timers.first().map(|timer| timer.0)
    }

    /// Keys that wait, timers not counted.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(100);

    #[test]
    fn a_key_is_queued_once_and_never_worked_on_twice_at_a_time() {
        let mut queue = WorkQueue::default();
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.pop(NOW), Some("a"));
        queue.add("a");
        assert_eq!(queue.pop(NOW), None, "it is being worked on");
        queue.done(&"a");
        assert_eq!(queue.pop(NOW), Some("a"), "it changed meanwhile");
        queue.done(&"a");
        assert_eq!(queue.pop(NOW), None);
    }

    #[test]
    fn the_earliest_timer_counts() {
        let mut queue = WorkQueue::default();
        queue.add_at("a", NOW.plus(Duration::from_secs(10)));
        queue.add_at("a", NOW.plus(Duration::from_secs(5)));
        queue.add_at("a", NOW.plus(Duration::from_secs(7)));
        assert_eq!(queue.next_due(), Some(NOW.plus(Duration::from_secs(5))));
        assert_eq!(queue.pop(NOW), None);
        assert_eq!(queue.pop(NOW.plus(Duration::from_secs(5))), Some("a"));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn back_off_doubles_up_to_its_limit_and_is_forgotten() {
        let mut queue = WorkQueue::default();
        let mut delays = Vec::new();
        for _ in 0..40 {
            queue.add_rate_limited("a", NOW);
            let due = queue.next_due().unwrap();
            delays.push(due.since(NOW));
            assert_eq!(queue.pop(due), Some("a"));
            queue.done(&"a");
        }
        assert_eq!(delays[..3], [BASE_DELAY, BASE_DELAY * 2, BASE_DELAY * 4]);
        assert_eq!(delays[39], MAX_DELAY);
        queue.forget(&"a");
        queue.add_rate_limited("a", NOW);
        assert_eq!(queue.next_due(), Some(NOW.plus(BASE_DELAY)));
    }
}
