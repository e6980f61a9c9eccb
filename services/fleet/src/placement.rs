//! Which hosts a cluster's replicas run on. Pure: cluster and hosts in, members out.
//!
//! - Nothing is placed until every wanted replica has a host: a cluster starts whole, and grows from 3 to 5 in one step, since an even number of
//!   voters tolerates no more than the odd one below it. The system cluster is the exception at its birth: one founder runs alone until
//!   there are hosts for all.
//! - A replica moves when its host is gone (deleted, or NotReady for [`Wanted::gone_after`]) or evacuates, and only if a spare host exists.
//! - Zones first, then load: a new replica goes where the fewest replicas of this cluster share a zone, then where the fewest replicas run.
//! - Replica ids count up and are never reused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wheelhouse_base::{HostName, ReplicaId, Timestamp};
use wheelhouse_kinds::fleet::cluster::Member;

/// A host as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    pub name: HostName,
    pub zone: String,
    /// Takes new replicas: ready, not cordoned, not draining, below its capacity.
    pub takes_replicas: bool,
    /// Why not, in a word, when it does not.
    pub reason: &'static str,
    /// Since when it has not been heard; `None` while it is.
    pub silent_since: Option<Timestamp>,
    pub evacuates: bool,
    /// Replicas of all clusters.
    pub load: i64,
}

impl HostFacts {
    /// Whether it has been silent for so long that it is given up.
    pub fn is_gone(&self, gone_after: Duration, now: Timestamp) -> bool {
        self.silent_since.is_some_and(|since| now.since(since) >= gone_after)
    }
}

/// What there is and what is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub replicas: usize,
    pub members: &'a [Member],
    pub last_replica_id: u64,
    /// Members whose data is lost: as good as gone, though their hosts may take a new replica.
    pub lost: &'a [ReplicaId],
    /// Never removed while another can be.
    pub leader: Option<ReplicaId>,
    /// May run with fewer than it wants until there are hosts: the system cluster at its birth.
    pub starts_small: bool,
    /// A host that was not heard for so long is given up.
    pub gone_after: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub members: Vec<Member>,
    pub last_replica_id: u64,
    /// What could not be placed, for the `NoHost` condition.
    pub missing: Option<String>,
    /// When a silent host counts as gone, if waiting for that.
    pub look_again: Option<Timestamp>,
}

/// Chooses members. Idempotent: placing what was placed changes nothing.
pub fn place(wanted: Wanted<'_>, hosts: &[HostFacts], now: Timestamp) -> Placement {
    let facts: BTreeMap<&HostName, &HostFacts> = hosts.iter().map(|h| (&h.name, h)).collect();
    let must_leave =
        |m: &Member| wanted.lost.contains(&m.replica_id) || facts.get(&m.host).is_none_or(|h| h.is_gone(wanted.gone_after, now) || h.evacuates);
    let (leaving, mut kept): (Vec<Member>, Vec<Member>) = wanted.members.iter().cloned().partition(must_leave);
    while kept.len() > wanted.replicas {
        let worst = worst(&kept, &facts, wanted.leader);
        kept.remove(worst);
    }

    let taken: BTreeSet<&HostName> = wanted.members.iter().filter(|m| !wanted.lost.contains(&m.replica_id)).map(|m| &m.host).collect();
    let mut free: Vec<&HostFacts> = hosts.iter().filter(|h| h.takes_replicas && !h.evacuates && !taken.contains(&h.name)).collect();
    let mut placement =
        Placement { members: kept, last_replica_id: wanted.last_replica_id, missing: None, look_again: look_again(&wanted, &facts, now) };
    let mut chosen = Vec::new();
    while placement.members.len() + chosen.len() < wanted.replicas && !free.is_empty() {
        let zones = |h: &HostFacts| {
            let in_zone = |m: &Member| facts.get(&m.host).is_some_and(|f| f.zone == h.zone);
            placement.members.iter().filter(|m| in_zone(m)).count() + chosen.iter().filter(|c: &&&HostFacts| c.zone == h.zone).count()
        };
        let best = (0..free.len()).min_by_key(|i| (zones(free[*i]), free[*i].load, &free[*i].name)).unwrap_or(0);
        chosen.push(free.swap_remove(best));
    }

    let lacking = wanted.replicas - (placement.members.len() + chosen.len()).min(wanted.replicas);
    // Replacing one for one never lowers the number of voters; adding is done only to the full number.
    let replaceable = leaving.len().saturating_sub(lacking);
    let new_members = if lacking == 0 {
        chosen.len()
    } else if wanted.members.is_empty() && wanted.starts_small {
        chosen.len().min(1)
    } else {
        replaceable.min(chosen.len()).min(leaving.len())
    };
    let stays = if lacking == 0 { 0 } else { leaving.len() - new_members.min(leaving.len()) };
    let chosen = &chosen[..new_members];
    // Of those that cannot all be replaced the newest stay; one that shares a host with its successor cannot.
    let shares = |m: &Member| chosen.iter().any(|c| c.name == m.host);
    placement.members.extend(leaving.into_iter().rev().filter(|m| !shares(m)).take(stays));
    for host in chosen {
        placement.last_replica_id += 1;
        placement.members.push(Member { replica_id: ReplicaId(placement.last_replica_id), host: host.name.clone() });
    }
    placement.members.sort_by_key(|m| m.replica_id);
    if lacking > 0 {
        placement.missing = Some(explain(lacking, wanted.replicas, hosts, &taken));
    }
    placement
}

