//! What a group needs now and then, done by one task per host for all groups: tell the disk the rest, shorten the log, and, at the leader,
//! compact the history, end leases, and park the group when nothing is left to do.
//!
//! An awake group is looked at every [`INTERVAL`]. A parked one is looked at when its next deadline comes, if it has one: its leases' ends, or a
//! compaction that is still to come. Both make log entries, which wake the group; it parks again afterwards, and once its history is compacted as
//! far as it may be, an idle group has no deadline any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::Instant;
use wheelhouse_base::{Term, Timestamp};
use wheelhouse_mvcc::Command;
use wheelhouse_rocks::codec::Reader;
use wheelhouse_store::Retention;

use crate::group::Group;
use crate::membership::{PROMOTE_WITHIN, Role};
use crate::peers::Operation;
use crate::raft_types::LogId;
use crate::store::ReplicatedStore;

/// How often each group is looked at. Leases have whole seconds, so they end at most this late.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// How long a group's log gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Entries after which the log is shortened.
    pub entries: u64,
    /// Entries that stay behind a shortening: a follower that was away for fewer is served from the log, else with a snapshot.
    pub kept: u64,
}

impl Default for LogLimits {
    /// At full load an entry carries dozens of transactions; 10,000 entries of the largest size would be 10 GB, of the usual ones 100 MB.
    fn default() -> Self {
        Self { entries: 10_000, kept: 2_000 }
    }
}

/// A leader that has heard no quorum for this long is most likely no longer one: twice the longest election.
const QUORUM_SILENCE: Duration = Duration::from_millis(1400);

/// Between two tries to hand over for want of disk space. Asking costs a message per voter.
const HAND_OVER_PAUSE: Duration = Duration::from_secs(10);

/// A proposal that takes longer is forgotten.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the leader remembers of a group. Started anew with each leadership: leases get their full time, and history its full window.
#[derive(Default)]
pub struct Memory {
    led: Option<Term>,
    retention: Retention,
    leases: HashMap<i64, LeaseClock>,
    /// When handing over for want of disk space may be tried again.
    hand_over_after: Option<Instant>,
}

struct LeaseClock {
    renewals: u64,
    ends: Instant,
    /// A revocation is under way.
    ending: bool,
}

/// Looks at one group.
pub async fn look(group: &Arc<Group>, limits: LogLimits, now: Timestamp) {
    if group.machine.disk().disk().has_failed() && group.machine.fault().borrow().is_none() {
        // Raft notices only what it waits for itself, and a follower may wait for nothing.
        group.machine.set_fault("the host's disk failed".to_owned());
        let failed = group.clone();
        group.tasks.spawn("end", async move { drop(failed.raft.shutdown().await) });
        return;
    }
    if !group.parking.is_parked() {
        look_awake(group, limits).await;
    }
    let Some(term) = group.leads() else {
        group.maintenance.lock().led = None;
        return;
    };
    for command in due(group, term, now) {
        let proposer = group.clone();
        // Its outcome does not matter: what is still due is proposed again.
        let proposed = async move { drop(tokio::time::timeout(PATIENCE, proposer.propose_here(command)).await) };
        group.tasks.spawn("maintenance", proposed);
    }
    if group.machine.disk().disk().is_low_on_space() && may_hand_over(group) {
        group.tasks.spawn("hand-over", hand_over_to_room(group.clone()));
    }
    if group.parking.is_parked() {
        group.agenda.at(&group.id, next_deadline(group));
    } else {
        group.park_if_idle();
    }
}

async fn look_awake(group: &Group, limits: LogLimits) {
    group.machine.flush();
    group.log.look();
    shorten_log(group, limits).await;
    group.lapsed.send_if_modified(|lapsed| std::mem::replace(lapsed, quorum_is_silent(group)) != *lapsed);
}

