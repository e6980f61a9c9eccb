//! Identifiers. Each is its own type, so that a host's name cannot be passed for a cluster's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The store's revision: one counter per cluster, raised by one for every transaction that changes something (etcd's meaning).
/// Zero means "none yet"; an empty store is at revision 1.
pub type Revision = u64;

/// The leadership under which a log entry was proposed: Raft's term.
pub type Term = u64;

/// A replica's number within its cluster. Never reused: a replaced replica's successor has a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u64);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A string that is not an identifier of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a {what}: {expected}")]
pub struct InvalidId {
    what: &'static str,
    value: String,
    expected: &'static str,
}

/// A cluster's id: `c-` and 10 characters of base32 (`a-z2-7`), or `system` for the control plane that the service itself runs on.
/// It is the first label of the cluster's server name, so it is a DNS label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterId(String);

impl ClusterId {
    pub const SYSTEM: &'static str = "system";
    const ALPHABET: &'static [u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

    pub fn system() -> Self {
        Self(Self::SYSTEM.to_owned())
    }

    /// The id that 50 bits of randomness name.
    pub fn from_random(bits: u64) -> Self {
        let mut id = String::with_capacity(12);
        id.push_str("c-");
        for i in 0..10 {
            let index = (bits >> (5 * i)) as usize & 31;
            id.push(char::from(Self::ALPHABET[index]));
        }
        Self(id)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_system(&self) -> bool {
        self.0 == Self::SYSTEM
    }
}

impl FromStr for ClusterId {
    type Err = InvalidId;

    fn from_str(s: &str) -> Result<Self, InvalidId> {
        let hosted = s.strip_prefix("c-").is_some_and(|rest| rest.len() == 10 && rest.bytes().all(|b| Self::ALPHABET.contains(&b)));
        if hosted || s == Self::SYSTEM {
            return Ok(Self(s.to_owned()));
        }
        Err(InvalidId { what: "cluster id", value: s.to_owned(), expected: "\"c-\" and 10 characters of a-z and 2-7" })
    }
}

impl TryFrom<String> for ClusterId {
    type Error = InvalidId;

    fn try_from(s: String) -> Result<Self, InvalidId> {
        s.parse()
    }
}

impl From<ClusterId> for String {
    fn from(id: ClusterId) -> Self {
        id.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host's name: a DNS-1123 label of at most 63 characters; also the name of its `Host` object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = InvalidId;

    fn from_str(s: &str) -> Result<Self, InvalidId> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let edge = |b: Option<&u8>| b.is_some_and(|b| *b != b'-');
        let bytes = s.as_bytes();
        if bytes.len() <= 63 && bytes.iter().copied().all(inner) && edge(bytes.first()) && edge(bytes.last()) {
            return Ok(Self(s.to_owned()));
        }
        Err(InvalidId { what: "host name", value: s.to_owned(), expected: "lower-case letters, digits and inner '-', at most 63" })
    }
}

impl TryFrom<String> for HostName {
    type Error = InvalidId;

    fn try_from(s: String) -> Result<Self, InvalidId> {
        s.parse()
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_parse_back() {
        for bits in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let id = ClusterId::from_random(bits);
            assert_eq!(id.as_str().parse::<ClusterId>(), Ok(id.clone()));
        }
    }

    #[test]
    fn foreign_ids_are_refused() {
        for s in ["", "c-", "c-ABCDEFGHIJ", "c-abcdefghi", "c-abcdefghi1", "System", "c-abcdefghijk"] {
            assert!(s.parse::<ClusterId>().is_err(), "{s}");
        }
        for s in ["", "-a", "a-", "A", "a.b", &"a".repeat(64)] {
            assert!(s.parse::<HostName>().is_err(), "{s}");
        }
    }
}
