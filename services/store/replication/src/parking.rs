//! Rest for groups that nobody writes to: no Raft tick, no heartbeat, no look at them; their state stays in memory.
//!
//! ```text
//!             idle for a while, every live member holds the whole log
//!   awake ----------------- leader asks each: "parked at N" (`rest`) ---------------> parked
//!     ^                                                                                  |
//!     '--- write, change of members, hand-over, other vote, verdict of the detector -----'
//!          pre-vote of somebody who is awake, request that does not reach the leader
//! ```
//!
//! **What a parked group can do.** Watches and local reads need no Raft. A linearizable read asks the leader, who asks a quorum: one round trip of
//! empty appends, marked so that they wake nobody ([`Operation::Probe`](crate::peers::Operation)). The round trip is the proof of the leadership, as
//! for any read index; no lease, neither Raft's nor the failure detector's, is ever taken for one. So a parked leader that was deposed without its
//! knowledge answers no read: a quorum that elected another leader refuses its appends, and each quorum has a member of that one. A write wakes the
//! group first and renews the quorum's acknowledgement with the same round trip.
//!
//! **Why nobody stands for election.** A parked voter's lease on its leader runs out, and nothing renews it. Instead the voter refuses pre-votes
//! while its host's detector holds the link to the leader's host up, to the same process, which has not lost the leader's replica. A refusal is not
//! the last word: the voter asks its leader to confirm, through the leader's Raft, that it leads ([`Operation::Wake`](crate::peers::Operation)). A
//! leader that does wakes, and its heartbeats put the candidate to rest. One that does not, though its host lives, is given up, and the next pre-vote
//! is granted. No term grows either way until a quorum agrees.
//!
//! **Why nobody sleeps for ever.** Each promise is checked against a level, not an edge: an awake leader's heartbeats wake parked voters; an awake
//! voter's pre-votes wake a parked leader; the detector repeats what a host has lost until it is seen; and a request whose leader does not answer
//! wakes the replica that it came to. A group whose members disagree about being parked is therefore awake within an election timeout, and parks
//! again later.
//!
//! Being parked is neither stored nor replicated. A restarted process knows nothing of it, which its new incarnation tells the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use wheelhouse_base::{HostName, ReplicaId};

use crate::raft_types::Vote;

/// How long nothing is written before a group parks. Waking costs a round trip, so clusters that are in use do not park between two writes.
pub const PARK_AFTER: Duration = Duration::from_secs(30);

/// Between two tries to park, when a member was not ready.
const RETRY: Duration = Duration::from_secs(5);

/// How long a voter that heard its leader refuses pre-votes, and a leader that woke, until its quorum's acknowledgements do. Raft's own lease is as
/// long, but once a voter has given it up it does not come back in the same term (`election`).
const LEASE: Duration = Duration::from_millis(700);

/// What a parked replica relies on.
#[derive(Clone, Debug)]
pub struct Rest {
    /// The leadership under which it parked.
    pub vote: Vote,
    pub leader: ReplicaId,
    /// The leader's host and the incarnation of its process; `None` where the leader is this replica.
    pub at: Option<(HostName, u64)>,
}

/// One replica's state of rest. Shared with its network, which marks what it sends.
pub struct Parking {
    after: Option<Duration>,
    /// Appends without entries are sent so that they wake nobody: while parked, and while the leader asks the others to park.
    quiet: AtomicBool,
    state: Mutex<State>,
    /// When this follower last heard its leader, unless the leader is held dead since.
    heard: Mutex<Option<Instant>>,
}

struct State {
    rest: Option<Rest>,
    /// Counts what keeps a group awake, so that one such thing is noticed by who is about to park.
    activities: u64,
    /// The newest of them.
    active: Instant,
    woken: Instant,
    try_after: Instant,
    trying: bool,
    /// Awake again, and no quorum has answered yet.
    stale: bool,
}

impl Parking {
    /// Parks after so long without writes; `None` never.
    pub fn new(after: Option<Duration>) -> Self {
        let now = Instant::now();
        let state = State { rest: None, activities: 0, active: now, woken: now, try_after: now, trying: false, stale: false };
        Self { after, quiet: AtomicBool::new(false), state: Mutex::new(state), heard: Mutex::default() }
    }

    pub fn is_enabled(&self) -> bool {
        self.after.is_some()
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Acquire)
    }

    pub fn rest(&self) -> Option<Rest> {
        // Most groups that are asked are awake, and asked often.
        if self.is_quiet() { self.state.lock().rest.clone() } else { None }
    }

    pub fn is_parked(&self) -> bool {
        self.is_quiet() && self.state.lock().rest.is_some()
    }

    /// Notes what keeps the group awake.
    pub fn note(&self) {
        let mut state = self.state.lock();
        state.activities += 1;
        state.active = Instant::now();
    }

    /// The beginning of a try to park, if it is time for one. Ended by [`settle`](Self::settle) or [`give_up`](Self::give_up).
    pub fn begin(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let idle = self.after.is_some_and(|after| now >= state.active + after);
        if !idle || state.trying || state.rest.is_some() || now < state.try_after {
            return None;
        }
        state.trying = true;
        self.quiet.store(true, Ordering::Release);
        Some(state.activities)
    }

    pub fn give_up(&self) {
        let mut state = self.state.lock();
        state.trying = false;
        state.try_after = Instant::now() + RETRY;
        if state.rest.is_none() {
            self.quiet.store(false, Ordering::Release);
        }
    }

    /// Parks the leader, unless something has kept the group awake since [`begin`](Self::begin). `still` is run with the waking kept out.
    pub fn settle(&self, activities: u64, rest: Rest, still: impl FnOnce() -> bool) -> bool {
        let mut state = self.state.lock();
        if state.activities != activities || !still() {
            return false;
        }
        state.trying = false;
        state.rest = Some(rest);
        true
    }

    /// Parks a member that was asked to. `then` is run with the waking kept out.
    pub fn lie_down(&self, rest: Rest, then: impl FnOnce()) {
        let mut state = self.state.lock();
        state.rest = Some(rest);
        self.quiet.store(true, Ordering::Release);
        then();
    }

    /// Ends the rest; `then` is run with parking kept out. `false` if it was awake.
    pub fn wake(&self, then: impl FnOnce()) -> bool {
        if !self.is_quiet() {
            return false;
        }
        let mut state = self.state.lock();
        if state.rest.take().is_none() {
            return false;
        }
        let now = Instant::now();
        state.activities += 1;
        (state.active, state.woken, state.stale) = (now, now, true);
        self.quiet.store(false, Ordering::Release);
        then();
        true
    }

    /// Whether no quorum has acknowledged this leader since it woke.
    pub fn is_stale(&self) -> bool {
        self.state.lock().stale
    }

    /// A quorum has.
    pub fn renewed(&self) {
        self.state.lock().stale = false;
    }

    /// How long it has been awake.
    pub fn awake_for(&self) -> Duration {
        let state = self.state.lock();
        if state.rest.is_some() { Duration::ZERO } else { state.woken.elapsed() }
    }

    pub fn woke_just_now(&self) -> bool {
        let state = self.state.lock();
        state.stale && state.woken.elapsed() < LEASE
    }

    /// An append of the leader was accepted.
    pub fn heard_leader(&self) {
        *self.heard.lock() = Some(Instant::now());
    }

    /// The leader is held dead.
    pub fn lost_leader(&self) {
        *self.heard.lock() = None;
    }

    pub fn hears_leader(&self) -> bool {
        self.heard.lock().is_some_and(|heard| heard.elapsed() < LEASE)
    }
}
