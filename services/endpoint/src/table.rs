//! Which replica a connection may go to. Pure: host reports in, candidates out.
//!
//! A host's last report stays when its stream ends, marked stale: with every stream down (a restarted endpoint, a lost control network) traffic still
//! flows from what was last known. Fresh and ready replicas come first, then stale ones, then those that said they are not ready: the last
//! resort costs one failed connection and may be right.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wheelhouse_base::routes::{HostRoutes, KnownHost};
use wheelhouse_base::{ClusterId, HostName, ReplicaId};

/// What a server name asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub cluster: ClusterId,
    /// `None`: any replica.
    pub replica: Option<ReplicaId>,
}

impl Route {
    /// `<cluster>.<base>`, `r<replica>.<cluster>.<base>` or `etcd.<cluster>.<base>`; `None` for any other name.
    pub fn of(server_name: &str, base_domain: &str) -> Option<Self> {
        let labels = server_name.strip_suffix(base_domain)?.strip_suffix('.')?;
        match labels.split_once('.') {
            None => Some(Self { cluster: labels.parse().ok()?, replica: None }),
            // Any replica answers for the store; the host tells the two services apart by the same name.
            Some(("etcd", cluster)) => Some(Self { cluster: cluster.parse().ok()?, replica: None }),
            Some((replica, cluster)) => {
                let number = replica.strip_prefix('r').filter(|n| !n.starts_with(['0', '+']))?;
                Some(Self { cluster: cluster.parse().ok()?, replica: Some(ReplicaId(number.parse().ok()?)) })
            }
        }
    }
}

/// A replica to try, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub host: HostName,
    pub replica: ReplicaId,
    /// The host's clients address.
    pub address: String,
}

/// How good a candidate is; the lower the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Ready,
    /// Ready when its host was last heard, which is not now.
    Stale,
    NotReady,
}

/// Everything that hosts have said.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    reports: BTreeMap<HostName, Report>,
    /// Hosts that others know, with or without a report of their own.
    hosts: BTreeMap<HostName, KnownHost>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Report {
    routes: HostRoutes,
    /// Whether the host's stream is up; never so in a table read from disk.
    #[serde(skip)]
    fresh: bool,
}

impl Table {
    /// Takes a host's word. Says whether what is worth keeping on disk changed.
    pub fn report(&mut self, routes: HostRoutes) -> bool {
        for known in routes.hosts.iter().chain([&routes.host]) {
            self.hosts.insert(known.name.clone(), known.clone());
        }
        // A host that everybody else has forgotten is forgotten here too, unless it speaks for itself.
        let said: Vec<&HostName> = routes.hosts.iter().map(|h| &h.name).collect();
        if !said.is_empty() {
            let reports = &self.reports;
            self.hosts.retain(|name, _| said.contains(&name) || *name == routes.host.name || reports.get(name).is_some_and(|r| r.fresh));
        }
        let name = routes.host.name.clone();
        let old = self.reports.insert(name, Report { routes: routes.clone(), fresh: true });
        let hosts = &self.hosts;
        self.reports.retain(|name, _| hosts.contains_key(name));
        old.is_none_or(|old| old.routes != routes)
    }

    /// The host's stream ended.
    pub fn lost(&mut self, host: &HostName) {
        if let Some(report) = self.reports.get_mut(host) {
            report.fresh = false;
        }
    }

    /// Hosts to hold a stream to.
    pub fn hosts(&self) -> impl Iterator<Item = &KnownHost> {
        self.hosts.values()
    }

    /// Hosts whose stream is up.
    pub fn fresh_hosts(&self) -> usize {
        self.reports.values().filter(|r| r.fresh).count()
    }

    /// Whether any host has the cluster.
    pub fn knows(&self, cluster: &ClusterId) -> bool {
        self.replicas(cluster).next().is_some()
    }

    fn replicas<'a>(&'a self, cluster: &'a ClusterId) -> impl Iterator<Item = (Standing, Candidate)> + 'a {
        self.reports.values().flat_map(move |report| {
            report.routes.replicas.iter().filter(move |r| r.cluster == *cluster).map(move |replica| {
                let standing = match (replica.ready && !report.routes.draining, report.fresh) {
                    (true, true) => Standing::Ready,
                    (true, false) => Standing::Stale,
                    (false, _) => Standing::NotReady,
                };
                let host = &report.routes.host;
                (standing, Candidate { host: host.name.clone(), replica: replica.replica, address: host.clients.clone() })
            })
        })
    }

