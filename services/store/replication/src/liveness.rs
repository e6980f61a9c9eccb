//! Which hosts live: one failure detector per pair of hosts, as a pure machine over the time and what arrives.
//!
//! ```text
//! beat = incarnation | the receiver's incarnation, if it was heard of late | newest loss seen of the receiver | losses (number, replica) ...
//! ```
//!
//! Every host sends a beat to each host that it shares a group with, over the connection that carries everything else. A link is *up* while both
//! directions work: the other host was heard within [`SILENCE`], and says that it hears this process. So a cut in one direction ends the link for
//! both, and neither waits for answers that cannot come.
//!
//! A link goes down for one of four reasons ([`Why`]): silence; the other side does not hear us; its process is another one now, whose replicas
//! know nothing of what was promised before; or nobody listens at its address, which proves within a round trip that the process is gone.
//!
//! A replica that ends on a living host is a *loss*. Losses are numbered and repeated in every beat until the receiver has said that it saw them, so
//! a lost beat loses nothing. They matter only to links that are up: a host that was down takes every group of the other one as lost anyway.
//!
//! What this detector says is never needed for safety, only for speed and for rest: elections begin sooner by it, and parked groups (`parking`) rely
//! on it to be woken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wheelhouse_base::{HostName, ReplicaId};
use wheelhouse_rocks::GroupId;
use wheelhouse_rocks::codec::{DecodeError, Reader, Writer};

/// Between two beats. Five small messages a second between two hosts, however many groups they share.
pub const BEAT: Duration = Duration::from_millis(200);

/// A host that is silent for so long is held dead: four beats lost and some delay. A process that was killed is known far sooner; this is for hosts that
/// vanish, and longer than a starved process on a busy machine usually stands still.
pub const SILENCE: Duration = Duration::from_secs(1);

/// Losses in one beat at most; more follow in the next ones.
const LOSSES_PER_BEAT: usize = 512;

/// How long a loss is remembered, for promises of the lost replica that are still on their way. Longer than any call takes.
const LOSS_MEMORY: Duration = Duration::from_secs(10);

/// Why a link went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Silent,
    /// The other host lives and does not hear this one.
    Deaf,
    Restarted,
    /// Nobody listens at its address.
    Refused,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Up {
        host: HostName,
    },
    Down {
        host: HostName,
        why: Why,
    },
    /// A replica ended on a host that lives.
    Lost {
        host: HostName,
        group: GroupId,
    },
}

/// One liveness message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    incarnation: u64,
    /// The incarnation of the receiver, if the sender hears it.
    hears: Option<u64>,
    /// The newest loss that the sender has seen of the receiver.
    seen: u64,
    losses: Vec<(u64, GroupId)>,
}

impl Beat {
    pub fn write(&self, w: &mut Writer) {
        w.u64(self.incarnation);
        w.bool(self.hears.is_some());
        self.hears.into_iter().for_each(|incarnation| w.u64(incarnation));
        w.u64(self.seen);
        w.u64(self.losses.len() as u64);
        for (number, group) in &self.losses {
            w.u64(*number);
            w.bytes(group.cluster.as_str().as_bytes());
            w.u64(group.replica.0);
        }
    }

    pub fn read(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let incarnation = r.u64()?;
        let hears = if r.bool()? { Some(r.u64()?) } else { None };
        let seen = r.u64()?;
        let mut losses = Vec::new();
        for _ in 0..r.count()? {
            let number = r.u64()?;
            let cluster = std::str::from_utf8(&r.bytes()?).ok().and_then(|id| id.parse().ok());
            let cluster = cluster.ok_or(DecodeError::Invalid("a loss names no cluster"))?;
            losses.push((number, GroupId::new(cluster, ReplicaId(r.u64()?))));
        }
        r.finish()?;
        Ok(Self { incarnation, hears, seen, losses })
    }
}

/// One host's view of all others.
pub struct Detector {
    incarnation: u64,
    /// Hosts that share a group with this one.
    wanted: BTreeSet<HostName>,
    links: BTreeMap<HostName, Link>,
    /// Replicas that ended here and that some link may not have seen, oldest first.
    losses: VecDeque<(u64, GroupId)>,
    /// The newest loss.
    lost: u64,
    looked: Instant,
}

