//! The bytes of Raft's own types, on disk and between hosts.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::entry::EntryPayload;
use openraft::raft::{AppendEntriesResponse, TransferLeaderError};
use wheelhouse_rocks::codec::{DecodeError, Reader, Writer};

use crate::proposal::Proposal;
use crate::raft_types::{
    AppendRequest, AppendResponse, Entry, LogId, Membership, Peer, SnapshotMeta, StoredMembership, TransferRequest, TransferResponse, Vote,
    VoteRequest, VoteResponse, log_id, term_of,
};

pub fn write_log_id(w: &mut Writer, id: &LogId) {
    w.u64(term_of(id));
    w.u64(id.index());
}

pub fn read_log_id(r: &mut Reader) -> Result<LogId, DecodeError> {
    Ok(log_id(r.u64()?, r.u64()?))
}

pub fn write_log_id_option(w: &mut Writer, id: Option<&LogId>) {
    w.bool(id.is_some());
    if let Some(id) = id {
        write_log_id(w, id);
    }
}

pub fn read_log_id_option(r: &mut Reader) -> Result<Option<LogId>, DecodeError> {
    if r.bool()? { read_log_id(r).map(Some) } else { Ok(None) }
}

pub fn write_vote(w: &mut Writer, vote: &Vote) {
    w.u64(vote.leader_id.term);
    w.u64(vote.leader_id.voted_for);
    w.bool(vote.committed);
}

pub fn read_vote(r: &mut Reader) -> Result<Vote, DecodeError> {
    let (term, node) = (r.u64()?, r.u64()?);
    Ok(if r.bool()? { Vote::new_committed(term, node) } else { Vote::new(term, node) })
}

pub fn write_membership(w: &mut Writer, membership: &Membership) {
    let configs = membership.get_joint_config();
    w.u64(configs.len() as u64);
    for config in configs {
        w.u64(config.len() as u64);
        config.iter().for_each(|id| w.u64(*id));
    }
    let nodes: Vec<_> = membership.nodes().collect();
    w.u64(nodes.len() as u64);
    for (id, peer) in nodes {
        w.u64(*id);
        w.bytes(peer.host.as_str().as_bytes());
    }
}

pub fn read_membership(r: &mut Reader) -> Result<Membership, DecodeError> {
    let mut configs = Vec::new();
    for _ in 0..r.count()? {
        configs.push((0..r.count()?).map(|_| r.u64()).collect::<Result<BTreeSet<_>, _>>()?);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..r.count()? {
        let id = r.u64()?;
        let host = String::from_utf8(r.bytes()?.to_vec()).ok().and_then(|name| name.parse().ok());
        nodes.insert(id, Peer { host: host.ok_or(DecodeError::Invalid("a member's host is no host name"))? });
    }
    // An empty membership is what a replica holds before it hears of its group.
    if configs.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes).map_err(|_| DecodeError::Invalid("the membership contradicts itself"))
}

pub fn write_stored_membership(w: &mut Writer, stored: &StoredMembership) {
    write_log_id_option(w, stored.log_id().as_ref());
    write_membership(w, stored.membership());
}

pub fn read_stored_membership(r: &mut Reader) -> Result<StoredMembership, DecodeError> {
    let id = read_log_id_option(r)?;
    Ok(StoredMembership::new(id, read_membership(r)?))
}

pub fn write_snapshot_meta(w: &mut Writer, meta: &SnapshotMeta) {
    write_log_id_option(w, meta.last_log_id.as_ref());
    write_stored_membership(w, &meta.last_membership);
}

pub fn read_snapshot_meta(r: &mut Reader) -> Result<SnapshotMeta, DecodeError> {
    Ok(SnapshotMeta { last_log_id: read_log_id_option(r)?, last_membership: read_stored_membership(r)? })
}

const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// An entry without its index.
pub fn write_entry(w: &mut Writer, entry: &Entry) {
    w.u64(term_of(&entry.log_id));
    match &entry.payload {
        EntryPayload::Blank => w.u8(BLANK),
        EntryPayload::Normal(proposal) => {
            w.u8(NORMAL);
            w.bytes(proposal.sealed());
        }
        EntryPayload::Membership(membership) => {
            w.u8(MEMBERSHIP);
            write_membership(w, membership);
        }
    }
}

pub fn read_entry(index: u64, r: &mut Reader) -> Result<Entry, DecodeError> {
    let term = r.u64()?;
    let payload = match r.u8()? {
        BLANK => EntryPayload::Blank,
        // Copied out: a cached entry must not hold on to the buffer that it was received in.
        NORMAL => EntryPayload::Normal(Proposal::from_sealed(Bytes::copy_from_slice(&r.bytes()?))),
        MEMBERSHIP => EntryPayload::Membership(read_membership(r)?),
        other => return Err(DecodeError::Unknown { what: "kind of entry", value: u64::from(other) }),
    };
    Ok(Entry { log_id: log_id(term, index), payload })
}

/// About how many bytes an entry takes.
pub fn entry_size(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(proposal) => proposal.sealed().len() + 16,
        EntryPayload::Blank | EntryPayload::Membership(_) => 64,
    }
}

