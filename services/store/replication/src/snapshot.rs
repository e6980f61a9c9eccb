//! A whole state from one replica to another, in parts.
//!
//! ```text
//! sender                                            receiver
//! begin: vote, meta, header           -->           opens a generation beside its state
//! part: records in key order ...      -->           seals them to disk, keeps them decoded
//! part: history, newest first ...     -->
//! end                                 -->           builds the state, switches to it by one write
//! ```
//!
//! The sender holds an immutable root and encodes as it goes; neither side ever holds the state as one buffer. The retained history always
//! goes along: a replica with less history than the others would answer a transaction that reads the past differently, and so differ from them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wheelhouse_base::HostName;
use wheelhouse_mvcc::codec::{self, CodecError, Header, StoredBatch};
use wheelhouse_mvcc::{KeyValue, RestoreError, Snapshot, State};
use wheelhouse_rocks::codec::{DecodeError, Reader, Writer};
use wheelhouse_rocks::{DiskError, Generation, GroupDisk, StateWrite};

use crate::blocking::blocking;
use crate::encode;
use crate::peers::{CallError, Operation, Peers, Route};
use crate::raft_types::{SnapshotMeta, Vote};

/// One part's size: large enough to keep a link busy, small enough that heartbeats on the same connection are not held up.
const PART_BYTES: usize = 256 << 10;

/// A part takes a write to disk at the receiver, without a sync.
const PART_TIMEOUT: Duration = Duration::from_secs(10);

/// The end takes building the state: seconds for millions of records.
const END_TIMEOUT: Duration = Duration::from_secs(60);

const RECORD: u8 = 1;
const BATCH: u8 = 2;

#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the receiver's answer: {0}")]
    Answer(#[from] DecodeError),
    #[error("the receiver failed: {0}")]
    Failed(String),
}

/// Sends `root` and answers with the receiver's vote.
pub async fn send(peers: &Peers, host: &HostName, route: &Route, vote: &Vote, meta: &SnapshotMeta, root: &Snapshot) -> Result<Vote, SendError> {
    let mut w = Writer::default();
    encode::write_vote(&mut w, vote);
    encode::write_snapshot_meta(&mut w, meta);
    let mut header = Vec::new();
    codec::encode_header(&root.header(), &mut header);
    w.bytes(&header);
    let session = match read_answer(peers.call(host, route, Operation::SnapshotBegin, &w.0, PART_TIMEOUT).await?)? {
        Answer::Go(session) => session,
        Answer::Vote(vote) => return Ok(vote),
        Answer::Failed(reason) => return Err(SendError::Failed(reason)),
    };
    let mut part = Part::new(session);
    for kv in root.range(b"", None) {
        codec::encode_record(kv, &mut part.item);
        part.add(RECORD);
        if part.is_full() {
            part.send(peers, host, route).await?;
        }
    }
    // Newest first, as the receiver undoes them.
    let since = root.history_start().saturating_sub(1);
    let history: Vec<_> = root.history_since(since).map(|batches| batches.cloned().collect()).unwrap_or_default();
    for batch in history.iter().rev() {
        codec::encode_batch(batch, &mut part.item);
        part.add(BATCH);
        if part.is_full() {
            part.send(peers, host, route).await?;
        }
    }
    part.send(peers, host, route).await?;
    let mut w = Writer::default();
    w.u64(session);
    match read_answer(peers.call(host, route, Operation::SnapshotEnd, &w.0, END_TIMEOUT).await?)? {
        Answer::Vote(vote) => Ok(vote),
        Answer::Failed(reason) => Err(SendError::Failed(reason)),
        Answer::Go(_) => Err(SendError::Answer(DecodeError::Invalid("no vote at the end"))),
    }
}

struct Part {
    session: u64,
    number: u64,
    body: Writer,
    item: Vec<u8>,
}

impl Part {
    fn new(session: u64) -> Self {
        Self { session, number: 0, body: Writer::default(), item: Vec::new() }
    }

    fn add(&mut self, kind: u8) {
        self.body.u8(kind);
        self.body.bytes(&self.item);
        self.item.clear();
    }

    fn is_full(&self) -> bool {
        self.body.len() >= PART_BYTES
    }

    async fn send(&mut self, peers: &Peers, host: &HostName, route: &Route) -> Result<(), SendError> {
        let mut w = Writer::with_capacity(self.body.len() + 16);
        w.u64(self.session);
        w.u64(self.number);
        w.0.append(&mut self.body.0);
        self.number += 1;
        match read_answer(peers.call(host, route, Operation::SnapshotPart, &w.0, PART_TIMEOUT).await?)? {
            Answer::Go(_) => Ok(()),
            Answer::Failed(reason) => Err(SendError::Failed(reason)),
            Answer::Vote(_) => Err(SendError::Answer(DecodeError::Invalid("a vote in the middle"))),
        }
    }
}

