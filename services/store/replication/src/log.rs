//! Raft's log over a [`GroupDisk`], with the newest entries in memory.
//!
//! The cache serves replication and applying without reading or decoding anything, and it is what makes an entry readable before the
//! writer has it on disk: entries leave it only once they are written.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use parking_lot::Mutex;
use wheelhouse_rocks::codec::{DecodeError, Reader, Writer};
use wheelhouse_rocks::{Boot, DiskError, Done, GroupDisk, OpenGroupError};

use crate::encode;
use crate::raft_types::{Entry, LogId, TypeConfig, Vote};

/// The cache's bounds per group. A follower further behind is served from disk. An idle group keeps at most this.
const CACHED_ENTRIES: usize = 1024;
const CACHED_BYTES: usize = 1 << 20;

/// One replication message's entries at most, so that a follower that catches up does not delay the heartbeats behind them.
const MESSAGE_BYTES: usize = 1 << 20;

/// Looks without a new entry after which the cache is given back: 30 s at the usual interval.
const QUIET_LOOKS: u32 = 60;

#[derive(Clone)]
pub struct Log {
    disk: Arc<GroupDisk>,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    /// Consecutive, ending with the newest entry.
    cache: VecDeque<Entry>,
    cached_bytes: usize,
    /// Entries up to this index are on disk.
    written: u64,
    last: Option<LogId>,
    purged: Option<LogId>,
    vote: Option<Vote>,
    committed: Option<LogId>,
    /// The newest entry at the last look, and how many looks saw the same.
    quiet: (Option<LogId>, u32),
}

impl Log {
    /// Takes up the log as it was found, or says why it cannot be all that was acknowledged.
    pub fn open(disk: Arc<GroupDisk>, boot: &Boot, applied: Option<&LogId>) -> Result<Self, OpenGroupError> {
        let broken = |what: &str| OpenGroupError::Lost(what.to_owned());
        let decoded = |what: &'static str| move |e: DecodeError| OpenGroupError::Lost(format!("{what}: {e}"));
        let vote = boot.vote.clone().map(|b| encode::read_vote(&mut Reader::new(b))).transpose().map_err(decoded("vote"))?;
        let committed = boot.committed.clone().map(|b| encode::read_log_id(&mut Reader::new(b))).transpose().map_err(decoded("committed"))?;
        let purged = boot.purged.clone().map(|(_, b)| encode::read_log_id(&mut Reader::new(b))).transpose().map_err(decoded("purged"))?;
        let mut last = purged;
        if let Some((_, newest)) = boot.log {
            let entries = disk.read_log(newest..=newest, usize::MAX)?;
            let (index, bytes) = entries.into_iter().next().ok_or_else(|| broken("the newest entry vanished"))?;
            last = Some(encode::read_entry(index, &mut Reader::new(bytes)).map_err(decoded("log"))?.log_id);
        }
        let held = last.as_ref().max(applied).map(LogId::index);
        if committed.as_ref().map(LogId::index) > held {
            return Err(broken("entries that were known to be committed are missing"));
        }
        if applied.is_some() && vote.is_none() {
            return Err(broken("there is a state but no vote"));
        }
        let written = last.as_ref().map_or(0, LogId::index);
        let inner = Inner { cache: VecDeque::new(), cached_bytes: 0, written, last, purged, vote, committed, quiet: (None, 0) };
        Ok(Self { disk, inner: Arc::new(Mutex::new(inner)) })
    }

    /// Called now and then: gives the cache back when nothing was appended for a while. Most clusters are idle most of the time.
    pub fn look(&self) {
        let mut inner = self.inner.lock();
        let looks = if inner.quiet.0 == inner.last { inner.quiet.1.saturating_add(1) } else { 0 };
        inner.quiet = (inner.last, looks);
        if looks == QUIET_LOOKS {
            inner.forget_cache();
        }
    }

    /// Gives back what is on disk.
    pub fn forget_cache(&self) {
        self.inner.lock().forget_cache();
    }

    /// The newest entry.
    pub fn last(&self) -> Option<LogId> {
        self.inner.lock().last
    }

    fn read(&self, from: u64, to: u64, max_bytes: usize) -> io::Result<Vec<Entry>> {
        let (from, disk_to, to) = {
            let inner = self.inner.lock();
            let first = inner.purged.as_ref().map_or(0, |id| id.index() + 1);
            let next = inner.last.as_ref().map_or(0, |id| id.index() + 1);
            let (from, to) = (from.max(first), to.min(next));
            if from >= to {
                return Ok(Vec::new());
            }
            let cached_from = inner.cache.front().map_or(next, |entry| entry.log_id.index);
            if from >= cached_from {
                return Ok(inner.cached(from, to, max_bytes));
            }
            (from, to.min(cached_from), to)
        };
        let read = self.disk.read_log(from..=disk_to - 1, max_bytes).map_err(io::Error::other)?;
        // What is absent at the beginning was never there or was purged meanwhile; the reader sees at which index the answer begins.
        let first = read.first().map_or(disk_to, |(index, _)| *index);
        let mut found = Vec::with_capacity(read.len());
        let mut bytes = 0;
        for (index, value) in read {
            require(index == first + found.len() as u64, first + found.len() as u64)?;
            bytes += value.len();
            let entry = encode::read_entry(index, &mut Reader::new(value));
            found.push(entry.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("log entry {index}: {e}")))?);
        }
        let next = first + found.len() as u64;
        if bytes >= max_bytes {
            return Ok(found);
        }
        require(next == disk_to, next)?;
        if next < to {
            found.extend(self.read(next, to, max_bytes - bytes)?);
        }
        Ok(found)
    }

    async fn wait(queue: impl FnOnce(Done)) -> io::Result<()> {
        let (tx, rx) = tokio::sync::oneshot::channel();
        queue(Box::new(move |result| drop(tx.send(result))));
        match rx.await {
            Ok(result) => result.map_err(io::Error::other),
            Err(_) => Err(io::Error::other(DiskError::Closed)),
        }
    }
}

