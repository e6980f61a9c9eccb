//! The published state and those who wait for it.
//!
//! ```text
//!   applier --publish(batches, root)--> root (readers load it, nobody locks)
//!                 |
//!                 +--> bucket "/registry/apps/deployments/"  --wakes--> watches of deployments
//!                 +--> bucket "/registry/core/pods/"         --wakes--> watches of pods
//!                 +--> bucket ""  (ranges that span resources) --wakes--> all others
//! ```
//!
//! A watch is a position, not a queue: it costs the same however slow it is, and a slow one delays nobody. Woken, it takes the
//! batches after its position from its bucket's short list, or from the history of the newest root if it is further behind. Only a
//! change under its own resource wakes it, and one wake-up serves every watch of the bucket. The bucket's newest revision is a level,
//! not an edge, so a wake-up that is lost or late changes nothing.
//!
//! A bucket exists while a watch uses it. The applier makes no allocation per watch.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use wheelhouse_base::Revision;
use wheelhouse_mvcc::{Batch, Event, KeyRange, Snapshot};

use crate::{Changes, ReadError, Watch, WatchError};

/// Batches that a bucket keeps at hand. A watch further behind reads the root's history instead, which costs it a look at every
/// resource's changes; 256 cover a burst between two turns of a busy runtime.
const RECENT_BATCHES: usize = 256;

/// How many batches a watch that reads the history looks at before it lets other tasks run.
const SCAN_BATCHES: usize = 1024;

/// One replica's published state. Cheap to share behind an [`Arc`].
#[derive(Debug)]
pub struct WatchHub {
    root: ArcSwap<Snapshot>,
    /// The newest published revision, for those who wait for one.
    revision: watch::Sender<Revision>,
    /// Held for reading while publishing, so that a new bucket starts exactly at a published root.
    buckets: RwLock<HashMap<Box<[u8]>, Arc<Bucket>>>,
    stopped: AtomicBool,
}

#[derive(Debug)]
struct Bucket {
    prefix: Box<[u8]>,
    /// The newest root that touched the bucket. Its watches look at the hub again whenever it is sent.
    changed: watch::Sender<Revision>,
    recent: Mutex<Recent>,
}

#[derive(Debug)]
struct Recent {
    /// Every batch of this bucket after this revision is in `batches`.
    floor: Revision,
    batches: VecDeque<Arc<Batch>>,
}

impl Recent {
    /// The bucket's batches with `after < revision <= upto`; `None` if some of them are no longer here.
    fn between(&self, after: Revision, upto: Revision) -> Option<VecDeque<Arc<Batch>>> {
        if self.floor > after {
            return None;
        }
        let first = self.batches.partition_point(|batch| batch.revision <= after);
        let end = self.batches.partition_point(|batch| batch.revision <= upto);
        Some(self.batches.range(first..end.max(first)).cloned().collect())
    }

    /// Lets go of what is too much and of what is older than `compacted`.
    fn shorten(&mut self, compacted: Revision) {
        while self.batches.len() > RECENT_BATCHES || self.batches.front().is_some_and(|first| first.revision < compacted) {
            if let Some(dropped) = self.batches.pop_front() {
                self.floor = dropped.revision;
            }
        }
    }
}

impl WatchHub {
    /// Starts with a state of which nothing is to be announced.
    pub fn new(root: Snapshot) -> Arc<Self> {
        let revision = watch::Sender::new(root.revision());
        Arc::new(Self { root: ArcSwap::from_pointee(root), revision, buckets: RwLock::default(), stopped: AtomicBool::new(false) })
    }

