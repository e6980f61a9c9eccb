//! Pods that wait for a node.
//!
//! ```text
//! new pod -> Active --pop--> InFlight -> bound: gone
//!              ^  ^             | rejected by plugins          | failed to bind
//!              |  |             v                              v
//!              |  +--due-- Backoff <--a change helps-- Unschedulable      ErrorBackoff --due--> Active
//!              +--gates lifted-- Gated
//! ```
//!
//! A rejected pod moves again only when a change of the cluster concerns a plugin that rejected it and that plugin says that it may help, or after five
//! minutes. While nothing is active, pods in back-off that were merely rejected are tried early, as upstream does since 1.33.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use wheelhouse_base::Timestamp;
use wheelhouse_kinds::view::Key;

use crate::change::Change;
use crate::plugins::{Plugin, PluginSet};
use crate::pod::PodInfo;

/// The first back-off; each attempt doubles it.
pub const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest back-off.
pub const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// A rejected pod is tried again after this long even if nothing helped.
pub const MAX_UNSCHEDULABLE: Duration = Duration::from_secs(300);

/// Highest priority first, then who has waited longest, then who came first.
type Rank = (Reverse<i32>, Timestamp, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active(Rank),
    Backoff(Timestamp, Rank),
    ErrorBackoff(Timestamp, Rank),
    /// Since when.
    Unschedulable(Timestamp),
    Gated,
    InFlight,
}

#[derive(Debug)]
struct Entry {
    pod: Arc<PodInfo>,
    place: Place,
    /// When it was last queued.
    queued: Timestamp,
    attempts: u32,
    rejected_by: PluginSet,
    serial: u64,
}

/// Pods that wait, by upstream's names of its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

#[derive(Debug, Default)]
pub struct Queue {
    entries: HashMap<Key, Entry>,
    active: BTreeSet<(Rank, Key)>,
    backoff: BTreeSet<(Timestamp, Rank, Key)>,
    error_backoff: BTreeSet<(Timestamp, Rank, Key)>,
    unschedulable: BTreeSet<(Timestamp, Key)>,
    /// How many unschedulable pods each plugin rejected, so that a change that concerns none of them costs nothing.
    rejected: [usize; Plugin::ALL.len()],
    /// Unschedulable pods that no plugin rejected: there was no node. Any change may help them.
    unexplained: usize,
    /// Pods that may not be scheduled yet.
    gated: usize,
    serial: u64,
}

impl Queue {
    /// Puts a pod in that waits for a node, or replaces what is known of it. What it waits for already stays, unless the pod itself changed in a way that may help.
    pub fn offer(&mut self, pod: Arc<PodInfo>, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(&pod.key) else { return self.insert(pod, now) };
        if entry.pod.uid != pod.uid {
            let key = pod.key.clone();
            self.remove(&key);
            return self.insert(pod, now);
        }
        let changed = scheduling_differs(&entry.pod, &pod);
        let key = pod.key.clone();
        let old = std::mem::replace(&mut entry.pod, pod.clone());
        match entry.place {
            Place::Gated if !pod.is_gated() => self.move_to(&key, |entry| Place::Active(rank(entry))),
            Place::Unschedulable(_) if changed => self.retry(&key, now),
            Place::Active(_) if old.priority != pod.priority => self.move_to(&key, |entry| Place::Active(rank(entry))),
            _ => {}
        }
    }

    fn insert(&mut self, pod: Arc<PodInfo>, now: Timestamp) {
        self.serial += 1;
        let gated = pod.is_gated();
        let key = pod.key.clone();
        let entry = Entry { pod, place: Place::InFlight, queued: now, attempts: 0, rejected_by: PluginSet::default(), serial: self.serial };
        self.entries.insert(key.clone(), entry);
        self.move_to(&key, |entry| if gated { Place::Gated } else { Place::Active(rank(entry)) });
    }

    /// The pod is bound, gone or not ours any more.
    pub fn remove(&mut self, key: &Key) {
        if self.entries.contains_key(key) {
            self.move_to(key, |_| Place::InFlight);
            self.entries.remove(key);
        }
    }