/// What the receiver answers to each step.
pub enum Answer {
    Go(u64),
    /// The receiver's vote: its answer to the end, or to a beginning under an outdated vote.
    Vote(Vote),
    Failed(String),
}

impl Answer {
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::default();
        match self {
            Self::Go(session) => {
                w.u8(0);
                w.u64(*session);
            }
            Self::Vote(vote) => {
                w.u8(1);
                encode::write_vote(&mut w, vote);
            }
            Self::Failed(reason) => {
                w.u8(2);
                w.bytes(reason.as_bytes());
            }
        }
        w.finish()
    }
}

fn read_answer(bytes: Bytes) -> Result<Answer, DecodeError> {
    let mut r = Reader::new(bytes);
    match r.u8()? {
        0 => Ok(Answer::Go(r.u64()?)),
        1 => Ok(Answer::Vote(encode::read_vote(&mut r)?)),
        2 => Ok(Answer::Failed(String::from_utf8_lossy(&r.bytes()?).into_owned())),
        other => Err(DecodeError::Unknown { what: "answer to a snapshot", value: u64::from(other) }),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error("part: {0}")]
    Decode(#[from] DecodeError),
    #[error("part: {0}")]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("another snapshot has begun")]
    Superseded,
    #[error("part {found} came where {wanted} was due")]
    OutOfOrder { found: u64, wanted: u64 },
}

/// A snapshot that arrives. Dropping it before [`finish`](Self::finish) drops what is on disk.
pub struct Incoming {
    disk: Arc<GroupDisk>,
    generation: Option<Generation>,
    session: u64,
    next_part: u64,
    pub vote: Vote,
    pub meta: SnapshotMeta,
    header: Header,
    records: Vec<KeyValue>,
    history: Vec<StoredBatch>,
}

impl Incoming {
    pub fn begin(disk: Arc<GroupDisk>, session: u64, body: Bytes) -> Result<Self, ReceiveError> {
        let mut r = Reader::new(body);
        let vote = encode::read_vote(&mut r)?;
        let meta = encode::read_snapshot_meta(&mut r)?;
        let header = codec::decode_header(&r.bytes()?)?;
        r.finish()?;
        let generation = Some(disk.begin_generation());
        Ok(Self { disk, generation, session, next_part: 0, vote, meta, header, records: Vec::new(), history: Vec::new() })
    }

    /// Takes a part; resolves when the disk has it.
    pub async fn part(&mut self, body: Bytes) -> Result<(), ReceiveError> {
        let mut r = Reader::new(body);
        let (session, number) = (r.u64()?, r.u64()?);
        if session != self.session {
            return Err(ReceiveError::Superseded);
        }
        if number != self.next_part {
            return Err(ReceiveError::OutOfOrder { found: number, wanted: self.next_part });
        }
        self.next_part += 1;
        let mut write = StateWrite::default();
        while !r.is_empty() {
            let (kind, item) = (r.u8()?, r.bytes()?);
            match kind {
                RECORD => {
                    let kv = codec::decode_record(&item)?;
                    write.puts.push(Arc::new(kv.clone()));
                    self.records.push(kv);
                }
                BATCH => {
                    let batch = codec::decode_batch(&item)?;
                    write.encoded_batches.push((batch.revision, item));
                    self.history.push(batch);
                }
                other => return Err(DecodeError::Unknown { what: "item of a snapshot", value: u64::from(other) }.into()),
            }
        }
        self.fill(write).await
    }

    /// The whole state, and the generation that holds it on disk.
    pub async fn finish(mut self, body: Bytes) -> Result<(Generation, State, Vote, SnapshotMeta), ReceiveError> {
        if Reader::new(body).u64()? != self.session {
            return Err(ReceiveError::Superseded);
        }
        self.fill(StateWrite { header: Some(self.header.clone()), ..StateWrite::default() }).await?;
        let (records, history) = (std::mem::take(&mut self.records), std::mem::take(&mut self.history));
        let state = blocking(|| State::restore(&self.header, records, history))?;
        let generation = self.generation.take().expect("taken only here");
        Ok((generation, state, self.vote, self.meta.clone()))
    }

    async fn fill(&self, write: StateWrite) -> Result<(), ReceiveError> {
        let generation = self.generation.expect("taken only by finish");
        let (tx, rx) = tokio::sync::oneshot::channel();
        self.disk.fill_generation(generation, &write, Some(Box::new(move |result| drop(tx.send(result)))));
        Ok(rx.await.map_err(|_| DiskError::Closed)??)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(generation) = self.generation.take() {
            self.disk.abandon_generation(generation);
        }
    }
}
