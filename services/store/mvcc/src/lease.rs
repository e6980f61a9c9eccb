//! Leases: a time to live that keys can be attached to. Time itself is outside; the state knows only who is attached.

use bytes::Bytes;
use imbl::OrdSet;

/// One lease as every replica knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    pub ttl_secs: i64,
    /// Which grant or renewal was its last, counted over all leases of the store: never the same twice, not even when an id comes back. A
    /// leader that sees it change starts the lease's time anew.
    pub renewals: u64,
    /// Live keys that go with it.
    pub keys: OrdSet<Bytes>,
}