pub fn write_append_request(w: &mut Writer, request: &AppendRequest) {
    write_vote(w, &request.vote);
    write_log_id_option(w, request.prev_log_id.as_ref());
    write_log_id_option(w, request.leader_commit.as_ref());
    w.u64(request.entries.len() as u64);
    // Entries are consecutive, so one index serves all.
    if let Some(first) = request.entries.first() {
        w.u64(first.log_id.index);
    }
    request.entries.iter().for_each(|entry| write_entry(w, entry));
}

pub fn read_append_request(bytes: Bytes) -> Result<AppendRequest, DecodeError> {
    let mut r = Reader::new(bytes);
    let vote = read_vote(&mut r)?;
    let (prev_log_id, leader_commit) = (read_log_id_option(&mut r)?, read_log_id_option(&mut r)?);
    let count = r.count()? as u64;
    let first = if count > 0 { r.u64()? } else { 0 };
    let entries = (0..count).map(|i| read_entry(first.wrapping_add(i), &mut r)).collect::<Result<_, _>>()?;
    r.finish()?;
    Ok(AppendRequest { vote, prev_log_id, entries, leader_commit })
}

pub fn write_append_response(w: &mut Writer, response: &AppendResponse) {
    match response {
        AppendEntriesResponse::Success => w.u8(0),
        AppendEntriesResponse::PartialSuccess(upto) => {
            w.u8(1);
            write_log_id_option(w, upto.as_ref());
        }
        AppendEntriesResponse::Conflict => w.u8(2),
        AppendEntriesResponse::HigherVote(vote) => {
            w.u8(3);
            write_vote(w, vote);
        }
    }
}

pub fn read_append_response(bytes: Bytes) -> Result<AppendResponse, DecodeError> {
    let mut r = Reader::new(bytes);
    let response = match r.u8()? {
        0 => AppendEntriesResponse::Success,
        1 => AppendEntriesResponse::PartialSuccess(read_log_id_option(&mut r)?),
        2 => AppendEntriesResponse::Conflict,
        3 => AppendEntriesResponse::HigherVote(read_vote(&mut r)?),
        other => return Err(DecodeError::Unknown { what: "answer to an append", value: u64::from(other) }),
    };
    r.finish()?;
    Ok(response)
}

pub fn write_vote_request(w: &mut Writer, request: &VoteRequest) {
    write_vote(w, &request.vote);
    write_log_id_option(w, request.last_log_id.as_ref());
    w.bool(request.leadership_transfer);
}

pub fn read_vote_request(bytes: Bytes) -> Result<VoteRequest, DecodeError> {
    let mut r = Reader::new(bytes);
    let mut request = VoteRequest::new(read_vote(&mut r)?, read_log_id_option(&mut r)?);
    request.leadership_transfer = r.bool()?;
    r.finish()?;
    Ok(request)
}

pub fn write_vote_response(w: &mut Writer, response: &VoteResponse) {
    write_vote(w, &response.vote);
    w.bool(response.vote_granted);
    write_log_id_option(w, response.last_log_id.as_ref());
}

pub fn read_vote_response(bytes: Bytes) -> Result<VoteResponse, DecodeError> {
    let mut r = Reader::new(bytes);
    let (vote, granted) = (read_vote(&mut r)?, r.bool()?);
    let response = VoteResponse::new(vote, read_log_id_option(&mut r)?, granted);
    r.finish()?;
    Ok(response)
}

pub fn write_transfer_request(w: &mut Writer, request: &TransferRequest) {
    write_vote(w, request.from_leader());
    w.u64(*request.to_node_id());
    write_log_id_option(w, request.last_log_id());
}

pub fn read_transfer_request(bytes: Bytes) -> Result<TransferRequest, DecodeError> {
    let mut r = Reader::new(bytes);
    let request = TransferRequest::new(read_vote(&mut r)?, r.u64()?, read_log_id_option(&mut r)?);
    r.finish()?;
    Ok(request)
}

pub fn write_transfer_response(w: &mut Writer, response: &TransferResponse) {
    match response {
        Ok(()) => w.u8(0),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            w.u8(1);
            write_vote(w, expected);
            write_vote(w, actual);
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            w.u8(2);
            write_log_id_option(w, expected.as_ref());
            write_log_id_option(w, actual.as_ref());
        }
    }
}

pub fn read_transfer_response(bytes: Bytes) -> Result<TransferResponse, DecodeError> {
    let mut r = Reader::new(bytes);
    let response = match r.u8()? {
        0 => Ok(()),
        1 => Err(TransferLeaderError::VoteChanged { expected: read_vote(&mut r)?, actual: read_vote(&mut r)? }),
        2 => Err(TransferLeaderError::LogNotFlushed { expected: read_log_id_option(&mut r)?, actual: read_log_id_option(&mut r)? }),
        other => return Err(DecodeError::Unknown { what: "answer to a transfer", value: u64::from(other) }),
    };
    r.finish()?;
    Ok(response)
}
