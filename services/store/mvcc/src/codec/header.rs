//! What a state holds beside its records and history.

use wheelhouse_base::Revision;

use super::{CodecError, begin, open};
use crate::snapshot::Snapshot;

/// Everything about a state that its records do not say. The keys of a lease are not here: each record names its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub revision: Revision,
    pub compacted: Revision,
    /// Grants and renewals of leases so far.
    pub lease_clock: u64,
    /// Id, time to live in seconds, and which grant or renewal was the last.
    pub leases: Vec<(i64, i64, u64)>,
}

impl Snapshot {
    pub fn header(&self) -> Header {
        let leases = self.leases().map(|(id, lease)| (id, lease.ttl_secs, lease.renewals)).collect();
        Header { revision: self.revision(), compacted: self.compacted(), lease_clock: self.lease_clock, leases }
    }
}

pub fn encode_header(header: &Header, out: &mut Vec<u8>) {
    let mut w = begin(out);
    w.unsigned(header.revision);
    w.unsigned(header.compacted);
    w.unsigned(header.lease_clock);
    w.len(header.leases.len());
    for (id, ttl_secs, renewals) in &header.leases {
        w.signed(*id);
        w.signed(*ttl_secs);
        w.unsigned(*renewals);
    }
}

pub fn decode_header(bytes: &[u8]) -> Result<Header, CodecError> {
    let mut r = open(bytes)?;
    let (revision, compacted, lease_clock) = (r.unsigned()?, r.unsigned()?, r.unsigned()?);
    let leases = (0..r.len()?).map(|_| Ok((r.signed()?, r.signed()?, r.unsigned()?))).collect::<Result<_, CodecError>>()?;
    r.end()?;
    Ok(Header { revision, compacted, lease_clock, leases })
}
