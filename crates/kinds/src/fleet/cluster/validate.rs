//! What a cluster may be, and what of it may change.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use wheelhouse_meta::field::{FieldError, Path};

use super::{Cluster, DEVELOPMENT_ANNOTATION, Network, VERSIONS};
use crate::kind::Verdict;

/// Members may outnumber the replicas while one set replaces another.
const MAX_MEMBERS: usize = 10;

/// A node takes a /24 of the pod range, so at least one must fit; above /8 the range would hold other networks.
const POD_PREFIX: std::ops::RangeInclusive<u8> = 8..=23;

/// Upstream allocates at most 2^20 service addresses; a /28 holds DNS at .10.
const SERVICE_PREFIX: std::ops::RangeInclusive<u8> = 12..=28;

pub(super) fn create(cluster: &Cluster) -> Verdict {
    common(cluster)
}

pub(super) fn update(new: &Cluster, old: &Cluster) -> Verdict {
    let mut verdict = common(new);
    let spec = Path::new("spec");
    if new.spec.network != old.spec.network {
        verdict.errors.push(FieldError::forbidden(&spec.child("network"), "the network is set at creation and never changes"));
    }
    if new.spec.issuer != old.spec.issuer {
        verdict.errors.push(FieldError::immutable(&spec.child("issuer"), &new.spec.issuer));
    }
    if new.spec.last_replica_id < old.spec.last_replica_id {
        let path = spec.child("lastReplicaID");
        verdict.errors.push(FieldError::invalid(&path, new.spec.last_replica_id, "must not fall: replica ids are never reused"));
    }
    if new.is_system() && new.spec.suspended {
        verdict.errors.push(FieldError::forbidden(&spec.child("suspended"), "the system cluster cannot be suspended"));
    }
    let members = spec.child("members");
    for (i, member) in new.spec.members.iter().enumerate() {
        let before = old.spec.members.iter().find(|m| m.replica_id == member.replica_id);
        let at = members.index(i);
        match before {
            Some(before) if before.host != member.host => verdict.errors.push(FieldError::immutable(&at.child("host"), member.host.as_str())),
            None if member.replica_id.0 <= old.spec.last_replica_id => {
                verdict.errors.push(FieldError::invalid(&at.child("replicaID"), member.replica_id.0, "replica ids are never reused"));
            }
            _ => {}
        }
    }
    verdict
}

fn common(cluster: &Cluster) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = Path::new("spec");
    let development = cluster.annotation(DEVELOPMENT_ANNOTATION) == Some("true");
    let supported: &[&str] = if development { &["1", "3", "5"] } else { &["3", "5"] };
    if !supported.contains(&cluster.spec.replicas.to_string().as_str()) {
        verdict.errors.push(FieldError::not_supported(&spec.child("replicas"), cluster.spec.replicas, supported));
    }
    if !VERSIONS.contains(&cluster.spec.version.as_str()) {
        verdict.errors.push(FieldError::not_supported(&spec.child("version"), &cluster.spec.version, VERSIONS));
    }
    members(cluster, &spec, &mut verdict);
    network(&cluster.spec.network, &spec.child("network"), &mut verdict);
    let issuer = spec.child("issuer");
    if !cluster.spec.issuer.starts_with("https://") || cluster.spec.issuer.contains(['?', '#']) {
        verdict.errors.push(FieldError::invalid(&issuer, &cluster.spec.issuer, "must be an https URL without query or fragment"));
    }
    verdict
}