/// Whether this replica leads and its quorum has not answered for longer than any election takes.
fn quorum_is_silent(group: &Group) -> bool {
    let metrics = group.raft.metrics();
    let metrics = metrics.borrow_watched();
    let alone = metrics.membership_config.membership().voter_ids().count() < 2;
    metrics.state.is_leader() && !alone && metrics.last_quorum_acked.as_ref().is_some_and(|acked| acked.elapsed() > QUORUM_SILENCE)
        // While it was parked nobody was asked.
        && group.parking.awake_for() > QUORUM_SILENCE
}

/// When a parked group is to be looked at; `None` if nothing will be due. Times are this leader's own, so others have none.
pub fn next_deadline(group: &Group) -> Option<Instant> {
    group.leads()?;
    let root = group.machine.hub().snapshot();
    let memory = group.maintenance.lock();
    let compaction = Retention::is_pending(root.revision(), root.compacted()).then(|| Instant::now() + Retention::INTERVAL);
    memory.leases.values().map(|clock| clock.ends).chain(compaction).min()
}

fn may_hand_over(group: &Group) -> bool {
    let mut memory = group.maintenance.lock();
    let now = Instant::now();
    let may = memory.hand_over_after.is_none_or(|after| now >= after);
    if may {
        memory.hand_over_after = Some(now + HAND_OVER_PAUSE);
    }
    may
}

/// Hands the leadership to a voter whose host has room for writes, if there is one.
async fn hand_over_to_room(group: Arc<Group>) {
    let store = ReplicatedStore { group: group.clone() };
    for member in store.members() {
        if member.role != Role::Voter || member.replica == group.id.replica || member.lag.is_none_or(|lag| lag > PROMOTE_WITHIN) {
            continue;
        }
        let asked = group.peers.call(&member.host, &group.route(member.replica), Operation::HasRoom, &[], PATIENCE);
        let has_room = asked.await.is_ok_and(|answer| Reader::new(answer).bool() == Ok(true));
        if has_room && store.transfer_leadership(Some(member.replica)).await.is_ok() {
            tracing::info!(group = %group.id, to = %member.replica, "handed over: this host's disk is nearly full");
            return;
        }
    }
}

async fn shorten_log(group: &Group, limits: LogLimits) {
    let (applied, snapshot) = {
        let metrics = group.raft.metrics();
        let metrics = metrics.borrow_watched();
        (metrics.last_applied, metrics.snapshot)
    };
    let index = |id: Option<LogId>| id.as_ref().map_or(0, LogId::index);
    if index(applied) >= index(snapshot) + limits.entries {
        // A replica that has stopped needs no shorter log.
        let _ = group.raft.trigger().snapshot().await;
    }
}

fn due(group: &Group, term: Term, now: Timestamp) -> Vec<Command> {
    let root = group.machine.hub().snapshot();
    let mut memory = group.maintenance.lock();
    if memory.led != Some(term) {
        *memory = Memory { led: Some(term), ..Memory::default() };
    }
    let mut commands = Vec::new();
    if let Some(revision) = memory.retention.advance(now, root.revision(), root.compacted()) {
        commands.push(Command::Compact { revision });
    }
    let instant = Instant::now();
    memory.leases.retain(|id, _| root.lease(*id).is_some());
    for (id, lease) in root.leases() {
        let full = instant + Duration::from_secs(u64::try_from(lease.ttl_secs).unwrap_or(0));
        let clock = memory.leases.entry(id).or_insert(LeaseClock { renewals: lease.renewals, ends: full, ending: false });
        if clock.renewals != lease.renewals {
            *clock = LeaseClock { renewals: lease.renewals, ends: full, ending: false };
        }
        if clock.ends <= instant && !clock.ending {
            clock.ending = true;
            // Should the proposal be lost, it is made again after another interval.
            clock.ends = instant + INTERVAL;
            commands.push(Command::LeaseRevoke { id });
        } else if clock.ends <= instant {
            clock.ending = false;
        }
    }
    commands
}
