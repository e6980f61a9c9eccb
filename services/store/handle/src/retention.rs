//! When to compact: pure, driven by whoever leads.

use std::collections::VecDeque;
use std::time::Duration;

use wheelhouse_base::limits::{RETAINED_REVISIONS, RETAINED_TIME};
use wheelhouse_base::{Revision, Timestamp};

/// Marks per retained time. The window is longer than asked for by at most one part, and a compaction drops at most about one part.
const MARKS: u32 = 10;

/// Retains the larger of [`RETAINED_TIME`] and [`RETAINED_REVISIONS`]. A new leader starts with an empty one and retains a full window.
#[derive(Clone, Debug, Default)]
pub struct Retention {
    /// Revisions with the time at which they were seen to be the newest, oldest first.
    marks: VecDeque<(Timestamp, Revision)>,
}

impl Retention {
    /// How often [`advance`](Self::advance) wants to be called. Calls in between do no harm.
    pub const INTERVAL: Duration = Duration::from_secs(RETAINED_TIME.as_secs() / MARKS as u64);

    /// Whether history over [`RETAINED_REVISIONS`] is there, which [`advance`](Self::advance) will want to drop once it is old enough.
    pub fn is_pending(revision: Revision, compacted: Revision) -> bool {
        revision.saturating_sub(RETAINED_REVISIONS) > compacted
    }

    /// Takes note of the newest `revision` and answers the one to compact to, if history older than the window is there.
    pub fn advance(&mut self, now: Timestamp, revision: Revision, compacted: Revision) -> Option<Revision> {
        if self.marks.back().is_none_or(|(at, _)| now.since(*at) >= Self::INTERVAL) {
            self.marks.push_back((now, revision));
        }
        // The newest mark that is old enough is the bound by time.
        while self.marks.get(1).is_some_and(|(at, _)| now.since(*at) >= RETAINED_TIME) {
            self.marks.pop_front();
        }
        let by_time = self.marks.front().filter(|(at, _)| now.since(*at) >= RETAINED_TIME).map(|(_, revision)| *revision)?;
        let target = by_time.min(revision.saturating_sub(RETAINED_REVISIONS));
        (target > compacted).then_some(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_the_time_and_the_revisions_are_retained() {
        let mut retention = Retention::default();
        let at = Timestamp::from_secs;
        assert_eq!(retention.advance(at(0), 500_000, 0), None, "nothing is known to be old");
        assert_eq!(retention.advance(at(299), 900_000, 0), None);
        assert_eq!(retention.advance(at(300), 900_000, 0), Some(500_000), "the time bounds it");
        assert_eq!(retention.advance(at(300), 900_000, 500_000), None, "nothing is left to drop");
        assert_eq!(retention.advance(at(1000), 900_000, 500_000), Some(800_000), "the number of revisions bounds it");
        assert_eq!(Retention::default().advance(at(1000), 50, 0), None);
    }

    #[test]
    fn marks_are_bounded() {
        let mut retention = Retention::default();
        for second in 0..10_000 {
            retention.advance(Timestamp::from_secs(second), second as u64, 0);
        }
        assert!(retention.marks.len() <= MARKS as usize + 2, "{}", retention.marks.len());
    }
}
