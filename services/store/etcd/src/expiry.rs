//! When leases end. The store's state knows no time, so every replica keeps the deadlines it has seen, and the leader acts on them.
//!
//! A lease's time starts when a replica first sees it and anew whenever its mark of renewal moves. A replica that comes to lead
//! gives every lease its full time again, as etcd does: late is harmless, early is not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use wheelhouse_mvcc::{Command, Snapshot};
use wheelhouse_store::Store;

/// How often the deadlines are compared with the state and the clock. etcd's own interval.
const INTERVAL: Duration = Duration::from_millis(500);

/// Leases revoked in one turn, so that a mass expiry does not fill the log at once. etcd's limit is 1,000 a second.
const REVOKED_PER_TURN: usize = 500;

/// The pure part: deadlines by lease.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeMap<i64, Deadline>);

#[derive(Debug)]
struct Deadline {
    at: Instant,
    ttl: Duration,
    renewals: u64,
}

impl Deadlines {
    /// Takes note of new, renewed and vanished leases.
    fn observe(&mut self, snapshot: &Snapshot, now: Instant) {
        self.0.retain(|id, _| snapshot.lease(*id).is_some());
        for (id, lease) in snapshot.leases() {
            if self.0.get(&id).is_none_or(|known| known.renewals != lease.renewals) {
                let ttl = Duration::from_secs(u64::try_from(lease.ttl_secs).unwrap_or(0));
                self.0.insert(id, Deadline { at: later(now, ttl), ttl, renewals: lease.renewals });
            }
        }
    }

    fn extend_all(&mut self, now: Instant) {
        self.0.values_mut().for_each(|deadline| deadline.at = later(now, deadline.ttl));
    }

    fn expired(&self, now: Instant) -> Vec<i64> {
        self.0.iter().filter(|(_, deadline)| deadline.at <= now).map(|(id, _)| *id).take(REVOKED_PER_TURN).collect()
    }

    fn remaining(&self, id: i64, now: Instant) -> Option<Duration> {
        self.0.get(&id).map(|deadline| deadline.at.saturating_duration_since(now))
    }
}

/// A time to live may be centuries long; a century stands for all of them.
fn later(now: Instant, ttl: Duration) -> Instant {
    now + ttl.min(Duration::from_secs(100 * 365 * 24 * 3600))
}

/// What the lease service asks about deadlines. Shared with [`Expiry`].
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseTimes(Arc<Mutex<Deadlines>>);

impl LeaseTimes {
    /// The time that `id` has left as this replica sees it, if the lease exists.
    pub(crate) fn remaining(&self, id: i64, snapshot: &Snapshot) -> Option<Duration> {
        let (now, mut deadlines) = (Instant::now(), self.0.lock());
        deadlines.observe(snapshot, now);
        deadlines.remaining(id, now)
    }

    /// Takes note of `snapshot` now, so that a grant's or renewal's time starts with its answer.
    pub(crate) fn observe(&self, snapshot: &Snapshot) {
        self.0.lock().observe(snapshot, Instant::now());
    }
}

/// Revokes leases whose time is over, while this replica leads. Where the store itself ends leases as well, the second revocation finds
/// nothing; it still keeps the deadlines that `LeaseTimeToLive` answers from.
pub struct Expiry {
    store: Arc<dyn Store>,
    times: LeaseTimes,
}

impl Expiry {
    pub(crate) fn new(store: Arc<dyn Store>, times: LeaseTimes) -> Self {
        Self { store, times }
    }

    /// Runs until dropped.
    pub async fn run(self) {
        let leadership = self.store.leadership();
        let mut led_term = None;
        let mut turns = tokio::time::interval(INTERVAL);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            let leads = Some(*leadership.borrow()).filter(|leadership| leadership.here).map(|leadership| leadership.term);
            let expired = {
                let (now, mut deadlines) = (Instant::now(), self.times.0.lock());
                deadlines.observe(&self.store.snapshot(), now);
                if leads != led_term {
                    deadlines.extend_all(now);
                }
                if leads.is_some() { deadlines.expired(now) } else { Vec::new() }
            };
            led_term = leads;
            for id in expired {
                // A failure leaves the lease overdue: the next turn, here or at the next leader, tries again.
                if let Err(error) = self.store.commit(Command::LeaseRevoke { id }).await {
                    tracing::debug!(id, %error, "an expired lease could not be revoked yet");
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_mvcc::State;

    #[test]
    fn time_starts_with_the_grant_and_anew_with_each_renewal() {
        let (mut state, mut deadlines, start) = (State::new(), Deadlines::default(), Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        state.apply(&Command::LeaseGrant { id: 1, ttl_secs: 10 }, 1);
        deadlines.observe(state.root(), at(0));
        deadlines.observe(state.root(), at(5));
        assert_eq!(deadlines.expired(at(9)), Vec::<i64>::new());
        assert_eq!(deadlines.expired(at(10)), [1]);
        state.apply(&Command::LeaseRenew { id: 1 }, 1);
        deadlines.observe(state.root(), at(9));
        assert_eq!(deadlines.expired(at(18)), Vec::<i64>::new());
        assert_eq!(deadlines.remaining(1, at(18)), Some(Duration::from_secs(1)));
        deadlines.extend_all(at(18));
        assert_eq!(deadlines.expired(at(27)), Vec::<i64>::new());
        // An id that comes back is another lease, also when nobody looked in between.
        state.apply(&Command::LeaseRevoke { id: 1 }, 1);
        state.apply(&Command::LeaseGrant { id: 1, ttl_secs: 100 }, 1);
        deadlines.observe(state.root(), at(20));
        assert_eq!(deadlines.remaining(1, at(20)), Some(Duration::from_secs(100)));
        state.apply(&Command::LeaseRevoke { id: 1 }, 1);
        deadlines.observe(state.root(), at(30));
        assert_eq!((deadlines.expired(at(100)), deadlines.remaining(1, at(30))), (Vec::new(), None));
    }

    #[test]
    fn absurd_times_to_live_do_not_overflow() {
        let (mut state, mut deadlines) = (State::new(), Deadlines::default());
        state.apply(&Command::LeaseGrant { id: 1, ttl_secs: i64::MAX }, 1);
        deadlines.observe(state.root(), Instant::now());
        assert!(deadlines.expired(Instant::now()).is_empty());
    }
}