#[derive(Default)]
struct Link {
    /// What is known of the other process since it was first heard.
    peer: Option<Peer>,
    up: bool,
    /// It has been up with a process of that host, and no other has taken its place.
    was_up: bool,
}

struct Peer {
    incarnation: u64,
    heard: Instant,
    /// The newest loss seen of it.
    seen: u64,
    /// The newest loss that it has seen of this host.
    acknowledged: u64,
    recent: VecDeque<(Instant, GroupId)>,
}

impl Link {
    fn hears(&self, now: Instant) -> Option<&Peer> {
        self.peer.as_ref().filter(|peer| now < peer.heard + SILENCE)
    }

    fn go_down(&mut self) -> bool {
        std::mem::take(&mut self.up)
    }
}

impl Detector {
    /// `incarnation` names this process; no other of this host had it.
    pub fn new(incarnation: u64, now: Instant) -> Self {
        let (wanted, links, losses) = (BTreeSet::new(), BTreeMap::new(), VecDeque::new());
        Self { incarnation, wanted, links, losses, lost: 0, looked: now }
    }

    /// Names the hosts that share a group with this one. Others are forgotten as soon as they are down.
    pub fn want(&mut self, hosts: BTreeSet<HostName>) {
        for host in &hosts {
            self.links.entry(host.clone()).or_default();
        }
        self.wanted = hosts;
        let wanted = &self.wanted;
        self.links.retain(|host, link| link.up || wanted.contains(host));
    }

    /// Who gets a beat now.
    pub fn hosts(&self) -> Vec<HostName> {
        self.links.keys().cloned().collect()
    }

    pub fn beat_for(&self, host: &HostName, now: Instant) -> Beat {
        let link = self.links.get(host);
        let peer = link.and_then(|link| link.peer.as_ref());
        let after = peer.map_or(self.lost, |peer| peer.acknowledged);
        Beat {
            incarnation: self.incarnation,
            hears: link.and_then(|link| link.hears(now)).map(|peer| peer.incarnation),
            seen: peer.map_or(0, |peer| peer.seen),
            losses: self.losses.iter().filter(|(number, _)| *number > after).take(LOSSES_PER_BEAT).cloned().collect(),
        }
    }

