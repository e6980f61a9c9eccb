//! When each group of a host is looked at next. A parked group without a deadline is not in it and costs nothing.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::time::Instant;
use wheelhouse_rocks::GroupId;

#[derive(Default)]
pub struct Agenda(Mutex<BTreeMap<GroupId, Instant>>);

impl Agenda {
    /// Looks at the group with the next turn, and with every one that follows until it is told otherwise.
    pub fn now(&self, group: &GroupId) {
        self.0.lock().insert(group.clone(), Instant::now());
    }

    /// Looks at the group once at that time, or not until it is told otherwise.
    pub fn at(&self, group: &GroupId, deadline: Option<Instant>) {
        let mut agenda = self.0.lock();
        match deadline {
            Some(deadline) => drop(agenda.insert(group.clone(), deadline)),
            None => drop(agenda.remove(group)),
        }
    }

    /// The groups whose time has come.
    pub fn due(&self, now: Instant) -> Vec<GroupId> {
        self.0.lock().iter().filter(|(_, at)| **at <= now).map(|(group, _)| group.clone()).collect()
    }
}
