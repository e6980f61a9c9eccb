//! Which replica a piece of the disk belongs to, and how its keys begin.

use std::fmt;

use wheelhouse_base::{ClusterId, ReplicaId};

/// One replica of one cluster: the owner of a key range on a host's disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    pub cluster: ClusterId,
    pub replica: ReplicaId,
}

impl GroupId {
    pub fn new(cluster: ClusterId, replica: ReplicaId) -> Self {
        Self { cluster, replica }
    }

    /// The first bytes of every key of this replica: the id's length, the id, and the replica big-endian. No prefix begins another.
    pub(crate) fn prefix(&self) -> Vec<u8> {
        let id = self.cluster.as_str().as_bytes();
        let mut prefix = Vec::with_capacity(1 + id.len() + 8);
        prefix.push(u8::try_from(id.len()).expect("a cluster id has at most 12 characters"));
        prefix.extend_from_slice(id);
        prefix.extend_from_slice(&self.replica.0.to_be_bytes());
        prefix
    }

    /// The replica whose prefix `key` begins with.
    pub(crate) fn of_key(key: &[u8]) -> Option<Self> {
        let length = usize::from(*key.first()?);
        let cluster = std::str::from_utf8(key.get(1..1 + length)?).ok()?.parse().ok()?;
        let replica = key.get(1 + length..9 + length)?.try_into().ok()?;
        Some(Self { cluster, replica: ReplicaId(u64::from_be_bytes(replica)) })
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/r{}", self.cluster, self.replica)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_names_its_replica_and_begins_no_other() {
        let groups = [
            GroupId::new(ClusterId::system(), ReplicaId(0)),
            GroupId::new(ClusterId::system(), ReplicaId(1)),
            GroupId::new(ClusterId::from_random(7), ReplicaId(1)),
            GroupId::new(ClusterId::from_random(7), ReplicaId(256)),
        ];
        for a in &groups {
            assert_eq!(GroupId::of_key(&a.prefix()), Some(a.clone()));
            for b in groups.iter().filter(|b| *b != a) {
                assert!(!b.prefix().starts_with(&a.prefix()));
            }
        }
    }
}