    /// The newest published state.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::clone(&self.root.load())
    }

    /// Makes `root` the newest state; `batches` are all changes since the last one, in order. Called by the one applier only.
    pub fn publish(&self, batches: &[Arc<Batch>], root: Snapshot) {
        let buckets = self.buckets.read();
        let (revision, compacted) = (root.revision(), root.compacted());
        // Filled, then shown, then woken: a watch that sees a root finds every batch up to it in its bucket.
        let mut touched = Vec::new();
        if !buckets.is_empty() {
            batches.iter().for_each(|batch| add_to_buckets(&buckets, batch, &mut touched));
        }
        if compacted != self.root.load().compacted() {
            // Or a quiet bucket would hold compacted records for ever.
            buckets.values().for_each(|bucket| bucket.recent.lock().shorten(compacted));
        }
        self.root.store(Arc::new(root));
        for bucket in touched {
            bucket.changed.send_replace(revision);
        }
        drop(buckets);
        self.revision.send_replace(revision);
    }

    /// Replaces the state by one that does not continue it, as an installed snapshot. Watches go on if its history reaches back to
    /// their position, and else end with [`WatchError::Lagged`].
    pub fn reset(&self, root: Snapshot) {
        let buckets = self.buckets.read();
        let revision = root.revision();
        for bucket in buckets.values() {
            *bucket.recent.lock() = Recent { floor: revision, batches: VecDeque::new() };
        }
        self.root.store(Arc::new(root));
        for bucket in buckets.values() {
            bucket.changed.send_replace(revision);
        }
        drop(buckets);
        self.revision.send_replace(revision);
    }

    /// Ends every watch and every wait. Snapshots stay readable.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        for bucket in self.buckets.read().values() {
            bucket.changed.send_modify(|_| {});
        }
        self.revision.send_modify(|_| {});
    }

    /// A state at or after `revision`; [`ReadError::Behind`] if it is not there within `timeout`.
    pub async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<Snapshot, ReadError> {
        let mut published = self.revision.subscribe();
        let reached = published.wait_for(|published| *published >= revision || self.is_stopped());
        // The sender lives in `self`, so the channel cannot be closed here.
        let in_time = tokio::time::timeout(timeout, reached).await.is_ok();
        if self.is_stopped() {
            return Err(ReadError::Stopped);
        }
        let root = self.snapshot();
        if in_time && root.revision() >= revision { Ok(root) } else { Err(ReadError::Behind { requested: revision, current: root.revision() }) }
    }

    /// A watch of `range` from after `after` on. `after` may lie in the future: then nothing up to it is told.
    pub fn subscribe(self: &Arc<Self>, range: KeyRange, after: Revision) -> Result<HubWatch, WatchError> {
        if self.is_stopped() {
            return Err(WatchError::Stopped);
        }
        let bucket = self.bucket(bucket_of_range(&range));
        let root = self.root.load();
        if after.saturating_add(1) < root.history_start() {
            drop(root);
            let refused = WatchError::Compacted { requested: after + 1, compacted: self.root.load().compacted() };
            self.release(bucket);
            return Err(refused);
        }
        let changed = bucket.changed.subscribe();
        Ok(HubWatch { hub: self.clone(), bucket: Some(bucket), changed, range, position: after, ready: VecDeque::new(), looked: after })
    }

    /// How many watches are open. For metrics and tests.
    pub fn watchers(&self) -> usize {
        self.buckets.read().values().map(|bucket| bucket.changed.receiver_count()).sum()
    }

    /// True once [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn bucket(&self, prefix: &[u8]) -> Arc<Bucket> {
        if let Some(bucket) = self.buckets.read().get(prefix) {
            return bucket.clone();
        }
        let mut buckets = self.buckets.write();
        let new = || {
            let floor = self.root.load().revision();
            let recent = Mutex::new(Recent { floor, batches: VecDeque::new() });
            Arc::new(Bucket { prefix: prefix.into(), changed: watch::Sender::new(floor), recent })
        };
        buckets.entry(prefix.into()).or_insert_with(new).clone()
    }

    /// Drops one use of a bucket, and the bucket with its last use.
    fn release(&self, bucket: Arc<Bucket>) {
        let mut buckets = self.buckets.write();
        // The table's own reference and this one.
        if Arc::strong_count(&bucket) == 2 {
            buckets.remove(&bucket.prefix);
        }
        // Within the lock, so that whoever releases next counts right.
        drop(bucket);
    }
}

/// Adds `batch` to the buckets that its keys fall into, and those to `touched`.
fn add_to_buckets<'b>(buckets: &'b HashMap<Box<[u8]>, Arc<Bucket>>, batch: &Arc<Batch>, touched: &mut Vec<&'b Bucket>) {
    let mut last: Option<&[u8]> = None;
    for event in &batch.events {
        let prefix = bucket_of_key(&event.kv.key);
        // A batch's events mostly share a bucket.
        if prefix.is_empty() || last == Some(prefix) {
            continue;
        }
        last = Some(prefix);
        touched.extend(buckets.get(prefix).filter(|bucket| bucket.push(batch)).map(|bucket| &**bucket));
    }
    touched.extend(buckets.get(&b""[..]).filter(|bucket| bucket.push(batch)).map(|bucket| &**bucket));
}

impl Bucket {
    /// False if the batch is there already.
    fn push(&self, batch: &Arc<Batch>) -> bool {
        let mut recent = self.recent.lock();
        if recent.batches.back().is_some_and(|last| last.revision == batch.revision) {
            return false;
        }
        recent.batches.push_back(batch.clone());
        recent.shorten(0);
        true
    }
}