/// Which member to give up when there are too many: one on a host that takes none, then one that shares its zone, then the newest; the leader last.
fn worst(members: &[Member], facts: &BTreeMap<&HostName, &HostFacts>, leader: Option<ReplicaId>) -> usize {
    let zone = |m: &Member| facts.get(&m.host).map(|h| h.zone.as_str());
    let badness = |m: &Member| {
        let healthy = facts.get(&m.host).is_some_and(|h| h.silent_since.is_none() && h.takes_replicas);
        let shared = members.iter().filter(|other| zone(other) == zone(m)).count();
        (leader != Some(m.replica_id), !healthy, shared, m.replica_id)
    };
    (0..members.len()).max_by_key(|i| badness(&members[*i])).unwrap_or(0)
}

/// The first moment at which a member's silent host counts as gone.
fn look_again(wanted: &Wanted<'_>, facts: &BTreeMap<&HostName, &HostFacts>, now: Timestamp) -> Option<Timestamp> {
    let gone_at = |m: &Member| facts.get(&m.host).and_then(|h| h.silent_since).map(|since| since.plus(wanted.gone_after));
    wanted.members.iter().filter_map(gone_at).filter(|at| *at > now).min()
}

/// "no host for 2 of 5 replicas: of 4 hosts 3 hold one already, 1 is cordoned"
fn explain(lacking: usize, wanted: usize, hosts: &[HostFacts], taken: &BTreeSet<&HostName>) -> String {
    let mut why: BTreeMap<&str, usize> = BTreeMap::new();
    for host in hosts {
        let reason = if taken.contains(&host.name) {
            "holding one already"
        } else if host.evacuates {
            "evacuating"
        } else if host.takes_replicas {
            "free"
        } else {
            host.reason
        };
        *why.entry(reason).or_default() += 1;
    }
    let why: Vec<String> = why.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    let detail = if why.is_empty() { "there are no hosts".to_owned() } else { format!("of {} hosts: {}", hosts.len(), why.join(", ")) };
    format!("no host for {lacking} of {wanted} replicas; {detail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE_AFTER: Duration = Duration::from_secs(600);
    const NOW: Timestamp = Timestamp::from_secs(100_000);

    /// `a1` is host a in zone 1; `-` cordons, `?` is silent for a minute, `!` for an hour, `>` evacuates.
    fn hosts(text: &str) -> Vec<HostFacts> {
        let host = |word: &str| {
            let silent = |secs| Some(Timestamp::from_secs(NOW.as_secs() - secs));
            let mark = word.chars().nth(2);
            HostFacts {
                name: word[..1].parse().unwrap(),
                zone: word[1..2].to_owned(),
                takes_replicas: mark.is_none_or(|m| m == '>'),
                reason: if mark == Some('-') { "cordoned" } else { "not ready" },
                silent_since: match mark {
                    Some('?') => silent(60),
                    Some('!') => silent(3600),
                    _ => None,
                },
                evacuates: mark == Some('>'),
                load: 0,
            }
        };
        text.split_whitespace().map(host).collect()
    }

    /// `1a 2b` are replica 1 on host a and replica 2 on host b.
    fn members(text: &str) -> Vec<Member> {
        let member = |word: &str| Member { replica_id: ReplicaId(word[..1].parse().unwrap()), host: word[1..].parse().unwrap() };
        text.split_whitespace().map(member).collect()
    }

    fn show(placement: &Placement) -> String {
        placement.members.iter().map(|m| format!("{}{}", m.replica_id, m.host)).collect::<Vec<_>>().join(" ")
    }

    fn placed(replicas: usize, before: &str, on: &str) -> (String, Option<String>) {
        let members = members(before);
        let last_replica_id = members.iter().map(|m| m.replica_id.0).max().unwrap_or(0);
        let wanted = Wanted {
            replicas,
            members: &members,
            last_replica_id,
            lost: &[],
            leader: Some(ReplicaId(1)),
            starts_small: false,
            gone_after: GONE_AFTER,
        };
        let first = place(wanted, &hosts(on), NOW);
        let again = Wanted { members: &first.members, last_replica_id: first.last_replica_id, ..wanted };
        assert_eq!(place(again, &hosts(on), NOW).members, first.members, "placing is idempotent: {before} on {on}");
        (show(&first), first.missing)
    }

    #[test]
    fn new_clusters_spread_over_zones_or_wait() {
        assert_eq!(placed(3, "", "a1 b2 c3").0, "1a 2b 3c");
        assert_eq!(placed(3, "", "a1 b1 c1 d2 e3").0, "1a 2d 3e");
        let (members, missing) = placed(5, "", "a1 b2 c3");
        assert_eq!((members.as_str(), missing.as_deref()), ("", Some("no host for 2 of 5 replicas; of 3 hosts: 3 free")));
        assert_eq!(placed(3, "", "a1 b2- c3?").1.as_deref(), Some("no host for 2 of 3 replicas; of 3 hosts: 1 cordoned, 1 free, 1 not ready"));
        assert_eq!(placed(3, "", "").1.as_deref(), Some("no host for 3 of 3 replicas; there are no hosts"));
    }

    #[test]
    fn the_system_cluster_is_founded_alone() {
        let small = |before: &str, on: &str| {
            let members = members(before);
            let wanted = Wanted {
                replicas: 3,
                members: &members,
                last_replica_id: members.len() as u64,
                lost: &[],
                leader: None,
                starts_small: true,
                gone_after: GONE_AFTER,
            };
            show(&place(wanted, &hosts(on), NOW))
        };
        assert_eq!(small("", "a1 b2"), "1a");
        assert_eq!(small("1a", "a1 b2"), "1a", "two voters are worse than one");
        assert_eq!(small("1a", "a1 b2 c3"), "1a 2b 3c");
    }

    #[test]
    fn scaling_takes_whole_steps() {
        assert_eq!(placed(5, "1a 2b 3c", "a1 b2 c3 d4 e5").0, "1a 2b 3c 4d 5e");
        let (members, missing) = placed(5, "1a 2b 3c", "a1 b2 c3 d4");
        assert_eq!((members.as_str(), missing.is_some()), ("1a 2b 3c", true));
        assert_eq!(placed(3, "1a 2b 3c 4d 5e", "a1 b2 c3 d4 e5").0, "1a 2b 3c", "the newest go");
        assert_eq!(placed(3, "1a 2b 3c 4d 5e", "a1 b2? c3 d4 e5").0, "1a 3c 4d", "the silent go first");
    }

    #[test]
    fn gone_hosts_are_replaced_one_for_one() {
        assert_eq!(placed(3, "1a 2b 3c", "a1 b2 c3? d4").0, "1a 2b 3c", "a reboot moves nothing");
        assert_eq!(placed(3, "1a 2b 3c", "a1 b2 c3! d4").0, "1a 2b 4d");
        assert_eq!(placed(3, "1a 2b 3c", "a1 b2 d4").0, "1a 2b 4d", "a deleted host is gone at once");
        let (members, missing) = placed(3, "1a 2b 3c", "a1 b2 c3!");
        assert_eq!((members.as_str(), missing.is_some()), ("1a 2b 3c", true), "without a spare it stays, and says so");
        assert_eq!(placed(5, "1a 2b 3c 4d 5e", "a1 b2 c3 d4! e5! f6").0, "1a 2b 3c 5e 6f", "with one spare one is replaced");
    }

    #[test]
    fn evacuating_hosts_are_left_when_there_is_room() {
        assert_eq!(placed(3, "1a 2b 3c", "a1 b2 c3> d4").0, "1a 2b 4d");
        assert_eq!(placed(3, "1a 2b 3c", "a1 b2 c3>").0, "1a 2b 3c");
    }

    #[test]
    fn a_lost_replica_gets_a_successor_under_a_new_id() {
        let members = members("1a 2b 3c");
        let wanted = Wanted {
            replicas: 3,
            members: &members,
            last_replica_id: 3,
            lost: &[ReplicaId(2)],
            leader: None,
            starts_small: false,
            gone_after: GONE_AFTER,
        };
        assert_eq!(show(&place(wanted, &hosts("a1 b2 c3"), NOW)), "1a 3c 4b", "its own host may hold it");
        assert_eq!(show(&place(wanted, &hosts("a1 b2- c3"), NOW)), "1a 2b 3c", "and it stays while there is no host");
    }

    #[test]
    fn waiting_for_a_silent_host_has_an_end() {
        let members = members("1a 2b 3c");
        let wanted =
            Wanted { replicas: 3, members: &members, last_replica_id: 3, lost: &[], leader: None, starts_small: false, gone_after: GONE_AFTER };
        let placement = place(wanted, &hosts("a1 b2 c3? d4"), NOW);
        assert_eq!(placement.look_again, Some(Timestamp::from_secs(NOW.as_secs() - 60).plus(GONE_AFTER)));
    }
}
