//! What this host tells endpoints, and how.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use wheelhouse_base::routes::{BEAT, HostRoutes, KnownHost, ReplicaRoute};
use wheelhouse_base::{ClusterId, ReplicaId};

/// A burst of changes (a start, an election in many groups) goes out as one line.
const GATHER: Duration = Duration::from_millis(10);

/// A reader that takes nothing for so long is gone.
const WRITE_TIME: Duration = Duration::from_secs(5);

/// The state that streams follow. Clones share it.
#[derive(Clone)]
pub struct Routes(watch::Sender<HostRoutes>);

impl Routes {
    pub fn new(host: KnownHost, incarnation: String, hosts: Vec<KnownHost>) -> Self {
        Self(watch::Sender::new(HostRoutes { host, incarnation, draining: false, replicas: Vec::new(), hosts }))
    }

    /// Replaces the replicas; says nothing if nothing changed.
    pub fn set_replicas(&self, replicas: &BTreeMap<(ClusterId, ReplicaId), (bool, bool)>) {
        let of = |((cluster, replica), (ready, leader)): (&(ClusterId, ReplicaId), &(bool, bool))| ReplicaRoute {
            cluster: cluster.clone(),
            replica: *replica,
            ready: *ready,
            leader: *leader,
        };
        let fresh: Vec<ReplicaRoute> = replicas.iter().map(of).collect();
        self.0.send_if_modified(|routes| std::mem::replace(&mut routes.replicas, fresh.clone()) != fresh);
    }

    pub fn set_hosts(&self, hosts: Vec<KnownHost>) {
        self.0.send_if_modified(|routes| std::mem::replace(&mut routes.hosts, hosts.clone()) != hosts);
    }

    /// Adds a host, or brings its addresses up to date.
    pub fn learn(&self, host: KnownHost) -> Vec<KnownHost> {
        self.0.send_if_modified(|routes| {
            let before = routes.hosts.clone();
            routes.hosts.retain(|h| h.name != host.name);
            routes.hosts.push(host.clone());
            routes.hosts.sort_by(|a, b| a.name.cmp(&b.name));
            routes.hosts != before
        });
        self.hosts()
    }

    pub fn hosts(&self) -> Vec<KnownHost> {
        self.0.borrow().hosts.clone()
    }

    pub fn drain(&self) {
        self.0.send_if_modified(|routes| !std::mem::replace(&mut routes.draining, true));
    }

    /// Writes every state to one reader until it leaves.
    pub async fn stream(&self, mut to: impl AsyncWrite + AsyncRead + Unpin) -> io::Result<()> {
        let mut updates = self.0.subscribe();
        updates.mark_changed();
        loop {
            let line = match tokio::time::timeout(BEAT, updates.changed()).await {
                Err(_) => b"\n".to_vec(),
                Ok(Err(_)) => return Ok(()),
                Ok(Ok(())) => {
                    tokio::time::sleep(GATHER).await;
                    let mut line = serde_json::to_vec(&*updates.borrow_and_update())?;
                    line.push(b'\n');
                    line
                }
            };
            let write = async {
                to.write_all(&line).await?;
                to.flush().await
            };
            tokio::time::timeout(WRITE_TIME, write).await.map_err(|_| io::ErrorKind::TimedOut)??;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, BufReader};

    #[tokio::test]
    async fn readers_get_the_present_and_every_change() {
        let host = KnownHost { name: "a".parse().unwrap(), clients: "a:1".into(), peers: "a:2".into() };
        let routes = Routes::new(host.clone(), "1".into(), vec![host.clone()]);
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let writing = tokio::spawn({
            let routes = routes.clone();
            async move { routes.stream(ours).await }
        });
        let mut lines = BufReader::new(theirs).lines();
        let first: HostRoutes = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        assert_eq!((first.hosts, first.draining), (vec![host], false));
        routes.set_replicas(&BTreeMap::from([((ClusterId::system(), ReplicaId(1)), (true, false))]));
        routes.drain();
        let second: HostRoutes = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        assert!(second.draining && second.replicas[0].ready);
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "", "a beat when nothing changes");
        writing.abort();
    }
}