    /// The next pod to schedule. It stays known as in flight until it is removed, rejected or failed.
    pub fn pop(&mut self, now: Timestamp) -> Option<Arc<PodInfo>> {
        self.settle(now);
        let key = match self.active.first() {
            Some((_, key)) => key.clone(),
            None => self.backoff.first()?.2.clone(),
        };
        self.move_to(&key, |_| Place::InFlight);
        let entry = self.entries.get_mut(&key)?;
        entry.attempts += 1;
        Some(entry.pod.clone())
    }

    /// Moves what is due.
    fn settle(&mut self, now: Timestamp) {
        while let Some((_, _, key)) = self.backoff.first().filter(|(until, _, _)| *until <= now).cloned() {
            self.move_to(&key, |entry| Place::Active(rank(entry)));
        }
        while let Some((_, _, key)) = self.error_backoff.first().filter(|(until, _, _)| *until <= now).cloned() {
            self.move_to(&key, |entry| Place::Active(rank(entry)));
        }
        while let Some((_, key)) = self.unschedulable.first().filter(|(since, _)| since.plus(MAX_UNSCHEDULABLE) <= now).cloned() {
            self.retry(&key, now);
        }
    }

    /// No node takes the pod that was popped, by these plugins; none of them if there was no node.
    pub fn rejected(&mut self, key: &Key, by: PluginSet, now: Timestamp) {
        if let Some(entry) = self.in_flight(key) {
            (entry.rejected_by, entry.queued) = (by, now);
            self.move_to(key, |_| Place::Unschedulable(now));
        }
    }

    /// Something else went wrong with the pod that was popped: it is tried again after a back-off.
    pub fn failed(&mut self, key: &Key, now: Timestamp) {
        if let Some(entry) = self.in_flight(key) {
            entry.queued = now;
            self.move_to(key, |entry| Place::ErrorBackoff(now.plus(backoff(entry.attempts)), rank(entry)));
        }
    }

    fn in_flight(&mut self, key: &Key) -> Option<&mut Entry> {
        self.entries.get_mut(key).filter(|entry| entry.place == Place::InFlight)
    }

    /// Moves the pods that the change may help.
    pub fn cluster_changed(&mut self, change: &Change, now: Timestamp) {
        let concerns = change.concerns();
        if self.unexplained == 0 && concerns.iter().all(|plugin| self.rejected[plugin as usize] == 0) {
            return;
        }
        let helped = |entry: &Entry| {
            if entry.rejected_by.is_empty() {
                return matches!(change, Change::Node { new: Some(_), .. });
            }
            concerns.iter().any(|plugin| entry.rejected_by.contains(plugin) && plugin.helps(&entry.pod, change))
        };
        let helped: Vec<Key> =
            self.unschedulable.iter().filter(|(_, key)| self.entries.get(key).is_some_and(helped)).map(|(_, key)| key.clone()).collect();
        for key in helped {
            self.retry(&key, now);
        }
    }

    /// Tries a rejected pod again whatever rejected it.
    pub fn wake(&mut self, key: &Key, now: Timestamp) {
        if self.entries.get(key).is_some_and(|entry| matches!(entry.place, Place::Unschedulable(_))) {
            self.retry(key, now);
        }
    }

    /// From unschedulable to active, or to back-off for what is left of it.
    fn retry(&mut self, key: &Key, now: Timestamp) {
        self.move_to(key, |entry| {
            let until = entry.queued.plus(backoff(entry.attempts));
            if until <= now { Place::Active(rank(entry)) } else { Place::Backoff(until, rank(entry)) }
        });
    }

    /// When the next pod becomes due; pods that are active are due now.
    pub fn next_due(&self) -> Option<Timestamp> {
        if !self.active.is_empty() || !self.backoff.is_empty() {
            return Some(Timestamp::default());
        }
        let failed = self.error_backoff.first().map(|(until, _, _)| *until);
        let waiting = self.unschedulable.first().map(|(since, _)| since.plus(MAX_UNSCHEDULABLE));
        failed.into_iter().chain(waiting).min()
    }