fn members(cluster: &Cluster, spec: &Path<'_>, verdict: &mut Verdict) {
    let path = spec.child("members");
    let given = &cluster.spec.members;
    if given.len() > MAX_MEMBERS {
        verdict.errors.push(FieldError::too_many(&path, given.len(), MAX_MEMBERS));
    }
    let (mut ids, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for (i, member) in given.iter().enumerate() {
        let at = path.index(i);
        let id = at.child("replicaID");
        if member.replica_id.0 == 0 || member.replica_id.0 > cluster.spec.last_replica_id {
            verdict.errors.push(FieldError::invalid(&id, member.replica_id.0, "must be between 1 and lastReplicaID"));
        }
        if !ids.insert(member.replica_id) {
            verdict.errors.push(FieldError::duplicate(&id, member.replica_id.0));
        }
        if !hosts.insert(&member.host) {
            verdict.errors.push(FieldError::duplicate(&at.child("host"), member.host.as_str()));
        }
    }
}

fn network(network: &Network, path: &Path<'_>, verdict: &mut Verdict) {
    let pods = cidr(&network.pod_cidr, &path.child("podCIDR"), POD_PREFIX, verdict);
    let services = cidr(&network.service_cidr, &path.child("serviceCIDR"), SERVICE_PREFIX, verdict);
    if let (Some(pods), Some(services)) = (pods, services)
        && pods.overlaps(services)
    {
        verdict.errors.push(FieldError::invalid(&path.child("serviceCIDR"), &network.service_cidr, "must not overlap podCIDR"));
    }
    let at = path.child("dns");
    match (network.dns.parse::<Ipv4Addr>(), services) {
        (Err(_), _) => verdict.errors.push(FieldError::invalid(&at, &network.dns, "must be an IPv4 address")),
        (Ok(dns), Some(services)) if !services.is_free(dns) => {
            let detail = "must lie within serviceCIDR and be neither its first two addresses nor its last";
            verdict.errors.push(FieldError::invalid(&at, &network.dns, detail));
        }
        _ => {}
    }
}

#[derive(Clone, Copy)]
struct Cidr {
    first: u32,
    last: u32,
}

impl Cidr {
    fn overlaps(self, other: Cidr) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Not the network address, not the `kubernetes` service's (the first), not the broadcast address.
    fn is_free(self, address: Ipv4Addr) -> bool {
        let at = u32::from(address);
        at > self.first + 1 && at < self.last
    }
}

fn cidr(text: &str, path: &Path<'_>, prefixes: std::ops::RangeInclusive<u8>, verdict: &mut Verdict) -> Option<Cidr> {
    let parsed = text.split_once('/').and_then(|(address, prefix)| Some((address.parse::<Ipv4Addr>().ok()?, prefix.parse::<u8>().ok()?)));
    let Some((address, prefix)) = parsed else {
        verdict.errors.push(FieldError::invalid(path, text, "must be an IPv4 range such as 10.96.0.0/16"));
        return None;
    };
    if !prefixes.contains(&prefix) {
        let detail = format!("must have a prefix between /{} and /{}", prefixes.start(), prefixes.end());
        verdict.errors.push(FieldError::invalid(path, text, detail));
        return None;
    }
    let size_mask = u32::MAX >> prefix;
    let first = u32::from(address);
    if first & size_mask != 0 {
        verdict.errors.push(FieldError::invalid(path, text, "must not have host bits set"));
        return None;
    }
    Some(Cidr { first, last: first | size_mask })
}

#[cfg(test)]
mod tests {
    use super::super::{ClusterKind, ClusterSpec, Member};
    use super::*;
    use crate::fleet::Object;
    use crate::kind::TypedKind;
    use wheelhouse_base::ReplicaId;

    fn cluster() -> Cluster {
        let mut cluster: Cluster = Object::new("Cluster", "tenant-a", "demo", ClusterSpec::default());
        ClusterKind::default(&mut cluster);
        cluster
    }

    fn fields(verdict: &Verdict) -> Vec<&str> {
        verdict.errors.iter().map(|e| e.field.as_str()).collect()
    }

    fn member(id: u64, host: &str) -> Member {
        Member { replica_id: ReplicaId(id), host: host.parse().unwrap() }
    }

    #[test]
    fn one_replica_needs_the_annotation() {
        let mut cluster = cluster();
        cluster.spec.replicas = 1;
        assert_eq!(fields(&create(&cluster)), ["spec.replicas"]);
        cluster.metadata.annotations = Some([(DEVELOPMENT_ANNOTATION.to_owned(), "true".to_owned())].into());
        assert!(create(&cluster).errors.is_empty());
        cluster.spec.replicas = 4;
        assert_eq!(fields(&create(&cluster)), ["spec.replicas"]);
    }

    #[test]
    fn networks_are_canonical_disjoint_and_hold_their_dns() {
        let cases = [
            ("10.244.0.0/16", "10.96.0.0/16", "10.96.0.10", vec![]),
            ("10.244.0.1/16", "10.96.0.0/16", "10.96.0.10", vec!["spec.network.podCIDR"]),
            ("10.0.0.0/8", "10.96.0.0/16", "10.96.0.10", vec!["spec.network.serviceCIDR"]),
            ("10.244.0.0/16", "10.96.0.0/16", "10.97.0.10", vec!["spec.network.dns"]),
            ("10.244.0.0/16", "10.96.0.0/16", "10.96.0.1", vec!["spec.network.dns"]),
            ("10.244.0.0/24", "10.96.0.0/29", "x", vec!["spec.network.podCIDR", "spec.network.serviceCIDR", "spec.network.dns"]),
        ];
        for (pods, services, dns, expected) in cases {
            let mut cluster = cluster();
            cluster.spec.network = Network { pod_cidr: pods.into(), service_cidr: services.into(), dns: dns.into() };
            assert_eq!(fields(&create(&cluster)), expected, "{pods} {services} {dns}");
        }
    }

    #[test]
    fn the_network_and_the_issuer_never_change() {
        let old = cluster();
        let mut new = old.clone();
        new.spec.network.dns = "10.96.0.11".into();
        new.spec.issuer = "https://other".into();
        assert_eq!(fields(&update(&new, &old)), ["spec.network", "spec.issuer"]);
    }

    #[test]
    fn replica_ids_are_never_reused() {
        let mut old = cluster();
        old.spec.members = vec![member(1, "a"), member(3, "c")];
        old.spec.last_replica_id = 3;
        let mut new = old.clone();
        new.spec.members = vec![member(1, "b"), member(2, "c")];
        assert_eq!(fields(&update(&new, &old)), ["spec.members[0].host", "spec.members[1].replicaID"]);
        new.spec.members = vec![member(1, "a"), member(4, "d")];
        assert_eq!(fields(&update(&new, &old)), ["spec.members[1].replicaID"], "lastReplicaID must rise with it");
        new.spec.last_replica_id = 4;
        assert!(update(&new, &old).errors.is_empty());
        new.spec.members.push(member(4, "d"));
        assert_eq!(fields(&update(&new, &old)), ["spec.members[2].replicaID", "spec.members[2].host"]);
    }
}
