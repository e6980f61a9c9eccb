//! How soon a failed daemon is made anew: 1 s, doubling each time on the same node to at most 15 minutes.
//!
//! A kubelet that refuses a daemon's pod would otherwise fight with the controller. Kept in process only, as by upstream: after a leader change
//! the waits begin anew.

use std::collections::BTreeMap;
use std::time::Duration;

use wheelhouse_base::Timestamp;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(900);

/// By node: the wait after the last removal, and when that was.
#[derive(Default)]
pub struct Failures(BTreeMap<String, (Duration, Timestamp)>);

impl Failures {
    /// Whether a failed pod of the node may be removed now; if not, when.
    pub fn may_remove(&mut self, node: &str, now: Timestamp) -> Result<(), Timestamp> {
        let next = match self.0.get(node) {
            // Long without failures, it counts afresh.
            Some((_, last)) if now.since(*last) > LONGEST * 2 => FIRST,
            Some((wait, last)) if last.plus(*wait) > now => return Err(last.plus(*wait)),
            Some((wait, _)) => (*wait * 2).min(LONGEST),
            None => FIRST,
        };
        self.0.insert(node.to_owned(), (next, now));
        Ok(())
    }
}
