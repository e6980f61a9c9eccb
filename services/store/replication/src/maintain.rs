//! What a group needs now and then, done by one task per host for all groups: tell the disk the rest, shorten the log, and, at the leader,
//! compact the history and end leases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::Instant;
use wheelhouse_base::{Term, Timestamp};
use wheelhouse_mvcc::Command;
use wheelhouse_store::Retention;

use crate::group::Group;
use crate::raft_types::LogId;

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

/// A proposal that takes longer is forgotten.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the leader remembers of a group. Started anew with each leadership: leases get their full time, and history its full window.
#[derive(Default)]
pub struct Memory {
    led: Option<Term>,
    retention: Retention,
    leases: HashMap<i64, LeaseClock>,
}

struct LeaseClock {
    renewals: u64,
    ends: Instant,
    /// A revocation is under way.
    ending: bool,
}

/// Looks at one group.
pub async fn look(group: &Arc<Group>, limits: LogLimits, now: Timestamp) {
    group.machine.flush();
    shorten_log(group, limits).await;
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
