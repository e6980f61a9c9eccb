//! What a host does about its replicas. Pure: what is assigned, what lies on disk and what runs in; actions out.
//!
//! The API is not needed to run: without its word (`None`) everything on disk that is not suspended is started and nothing is destroyed. With its word,
//! what it does not name any more is destroyed, for ids are never reused and the list is complete.

use std::collections::{BTreeMap, BTreeSet};

use wheelhouse_kinds::fleet::control_plane_replica::ReplicaSpec;

/// A replica that the API assigns to this host.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    pub spec: ReplicaSpec,
    pub uid: String,
    /// Its object is deleted and waits for this host to say that the data is destroyed.
    pub deleting: bool,
}

/// A replica on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub spec: ReplicaSpec,
    pub uid: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Fetch the keys and write the file; starting follows in the next round.
    Adopt {
        name: String,
        spec: ReplicaSpec,
        uid: String,
    },
    /// The orders changed: keep them, and tell the running replica.
    Update {
        name: String,
        spec: ReplicaSpec,
        uid: String,
    },
    Start {
        name: String,
    },
    Stop {
        name: String,
    },
    /// Stop, destroy data and keys; take the finalizer off if there is still an object.
    Destroy {
        name: String,
        release: bool,
    },
    /// Nothing is here any more: only the finalizer is left to take off.
    Release {
        name: String,
    },
}

/// One round. Repeating it after the actions were carried out plans nothing.
pub fn plan(assigned: Option<&BTreeMap<String, Assigned>>, stored: &BTreeMap<String, Stored>, running: &BTreeSet<String>) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, replica) in stored {
        let order = assigned.map(|a| a.get(name));
        match order {
            // Gone from the complete list, or replaced by another object of the same name: what lies here is of the old one.
            // A founder's own file is older than its object: the system cluster must first come up to have objects at all.
            Some(None) if !replica.uid.is_empty() => {
                actions.push(Action::Destroy { name: name.clone(), release: false });
                continue;
            }
            Some(Some(order)) if order.deleting => {
                actions.push(Action::Destroy { name: name.clone(), release: true });
                continue;
            }
            Some(Some(order)) if order.spec.generation >= replica.spec.generation && (order.spec != replica.spec || order.uid != replica.uid) => {
                actions.push(Action::Update { name: name.clone(), spec: order.spec.clone(), uid: order.uid.clone() });
            }
            Some(_) | None => {}
        }
        let suspended = order.flatten().map_or(replica.spec.suspended, |o| o.spec.suspended);
        match (suspended, running.contains(name)) {
            (false, false) => actions.push(Action::Start { name: name.clone() }),
            (true, true) => actions.push(Action::Stop { name: name.clone() }),
            _ => {}
        }
    }
    for (name, order) in assigned.into_iter().flatten().filter(|(name, _)| !stored.contains_key(*name)) {
        actions.push(match order.deleting {
            true => Action::Release { name: name.clone() },
            false => Action::Adopt { name: name.clone(), spec: order.spec.clone(), uid: order.uid.clone() },
        });
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(generation: i64) -> ReplicaSpec {
        ReplicaSpec { generation, ..ReplicaSpec::default() }
    }

    fn assigned(list: &[(&str, i64, bool)]) -> BTreeMap<String, Assigned> {
        list.iter().map(|(n, g, deleting)| ((*n).to_owned(), Assigned { spec: spec(*g), uid: "u".into(), deleting: *deleting })).collect()
    }

    fn stored(list: &[(&str, i64)]) -> BTreeMap<String, Stored> {
        list.iter().map(|(n, g)| ((*n).to_owned(), Stored { spec: spec(*g), uid: "u".into() })).collect()
    }

    fn running(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn everything_on_disk_starts_without_the_api() {
        assert_eq!(plan(None, &stored(&[("a", 1), ("b", 1)]), &running(&["b"])), [Action::Start { name: "a".into() }]);
    }

    #[test]
    fn suspended_replicas_keep_their_data_and_do_not_run() {
        let mut on_disk = stored(&[("a", 1)]);
        on_disk.get_mut("a").unwrap().spec.suspended = true;
        assert_eq!(plan(None, &on_disk, &running(&[])), []);
        assert_eq!(plan(None, &on_disk, &running(&["a"])), [Action::Stop { name: "a".into() }]);
    }

    #[test]
    fn new_orders_are_adopted_then_started() {
        let orders = assigned(&[("a", 1, false)]);
        assert_eq!(plan(Some(&orders), &stored(&[]), &running(&[])), [Action::Adopt { name: "a".into(), spec: spec(1), uid: "u".into() }]);
        assert_eq!(plan(Some(&orders), &stored(&[("a", 1)]), &running(&[])), [Action::Start { name: "a".into() }]);
        assert_eq!(plan(Some(&orders), &stored(&[("a", 1)]), &running(&["a"])), []);
    }

    #[test]
    fn a_newer_generation_is_kept_and_an_older_refused() {
        let newer = plan(Some(&assigned(&[("a", 2, false)])), &stored(&[("a", 1)]), &running(&["a"]));
        assert_eq!(newer, [Action::Update { name: "a".into(), spec: spec(2), uid: "u".into() }]);
        assert_eq!(plan(Some(&assigned(&[("a", 1, false)])), &stored(&[("a", 2)]), &running(&["a"])), []);
    }

    #[test]
    fn what_is_not_assigned_any_more_is_destroyed() {
        let gone = plan(Some(&assigned(&[])), &stored(&[("a", 1)]), &running(&["a"]));
        assert_eq!(gone, [Action::Destroy { name: "a".into(), release: false }]);
        let deleted = plan(Some(&assigned(&[("a", 1, true)])), &stored(&[("a", 1)]), &running(&["a"]));
        assert_eq!(deleted, [Action::Destroy { name: "a".into(), release: true }]);
        let done = plan(Some(&assigned(&[("a", 1, true)])), &stored(&[]), &running(&[]));
        assert_eq!(done, [Action::Release { name: "a".into() }]);
    }

    #[test]
    fn a_founder_lives_before_its_object_does() {
        let mut founder = stored(&[("system-r1", 1)]);
        founder.get_mut("system-r1").unwrap().uid = String::new();
        assert_eq!(plan(Some(&assigned(&[])), &founder, &running(&["system-r1"])), []);
    }
}