    /// How many pods wait, and for what.
    pub fn waiting(&self) -> Waiting {
        let (active, backoff, unschedulable) = (self.active.len(), self.backoff.len() + self.error_backoff.len(), self.unschedulable.len());
        Waiting { active, backoff, unschedulable, gated: self.gated }
    }

    /// Pods known, in flight or not.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes an entry out of the set of its place and into that of its new one.
    fn move_to(&mut self, key: &Key, place: impl FnOnce(&Entry) -> Place) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let key = key.clone();
        match entry.place {
            Place::Active(rank) => drop(self.active.remove(&(rank, key.clone()))),
            Place::Backoff(until, rank) => drop(self.backoff.remove(&(until, rank, key.clone()))),
            Place::ErrorBackoff(until, rank) => drop(self.error_backoff.remove(&(until, rank, key.clone()))),
            Place::Unschedulable(since) => {
                self.unschedulable.remove(&(since, key.clone()));
                entry.rejected_by.iter().for_each(|plugin| self.rejected[plugin as usize] -= 1);
                self.unexplained -= usize::from(entry.rejected_by.is_empty());
            }
            Place::Gated => self.gated -= 1,
            Place::InFlight => {}
        }
        entry.place = place(entry);
        match entry.place {
            Place::Active(rank) => drop(self.active.insert((rank, key))),
            Place::Backoff(until, rank) => drop(self.backoff.insert((until, rank, key))),
            Place::ErrorBackoff(until, rank) => drop(self.error_backoff.insert((until, rank, key))),
            Place::Unschedulable(since) => {
                self.unschedulable.insert((since, key));
                entry.rejected_by.iter().for_each(|plugin| self.rejected[plugin as usize] += 1);
                self.unexplained += usize::from(entry.rejected_by.is_empty());
            }
            Place::Gated => self.gated += 1,
            Place::InFlight => {}
        }
    }
}

fn rank(entry: &Entry) -> Rank {
    (Reverse(entry.pod.priority), entry.queued, entry.serial)
}

fn backoff(attempts: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX)).min(MAX_BACKOFF)
}