    /// Replicas to try in order. `load` says how many connections a host has from here; `ejected` whether connecting to it failed just now.
    /// `turn` shifts equals, so that they take turns.
    pub fn candidates(&self, route: &Route, load: impl Fn(&HostName) -> usize, ejected: impl Fn(&HostName) -> bool, turn: usize) -> Vec<Candidate> {
        let wanted = |c: &Candidate| route.replica.is_none_or(|id| id == c.replica);
        let mut found: Vec<(Standing, Candidate)> = self.replicas(&route.cluster).filter(|(_, c)| wanted(c)).collect();
        if !found.is_empty() {
            let shift = turn % found.len();
            found.rotate_left(shift);
        }
        // The sort is stable, so equals keep their turn.
        found.sort_by_key(|(standing, c)| (ejected(&c.host), *standing, load(&c.host)));
        found.into_iter().map(|(_, candidate)| candidate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_base::routes::ReplicaRoute;

    const CLUSTER: &str = "c-aaaaaaaaaa";

    fn host(name: &str) -> KnownHost {
        KnownHost { name: name.parse().unwrap(), clients: format!("{name}:6444"), peers: format!("{name}:6445") }
    }

    fn report(name: &str, replica: u64, ready: bool) -> HostRoutes {
        let replicas = vec![ReplicaRoute { cluster: CLUSTER.parse().unwrap(), replica: ReplicaId(replica), ready, leader: false }];
        HostRoutes { host: host(name), incarnation: "1".into(), draining: false, replicas, hosts: vec![host("a"), host("b"), host("c")] }
    }

    fn table() -> Table {
        let mut table = Table::default();
        for (name, id) in [("a", 1), ("b", 2), ("c", 3)] {
            table.report(report(name, id, true));
        }
        table
    }

    fn any() -> Route {
        Route { cluster: CLUSTER.parse().unwrap(), replica: None }
    }

    fn order(table: &Table, ejected: &str, turn: usize) -> Vec<String> {
        let candidates = table.candidates(&any(), |_| 0, |h| h.as_str() == ejected, turn);
        candidates.iter().map(|c| c.host.to_string()).collect()
    }

    #[test]
    fn names_are_clusters_and_replicas() {
        let base = "wheelhouse.internal";
        assert_eq!(Route::of("c-aaaaaaaaaa.wheelhouse.internal", base), Some(any()));
        assert_eq!(Route::of("system.wheelhouse.internal", base).map(|r| r.cluster), Some(ClusterId::system()));
        assert_eq!(Route::of("etcd.c-aaaaaaaaaa.wheelhouse.internal", base), Some(any()));
        assert_eq!(Route::of("r12.c-aaaaaaaaaa.wheelhouse.internal", base).and_then(|r| r.replica), Some(ReplicaId(12)));
        for bad in [
            "wheelhouse.internal",
            "x.wheelhouse.internal",
            "r0.c-aaaaaaaaaa.wheelhouse.internal",
            "r+1.c-aaaaaaaaaa.wheelhouse.internal",
            "c-aaaaaaaaaawheelhouse.internal",
            "a.r1.c-aaaaaaaaaa.wheelhouse.internal",
            "c-aaaaaaaaaa.other",
        ] {
            assert_eq!(Route::of(bad, base), None, "{bad}");
        }
    }

    #[test]
    fn equals_take_turns_and_the_loaded_wait() {
        let table = table();
        assert_eq!([order(&table, "", 0)[0].as_str(), &order(&table, "", 1)[0], &order(&table, "", 2)[0]], ["a", "b", "c"]);
        let candidates = table.candidates(&any(), |h| if h.as_str() == "a" { 5 } else { 1 }, |_| false, 0);
        assert_eq!(candidates[2].host.as_str(), "a");
    }

    #[test]
    fn ready_before_stale_before_not_ready_before_ejected() {
        let mut table = table();
        table.lost(&"a".parse().unwrap());
        table.report(report("b", 2, false));
        assert_eq!(order(&table, "", 0), ["c", "a", "b"]);
        assert_eq!(order(&table, "c", 0), ["a", "b", "c"]);
    }

    #[test]
    fn a_draining_host_is_a_last_resort() {
        let mut table = table();
        table.report(HostRoutes { draining: true, ..report("a", 1, true) });
        assert_eq!(order(&table, "", 0), ["b", "c", "a"]);
    }

    #[test]
    fn a_replicas_own_name_leads_to_it_alone() {
        let route = Route { replica: Some(ReplicaId(3)), ..any() };
        let candidates = table().candidates(&route, |_| 0, |_| false, 0);
        assert_eq!(candidates.iter().map(|c| c.host.as_str()).collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn forgotten_hosts_leave_and_speaking_ones_stay() {
        let mut table = table();
        table.lost(&"c".parse().unwrap());
        let two = HostRoutes { hosts: vec![host("a")], ..report("a", 1, true) };
        assert!(table.report(two.clone()));
        assert_eq!(table.hosts().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["a", "b"], "b speaks for itself");
        assert_eq!(order(&table, "", 0), ["a", "b"]);
        assert!(!table.report(two), "nothing new");
    }

    #[test]
    fn a_table_from_disk_is_stale() {
        let text = serde_json::to_string(&table()).unwrap();
        let mut back: Table = serde_json::from_str(&text).unwrap();
        assert_eq!((back.fresh_hosts(), order(&back, "", 0).len()), (0, 3));
        back.report(report("c", 3, true));
        assert_eq!(order(&back, "", 0)[0], "c");
    }
}