fn require(held: bool, index: u64) -> io::Result<()> {
    if held { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidData, format!("log entry {index} is missing"))) }
}

impl Inner {
    fn cached(&self, from: u64, to: u64, max_bytes: usize) -> Vec<Entry> {
        let Some(front) = self.cache.front() else { return Vec::new() };
        let skip = (from - front.log_id.index) as usize;
        let mut bytes = 0;
        let mut found = Vec::with_capacity((to - from) as usize);
        for entry in self.cache.iter().skip(skip).take((to - from) as usize) {
            found.push(entry.clone());
            bytes += encode::entry_size(entry);
            if bytes >= max_bytes {
                break;
            }
        }
        found
    }

    fn evict(&mut self) {
        while self.cache.len() > CACHED_ENTRIES || self.cached_bytes > CACHED_BYTES {
            match self.cache.front() {
                Some(front) if front.log_id.index <= self.written && self.cache.len() > 1 => self.drop_front(),
                _ => return,
            }
        }
    }

    fn forget_cache(&mut self) {
        while self.cache.front().is_some_and(|entry| entry.log_id.index <= self.written) {
            self.drop_front();
        }
        self.cache.shrink_to_fit();
    }

    fn drop_front(&mut self) {
        if let Some(entry) = self.cache.pop_front() {
            self.cached_bytes -= encode::entry_size(&entry);
        }
    }
}

impl RaftLogReader<TypeConfig> for Log {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(&mut self, range: RB) -> io::Result<Vec<Entry>> {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(last) => last + 1,
            Bound::Excluded(to) => *to,
            Bound::Unbounded => u64::MAX,
        };
        self.read(from, to, usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start, end, MESSAGE_BYTES)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.inner.lock().vote)
    }
}

impl RaftLogStorage<TypeConfig> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let inner = self.inner.lock();
        Ok(LogState { last_purged_log_id: inner.purged, last_log_id: inner.last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let mut w = Writer::default();
        encode::write_vote(&mut w, vote);
        Self::wait(|done| self.disk.save_vote(w.0, done)).await?;
        self.inner.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        if let Some(committed) = committed {
            let mut w = Writer::default();
            encode::write_log_id(&mut w, &committed);
            self.disk.save_committed(w.0);
            self.inner.lock().committed = Some(committed);
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.inner.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut values = Vec::new();
        let mut newest = 0;
        {
            let mut inner = self.inner.lock();
            for entry in entries {
                let mut w = Writer::with_capacity(encode::entry_size(&entry));
                encode::write_entry(&mut w, &entry);
                newest = entry.log_id.index;
                values.push((newest, w.0));
                inner.last = Some(entry.log_id);
                inner.cached_bytes += encode::entry_size(&entry);
                inner.cache.push_back(entry);
            }
        }
        let inner = self.inner.clone();
        let done = move |result: Result<(), DiskError>| {
            if result.is_ok() {
                let mut inner = inner.lock();
                inner.written = inner.written.max(newest);
                inner.evict();
            }
            callback.io_completed(result.map_err(io::Error::other));
        };
        self.disk.append(values, Box::new(done));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let from = last.as_ref().map_or(0, |id| id.index() + 1);
        {
            let mut inner = self.inner.lock();
            while inner.cache.back().is_some_and(|entry| entry.log_id.index >= from) {
                if let Some(entry) = inner.cache.pop_back() {
                    inner.cached_bytes -= encode::entry_size(&entry);
                }
            }
            inner.last = inner.last.min(last);
        }
        Self::wait(|done| self.disk.truncate(from, done)).await?;
        // Only now have the callbacks of the removed entries been called.
        let mut inner = self.inner.lock();
        inner.written = inner.written.min(from.saturating_sub(1));
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let mut w = Writer::default();
        encode::write_log_id(&mut w, &upto);
        {
            let mut inner = self.inner.lock();
            inner.purged = Some(upto);
            if inner.last.is_none_or(|last| last < upto) {
                inner.last = Some(upto);
            }
            while inner.cache.front().is_some_and(|entry| entry.log_id.index <= upto.index()) {
                inner.drop_front();
            }
        }
        Self::wait(|done| self.disk.purge(upto.index(), &w.0, done)).await
    }
}