/// Whether anything but the status changed that a plugin may look at.
fn scheduling_differs(old: &PodInfo, new: &PodInfo) -> bool {
    old.labels() != new.labels() || old.spec() != new.spec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod, pod_with, sized};
    use serde_json::json;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn after(seconds: u64) -> Timestamp {
        NOW.plus(Duration::from_secs(seconds))
    }

    fn only(plugin: Plugin) -> PluginSet {
        [plugin].into_iter().collect()
    }

    fn name(pod: Option<Arc<PodInfo>>) -> Option<String> {
        pod.map(|pod| pod.key.name.to_string())
    }

    fn gone(pod: Arc<PodInfo>) -> Change {
        Change::Pod { old: Some(pod), new: None }
    }

    #[test]
    fn priority_goes_before_age() {
        let mut queue = Queue::default();
        queue.offer(pod("old", json!({})), NOW);
        queue.offer(pod("young", json!({})), after(1));
        queue.offer(pod("urgent", json!({"spec": {"priority": 5}})), after(2));
        let order: Vec<_> = std::iter::from_fn(|| name(queue.pop(after(3)))).collect();
        assert_eq!(order, ["urgent", "old", "young"]);
    }

    #[test]
    fn a_rejected_pod_waits_for_a_change_that_helps_what_rejected_it() {
        let mut queue = Queue::default();
        let small = pod_with("p", "1", "1Gi");
        queue.offer(small.clone(), NOW);
        queue.pop(NOW);
        queue.rejected(&small.key, only(Plugin::NodeResourcesFit), NOW);
        assert_eq!(name(queue.pop(after(60))), None);
        queue.cluster_changed(&Change::Node { old: None, new: Some(node("n", sized("500m", "8Gi", "10"))) }, after(60));
        assert_eq!(name(queue.pop(after(60))), None, "that node is too small");
        queue.cluster_changed(&gone(pod("x", json!({}))), after(60));
        assert_eq!(name(queue.pop(after(60))), Some("p".into()));
    }

    #[test]
    fn without_a_node_the_first_one_helps() {
        let mut queue = Queue::default();
        let waiting = pod("p", json!({}));
        queue.offer(waiting.clone(), NOW);
        queue.pop(NOW);
        queue.rejected(&waiting.key, PluginSet::default(), NOW);
        assert_eq!(queue.next_due(), Some(NOW.plus(MAX_UNSCHEDULABLE)));
        queue.cluster_changed(&Change::Node { old: None, new: Some(node("n", json!({}))) }, NOW);
        assert_eq!(name(queue.pop(NOW)), Some("p".into()), "nothing else is active, so its back-off is cut short");
    }

    #[test]
    fn pods_in_back_off_let_active_ones_go_first() {
        let mut queue = Queue::default();
        let rejected = pod("rejected", json!({"spec": {"priority": 9}}));
        queue.offer(rejected.clone(), NOW);
        queue.pop(NOW);
        queue.rejected(&rejected.key, only(Plugin::NodeResourcesFit), NOW);
        queue.cluster_changed(&gone(pod("x", json!({}))), NOW);
        queue.offer(pod("fresh", json!({})), NOW);
        assert_eq!(name(queue.pop(NOW)), Some("fresh".into()));
        assert_eq!(name(queue.pop(NOW)), Some("rejected".into()));
    }

    #[test]
    fn failures_back_off_longer_each_time() {
        let mut queue = Queue::default();
        let unlucky = pod("p", json!({}));
        queue.offer(unlucky.clone(), NOW);
        let mut now = NOW;
        let mut delays = Vec::new();
        for _ in 0..6 {
            assert_eq!(name(queue.pop(now)), Some("p".into()));
            queue.failed(&unlucky.key, now);
            assert_eq!(name(queue.pop(now)), None);
            let due = queue.next_due().unwrap();
            delays.push(due.since(now).as_secs());
            now = due;
        }
        assert_eq!(delays, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn nobody_waits_longer_than_five_minutes_for_help() {
        let mut queue = Queue::default();
        let waiting = pod("p", json!({}));
        queue.offer(waiting.clone(), NOW);
        queue.pop(NOW);
        queue.rejected(&waiting.key, only(Plugin::NodeAffinity), NOW);
        assert_eq!(name(queue.pop(after(299))), None);
        assert_eq!(name(queue.pop(after(300))), Some("p".into()));
    }

    #[test]
    fn gates_keep_a_pod_out_until_the_last_is_lifted() {
        let mut queue = Queue::default();
        queue.offer(pod("p", json!({"spec": {"schedulingGates": [{"name": "a"}]}})), NOW);
        assert_eq!(name(queue.pop(NOW)), None);
        assert_eq!(queue.next_due(), None);
        queue.offer(pod("p", json!({})), NOW);
        assert_eq!(name(queue.pop(NOW)), Some("p".into()));
    }

    #[test]
    fn a_status_update_does_not_wake_a_rejected_pod_but_a_new_toleration_does() {
        let mut queue = Queue::default();
        let plain = pod("p", json!({}));
        queue.offer(plain.clone(), NOW);
        queue.pop(NOW);
        queue.rejected(&plain.key, only(Plugin::TaintToleration), NOW);
        queue.offer(pod("p", json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}})), after(20));
        assert_eq!(name(queue.pop(after(20))), None);
        queue.offer(pod("p", json!({"spec": {"tolerations": [{"operator": "Exists"}]}})), after(20));
        assert_eq!(name(queue.pop(after(20))), Some("p".into()));
    }

    #[test]
    fn a_pod_that_went_while_in_flight_stays_gone() {
        let mut queue = Queue::default();
        let short = pod("p", json!({}));
        queue.offer(short.clone(), NOW);
        queue.pop(NOW);
        queue.remove(&short.key);
        queue.failed(&short.key, NOW);
        assert!(queue.is_empty());
        assert_eq!(queue.next_due(), None);
    }
}