/// The first three segments of a key, `/registry/<group>/<resource>/`; empty if it has fewer.
fn bucket_of_key(key: &[u8]) -> &[u8] {
    if key.first() != Some(&b'/') {
        return b"";
    }
    let mut slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    slashes.nth(3).map_or(b"", |third| &key[..=third])
}

/// The bucket that holds every key of `range`; the empty one if none does.
fn bucket_of_range(range: &KeyRange) -> &[u8] {
    let bucket = bucket_of_key(&range.start);
    match &range.end {
        None => bucket,
        // Keys of the bucket sort before the bucket's own end.
        Some(end) if !bucket.is_empty() && end[..] != b"\0"[..] && end[..] <= wheelhouse_mvcc::prefix_end(bucket)[..] => bucket,
        Some(_) => b"",
    }
}

/// A cursor on the hub's history. See [`Watch`].
#[derive(Debug)]
pub struct HubWatch {
    hub: Arc<WatchHub>,
    /// `None` only while dropping.
    bucket: Option<Arc<Bucket>>,
    changed: watch::Receiver<Revision>,
    range: KeyRange,
    /// Everything up to here has been returned or did not concern the range.
    position: Revision,
    /// Batches to look at, all those after `position` that may concern the range up to `looked`.
    ready: VecDeque<Arc<Batch>>,
    looked: Revision,
}

/// What looking at one stretch of history found.
enum Look {
    Found(Changes),
    /// More is to be looked at.
    Again,
    /// Everything published is known.
    Done,
}

impl HubWatch {
    fn bucket(&self) -> &Bucket {
        self.bucket.as_ref().expect("taken only by drop")
    }

    fn look(&mut self) -> Result<Look, WatchError> {
        while let Some(batch) = self.ready.pop_front() {
            if let Some(changes) = self.take(&batch) {
                return Ok(Look::Found(changes));
            }
        }
        self.position = self.position.max(self.looked);
        let root = self.hub.root.load_full();
        if root.revision() <= self.position {
            return Ok(Look::Done);
        }
        let recent = self.bucket().recent.lock().between(self.position, root.revision());
        match recent {
            Some(batches) => (self.ready, self.looked) = (batches, root.revision()),
            None => self.scan(&root)?,
        }
        Ok(Look::Again)
    }

    /// Takes what concerns this watch from the next stretch of the history.
    fn scan(&mut self, root: &Snapshot) -> Result<(), WatchError> {
        let mut ready = VecDeque::new();
        // Not every revision has a batch: an empty store's first has none.
        self.looked = root.revision();
        for (scanned, batch) in root.history_since(self.position).map_err(|_| WatchError::Lagged)?.enumerate() {
            if scanned == SCAN_BATCHES {
                self.looked = batch.revision - 1;
                break;
            }
            if batch.events.iter().any(|event| self.range.contains(&event.kv.key)) {
                ready.push_back(batch.clone());
            }
        }
        self.ready = ready;
        Ok(())
    }

    fn concerns(&self, batch: &Batch) -> bool {
        batch.events.iter().any(|event| self.range.contains(&event.kv.key))
    }

    fn take(&mut self, batch: &Batch) -> Option<Changes> {
        if batch.revision <= self.position {
            return None;
        }
        self.position = batch.revision;
        let events: Vec<Event> = batch.events.iter().filter(|event| self.range.contains(&event.kv.key)).cloned().collect();
        (!events.is_empty()).then_some(Changes { revision: batch.revision, events })
    }
}

#[async_trait]
impl Watch for HubWatch {
    async fn next(&mut self) -> Result<Changes, WatchError> {
        loop {
            if self.hub.is_stopped() {
                return Err(WatchError::Stopped);
            }
            self.changed.borrow_and_update();
            match self.look()? {
                Look::Found(changes) => return Ok(changes),
                Look::Again => tokio::task::coop::consume_budget().await,
                // The bucket lives as long as this watch, so the channel cannot be closed.
                Look::Done => drop(self.changed.changed().await),
            }
        }
    }

    fn position(&self) -> Revision {
        let root = self.hub.root.load();
        if root.revision() <= self.position {
            return self.position;
        }
        let recent = self.bucket().recent.lock().between(self.position, root.revision());
        let pending = match recent {
            Some(batches) => batches.iter().any(|batch| self.concerns(batch)),
            None => root.history_since(self.position).map_or(true, |mut history| history.any(|batch| self.concerns(batch))),
        };
        if pending { self.position } else { root.revision() }
    }
}

impl Drop for HubWatch {
    fn drop(&mut self) {
        if let Some(bucket) = self.bucket.take() {
            self.hub.release(bucket);
        }
    }
}
