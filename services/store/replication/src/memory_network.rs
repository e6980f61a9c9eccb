//! Hosts connected in memory, for tests and simulation: delays, cuts in one direction or both, hosts that are down.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wheelhouse_base::HostName;

use crate::transport::{FrameReceiver, NotSent, PeerTransport};

/// Frames under way between two hosts at most.
const UNDER_WAY: usize = 16 * 1024;

/// A network of hosts. Cloning it shares it.
#[derive(Clone, Default)]
pub struct MemoryNetwork(Arc<Mutex<Wires>>);

#[derive(Default)]
struct Wires {
    receivers: BTreeMap<HostName, Weak<dyn FrameReceiver>>,
    wires: HashMap<(HostName, HostName), mpsc::Sender<(Instant, Bytes)>>,
    cut: HashSet<(HostName, HostName)>,
    delay: Duration,
}

/// One host's end of a [`MemoryNetwork`].
pub struct MemoryTransport {
    network: MemoryNetwork,
    host: HostName,
}

impl MemoryNetwork {
    pub fn host(&self, host: HostName) -> Arc<MemoryTransport> {
        Arc::new(MemoryTransport { network: self.clone(), host })
    }

    /// How long each frame takes from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.0.lock().delay = delay;
    }

    /// Loses every frame from `from` to `to`, in this direction only, until [`mend`](Self::mend).
    pub fn cut(&self, from: &HostName, to: &HostName) {
        self.0.lock().cut.insert((from.clone(), to.clone()));
    }

    pub fn mend(&self, from: &HostName, to: &HostName) {
        self.0.lock().cut.remove(&(from.clone(), to.clone()));
    }

    pub fn mend_all(&self) {
        self.0.lock().cut.clear();
    }

    /// The host's process is gone: nothing reaches it, and whoever waits for it learns so.
    pub fn down(&self, host: &HostName) {
        let others: Vec<_> = {
            let mut wires = self.0.lock();
            wires.receivers.remove(host);
            wires.receivers.values().filter_map(Weak::upgrade).collect()
        };
        for other in others {
            other.disconnected(host);
            other.refused(host);
        }
    }

    fn wire(&self, from: &HostName, to: &HostName) -> mpsc::Sender<(Instant, Bytes)> {
        let mut wires = self.0.lock();
        let key = (from.clone(), to.clone());
        if let Some(wire) = wires.wires.get(&key).filter(|wire| !wire.is_closed()) {
            return wire.clone();
        }
        let (tx, rx) = mpsc::channel(UNDER_WAY);
        // The wire ends with the network.
        tokio::spawn(deliver(Arc::downgrade(&self.0), key.clone(), rx));
        wires.wires.insert(key, tx.clone());
        tx
    }
}

async fn deliver(network: Weak<Mutex<Wires>>, (from, to): (HostName, HostName), mut frames: mpsc::Receiver<(Instant, Bytes)>) {
    while let Some((due, frame)) = frames.recv().await {
        tokio::time::sleep_until(due).await;
        let Some(network) = network.upgrade() else { return };
        let receiver = {
            let wires = network.lock();
            let cut = wires.cut.contains(&(from.clone(), to.clone()));
            if cut { None } else { wires.receivers.get(&to).and_then(Weak::upgrade) }
        };
        if let Some(receiver) = receiver {
            receiver.received(&from, frame);
        }
    }
}

impl PeerTransport for MemoryTransport {
    fn attach(&self, receiver: Weak<dyn FrameReceiver>) {
        self.network.0.lock().receivers.insert(self.host.clone(), receiver);
    }

    fn send(&self, to: &HostName, frame: Bytes) -> Result<(), NotSent> {
        let due = {
            let wires = self.network.0.lock();
            // A process that was killed still runs its tasks here, but its frames go nowhere.
            if !wires.receivers.contains_key(to) || !wires.receivers.contains_key(&self.host) {
                return Err(NotSent);
            }
            Instant::now() + wires.delay
        };
        self.network.wire(&self.host, to).try_send((due, frame)).map_err(|_| NotSent)
    }
}
