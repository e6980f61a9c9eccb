//! The failure detector at work: beats out, verdicts to whoever acts on them. The decisions are [`liveness`]'s.

use std::collections::BTreeSet;
use std::sync::Weak;

use tokio::time::Instant;
use wheelhouse_base::HostName;
use wheelhouse_rocks::GroupId;
use wheelhouse_rocks::codec::Writer;

use crate::liveness::{self, Verdict};
use crate::peers::{BEAT, Peers, VERSION};

/// Learns what the failure detector concludes. Does not block.
pub trait Judged: Send + Sync + 'static {
    fn judged(&self, verdict: Verdict);
}

impl Peers {
    /// Names who is told of the detector's verdicts. Called once.
    pub fn tell(&self, judged: Weak<dyn Judged>) {
        // A second one would be a mistake in wiring; the first stays.
        let _ = self.judged.set(judged);
    }

    /// A replica ended here: the other hosts learn it at once.
    pub fn lose(&self, group: GroupId) {
        let hosts = {
            let mut detector = self.detector.lock();
            detector.lose(group);
            detector.hosts()
        };
        hosts.iter().for_each(|host| self.beat(host));
    }

    /// Names the hosts that share a group with this one.
    pub fn want(&self, hosts: BTreeSet<HostName>) {
        self.detector.lock().want(hosts);
    }

    /// The incarnation of `host`, while the link to it is up.
    pub fn alive(&self, host: &HostName) -> Option<u64> {
        self.detector.lock().alive(host)
    }

    /// Whether `host` has lost the replica of late.
    pub fn has_lost(&self, host: &HostName, group: &GroupId) -> bool {
        self.detector.lock().has_lost(host, group)
    }

    /// Sends a beat now.
    pub(crate) fn beat(&self, host: &HostName) {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u8(BEAT);
        self.detector.lock().beat_for(host, Instant::now()).write(&mut w);
        // One that is not sent is missed at the other side, which is the point of it.
        let _ = self.transport.send(host, w.finish());
    }

    /// Acts on what the detector concluded. Its lock must not be held.
    pub(crate) fn judge(&self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            tracing::debug!(?verdict, "the failure detector");
            if let Verdict::Down { host, .. } = &verdict {
                self.forget_calls(host, "the host is held dead");
            }
            if let Some(judged) = self.judged.get().and_then(Weak::upgrade) {
                judged.judged(verdict);
            }
        }
    }
}

/// Sends the beats and looks who is silent, once per host.
pub async fn run(peers: Weak<Peers>, mut stop: wheelhouse_runtime::Stop) {
    while stop.or(tokio::time::sleep(liveness::BEAT)).await.is_some() {
        let Some(peers) = peers.upgrade() else { return };
        let (verdicts, hosts) = {
            let mut detector = peers.detector.lock();
            (detector.look(Instant::now()), detector.hosts())
        };
        peers.judge(verdicts);
        hosts.iter().for_each(|host| peers.beat(host));
    }
}