    /// A beat of `from` has arrived.
    pub fn heard(&mut self, now: Instant, from: &HostName, beat: Beat) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let (mine, lost) = (self.incarnation, self.lost);
        let link = self.links.entry(from.clone()).or_default();
        if link.peer.as_ref().is_some_and(|peer| peer.incarnation != beat.incarnation) {
            // Whatever was promised was promised by another process, also if this one came before anybody missed that.
            if link.go_down() {
                verdicts.push(Verdict::Down { host: from.clone(), why: Why::Restarted });
            }
            *link = Link::default();
        }
        let fresh = || Peer { incarnation: beat.incarnation, heard: now, seen: 0, acknowledged: lost, recent: VecDeque::new() };
        let peer = link.peer.get_or_insert_with(fresh);
        peer.heard = now;
        while peer.recent.front().is_some_and(|(at, _)| *at + LOSS_MEMORY <= now) {
            peer.recent.pop_front();
        }
        for (number, group) in beat.losses {
            if number > peer.seen {
                peer.seen = number;
                peer.recent.push_back((now, group.clone()));
                verdicts.push(Verdict::Lost { host: from.clone(), group });
            }
        }
        let hears_me = beat.hears == Some(mine);
        if hears_me {
            peer.acknowledged = peer.acknowledged.max(beat.seen);
        }
        match (link.up, hears_me) {
            (true, false) => {
                link.up = false;
                verdicts.push(Verdict::Down { host: from.clone(), why: Why::Deaf });
            }
            (false, true) => {
                (link.up, link.was_up) = (true, true);
                verdicts.push(Verdict::Up { host: from.clone() });
            }
            _ => {}
        }
        self.forget_losses();
        verdicts
    }

    /// Called at every beat: who has fallen silent?
    pub fn look(&mut self, now: Instant) -> Vec<Verdict> {
        // If this process itself stood still, what arrived meanwhile was not read: the pause is nobody's silence.
        let late = now.saturating_duration_since(self.looked).saturating_sub(2 * BEAT);
        self.looked = now;
        let mut verdicts = Vec::new();
        for (host, link) in &mut self.links {
            if let Some(peer) = &mut link.peer {
                peer.heard = (peer.heard + late).min(now);
            }
            if link.up && link.hears(now).is_none() {
                link.up = false;
                verdicts.push(Verdict::Down { host: host.clone(), why: Why::Silent });
            }
        }
        let wanted = &self.wanted;
        self.links.retain(|host, link| link.hears(now).is_some() || wanted.contains(host));
        self.forget_losses();
        verdicts
    }

    /// Nobody listens at the host's address.
    pub fn refused(&mut self, host: &HostName) -> Vec<Verdict> {
        let Some(link) = self.links.get_mut(host) else { return Vec::new() };
        link.peer = None;
        if link.go_down() { vec![Verdict::Down { host: host.clone(), why: Why::Refused }] } else { Vec::new() }
    }

    /// A replica has ended here while this host lives on.
    pub fn lose(&mut self, group: GroupId) {
        self.lost += 1;
        self.losses.push_back((self.lost, group));
        self.forget_losses();
    }

    /// The incarnation of `host` while the link to it is up.
    pub fn alive(&self, host: &HostName) -> Option<u64> {
        self.links.get(host).filter(|link| link.up).and_then(|link| link.peer.as_ref()).map(|peer| peer.incarnation)
    }

    /// The link to `host` was up and broke. A host that was never heard is not known to be down.
    pub fn is_down(&self, host: &HostName) -> bool {
        self.links.get(host).is_some_and(|link| link.was_up && !link.up)
    }

    /// Whether `host` has lost the replica of late.
    pub fn has_lost(&self, host: &HostName, group: &GroupId) -> bool {
        let peer = self.links.get(host).and_then(|link| link.peer.as_ref());
        peer.is_some_and(|peer| peer.recent.iter().any(|(_, lost)| lost == group))
    }

    fn forget_losses(&mut self) {
        let up = self.links.values().filter(|link| link.up).filter_map(|link| link.peer.as_ref());
        let seen_by_all = up.map(|peer| peer.acknowledged).min().unwrap_or(self.lost);
        while self.losses.front().is_some_and(|(number, _)| *number <= seen_by_all) {
            self.losses.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use wheelhouse_base::ClusterId;

    use super::*;

    fn host(name: &str) -> HostName {
        name.parse().unwrap()
    }

    fn group(n: u64) -> GroupId {
        GroupId::new(ClusterId::from_random(n), ReplicaId(1))
    }

    /// Two hosts; a beat each way, unless that direction is cut.
    struct Pair {
        a: Detector,
        b: Detector,
        now: Instant,
    }

    impl Pair {
        fn new() -> Self {
            let now = Instant::now();
            let mut pair = Self { a: Detector::new(1, now), b: Detector::new(2, now), now };
            pair.a.want(BTreeSet::from([host("b")]));
            pair.b.want(BTreeSet::from([host("a")]));
            pair
        }

        /// What `a` and `b` conclude in one turn.
        fn turn(&mut self, to_b: bool, to_a: bool) -> (Vec<Verdict>, Vec<Verdict>) {
            self.now += BEAT;
            let now = self.now;
            let (mut at_a, mut at_b) = (self.a.look(now), self.b.look(now));
            let (from_a, from_b) = (through(&self.a.beat_for(&host("b"), now)), through(&self.b.beat_for(&host("a"), now)));
            if to_b {
                at_b.extend(self.b.heard(now, &host("a"), from_a));
            }
            if to_a {
                at_a.extend(self.a.heard(now, &host("b"), from_b));
            }
            (at_a, at_b)
        }

        fn up(mut self) -> Self {
            for _ in 0..3 {
                self.turn(true, true);
            }
            assert_eq!((self.a.alive(&host("b")), self.b.alive(&host("a"))), (Some(2), Some(1)));
            self
        }

        fn until_down(&mut self, to_b: bool, to_a: bool) -> (Duration, Vec<Verdict>, Vec<Verdict>) {
            let began = self.now;
            let mut all = (Vec::new(), Vec::new());
            while self.a.alive(&host("b")).is_some() || self.b.alive(&host("a")).is_some() {
                let (at_a, at_b) = self.turn(to_b, to_a);
                all.0.extend(at_a);
                all.1.extend(at_b);
            }
            (self.now - began, all.0, all.1)
        }
    }

    fn through(beat: &Beat) -> Beat {
        let mut w = Writer::default();
        beat.write(&mut w);
        Beat::read(w.finish()).unwrap()
    }

    fn down(name: &str, why: Why) -> Vec<Verdict> {
        vec![Verdict::Down { host: host(name), why }]
    }

    #[test]
    fn a_cut_in_either_direction_ends_the_link_for_both() {
        let (took, at_a, at_b) = Pair::new().up().until_down(false, false);
        assert_eq!((at_a, at_b), (down("b", Why::Silent), down("a", Why::Silent)));
        assert!(took <= SILENCE + BEAT, "{took:?}");
        let mut pair = Pair::new().up();
        let (took, at_a, at_b) = pair.until_down(true, false);
        assert_eq!((at_a, at_b), (down("b", Why::Silent), down("a", Why::Deaf)));
        assert!(took <= SILENCE + 2 * BEAT, "{took:?}");
        assert!(pair.a.is_down(&host("b")) && !pair.a.is_down(&host("c")));
        pair.turn(true, true);
        let (at_a, at_b) = pair.turn(true, true);
        assert!(at_a.contains(&Verdict::Up { host: host("b") }) || pair.a.alive(&host("b")).is_some());
        assert!(at_b.contains(&Verdict::Up { host: host("a") }) || pair.b.alive(&host("a")).is_some());
    }

    #[test]
    fn a_process_that_is_gone_or_another_one_is_known_at_once() {
        let mut pair = Pair::new().up();
        assert_eq!(pair.a.refused(&host("b")), down("b", Why::Refused));
        assert_eq!(pair.a.refused(&host("b")), []);
        let mut pair = Pair::new().up();
        pair.b = Detector::new(3, pair.now);
        let (at_a, _) = pair.turn(true, true);
        assert_eq!(at_a, down("b", Why::Restarted));
        pair.turn(true, true);
        assert_eq!(pair.a.alive(&host("b")), Some(3));
    }

    #[test]
    fn losses_arrive_once_whatever_is_lost_on_the_way_and_are_forgotten_then() {
        let mut pair = Pair::new().up();
        pair.a.lose(group(7));
        pair.turn(false, true);
        let (_, at_b) = pair.turn(true, true);
        assert_eq!(at_b, [Verdict::Lost { host: host("a"), group: group(7) }]);
        assert!(pair.b.has_lost(&host("a"), &group(7)) && !pair.b.has_lost(&host("a"), &group(8)));
        for _ in 0..60 {
            let (_, at_b) = pair.turn(true, true);
            assert_eq!(at_b, []);
        }
        assert!(pair.a.losses.is_empty());
        assert!(!pair.b.has_lost(&host("a"), &group(7)), "only of late");
        // Nobody to tell: nothing is kept.
        let mut alone = Detector::new(1, pair.now);
        alone.lose(group(1));
        assert!(alone.losses.is_empty());
    }

    #[test]
    fn a_pause_of_this_process_is_nobodys_silence() {
        let mut pair = Pair::new().up();
        let resumed = pair.now + Duration::from_secs(5);
        assert_eq!(pair.a.look(resumed), []);
        assert_eq!(pair.a.look(resumed + BEAT), []);
        let silent = (2..6).flat_map(|n| pair.a.look(resumed + n * BEAT)).collect::<Vec<_>>();
        assert_eq!(silent, down("b", Why::Silent), "but real silence is");
    }

    #[test]
    fn hosts_that_share_nothing_any_more_are_forgotten() {
        let mut pair = Pair::new().up();
        pair.a.want(BTreeSet::new());
        assert_eq!(pair.a.hosts(), [host("b")], "it answers while it is heard");
        for _ in 0..6 {
            pair.turn(false, false);
        }
        assert!(pair.a.hosts().is_empty());
    }
}
