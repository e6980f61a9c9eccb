//! Watches.
//!
//! ```text
//! options -> start revision, initial objects -> [ADDED …, BOOKMARK] -> store cursor -> transition -> event bytes (shared) -> client
//! ```
//!
//! A watch is pulled by its client: it holds a cursor on the store's event ring and nothing else, so a client that does not read costs no memory
//! and is cut off when the ring laps it. What an event means to a watch depends on whether the object was and is selected: an object that begins
//! to match is ADDED, one that stops is DELETED (with its old content), and one that does neither is not shown.

pub mod cache;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch as signal;
use tokio::time::{Instant, Sleep};
use wheelhouse_base::Revision;
use wheelhouse_meta::Status;
use wheelhouse_mvcc::{Event, EventKind, KeyRange, Snapshot};
use wheelhouse_runtime::metrics::Counter;
use wheelhouse_store::{Watch as Cursor, WatchError};

use crate::body::Body;
use crate::encode::{Form, Item};
use crate::list::options::{ListOptions, Selection};
use crate::request::Answer;
use crate::request::media::{Encoding, View};
use crate::respond::{Reply, encode_status};
use crate::storage::Storage;
use crate::stored;

use cache::{EventCache, EventKey};

/// How often an idle watch that asked for bookmarks hears where it is; upstream's period.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// A last bookmark comes this long before the watch ends, so that the client resumes from there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// A watch without `timeoutSeconds` lives between this and twice this; upstream's `--min-request-timeout`.
const MIN_LIFE: Duration = Duration::from_secs(1800);

/// However long a client asks for, a watch ends after a month: the sum of now and its life must exist.
const MAX_LIFE: Duration = Duration::from_secs(30 * 86_400);

/// About how many bytes of initial objects are encoded ahead of the client.
const PIECE_BYTES: usize = 64 * 1024;

/// The annotation that ends the initial events (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What a watch needs from its server.
pub struct WatchContext<'a> {
    pub storage: &'a Storage,
    pub cache: Arc<EventCache>,
    /// True once watches must end.
    pub draining: signal::Receiver<bool>,
    /// Events that were sent.
    pub sent: Counter,
}

/// Answers a watch. `namespace` is empty for all namespaces.
pub async fn watch(cx: WatchContext<'_>, form: Form, namespace: &str, options: ListOptions) -> Answer<Reply> {
    if let View::PartialList { .. } = form.media.view {
        // An event holds one object, which is no list: upstream begins the answer and ends it at the first one.
        return Ok(Reply::ok("application/json", Body::empty()));
    }
    let start = Start::choose(cx.storage, &options).await?;
    let range = range_of(&form, namespace, &options.selection);
    let life = options.timeout_seconds.map_or_else(random_life, Duration::from_secs).min(MAX_LIFE);
    let end = Instant::now() + life;
    let content_type = match form.media.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    let mut state = State {
        shared: cx.cache.open(form.resource.storage_index),
        form,
        selection: options.selection,
        cursor: None,
        initial: None,
        after: start.after,
        bookmark_after_initial: start.send_end,
        bookmarks: options.allow_bookmarks,
        next_bookmark: (Instant::now() + BOOKMARK_PERIOD).min(end - BOOKMARK_BEFORE_END.min(life)),
        end,
        drained: Box::pin(drained(cx.draining)),
        sent: cx.sent,
        timer: Box::pin(tokio::time::sleep_until(end)),
        pending: VecDeque::new(),
        first_row: true,
        finished: false,
    };
    match cx.storage.store().watch(range.clone(), start.after) {
        Ok(cursor) => state.cursor = Some(cursor),
        Err(error) => state.fail(&error),
    }
    state.initial = start.initial.map(|snapshot| Initial { snapshot, range });
    let stream = futures::stream::unfold(state, |mut state| async move {
        let piece = state.next_piece().await?;
        Some((piece, state))
    });
    Ok(Reply::ok(content_type, Body::stream(stream)))
}

fn random_life() -> Duration {
    MIN_LIFE + Duration::from_secs(rand::random_range(0..MIN_LIFE.as_secs()))
}

fn range_of(form: &Form, namespace: &str, selection: &Selection) -> KeyRange {
    match selection.name() {
        Some(name) if !form.resource.namespaced() || !namespace.is_empty() => KeyRange::key(form.resource.key(namespace, name)),
        _ => KeyRange::prefix(form.resource.key_prefix(namespace)),
    }
}

/// Where a watch begins.
struct Start {
    /// Objects to send first.
    initial: Option<Snapshot>,
    after: Revision,
    /// Whether the end of the initial objects is marked.
    send_end: bool,
}

impl Start {
    async fn choose(storage: &Storage, options: &ListOptions) -> Answer<Self> {
        let revision = options.revision().map_err(Status::plain)?;
        let from = |snapshot: Snapshot, initial: bool, send_end: bool| {
            let after = snapshot.revision();
            Self { initial: initial.then_some(snapshot), after, send_end }
        };
        match (options.send_initial_events, revision) {
            (Some(true), None) => Ok(from(storage.linearizable().await?, true, options.allow_bookmarks)),
            (Some(true), Some(0)) => Ok(from(storage.local(), true, options.allow_bookmarks)),
            (Some(true), Some(revision)) => Ok(from(storage.at_least(revision).await?, true, options.allow_bookmarks)),
            (Some(false), None) => Ok(from(storage.linearizable().await?, false, false)),
            (Some(false), Some(0)) => Ok(from(storage.local(), false, false)),
            (None, None) => Ok(from(storage.linearizable().await?, true, false)),
            (None, Some(0)) => Ok(from(storage.local(), true, false)),
            // A version that this replica has not reached yet is waited for in silence: the cursor stands there already.
            (_, Some(revision)) => Ok(Self { initial: None, after: revision, send_end: false }),
        }
    }
}

struct Initial {
    snapshot: Snapshot,
    range: KeyRange,
}

struct State {
    form: Form,
    selection: Selection,
    shared: cache::Watching,
    cursor: Option<Box<dyn Cursor>>,
    initial: Option<Initial>,
    after: Revision,
    bookmark_after_initial: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    /// Resolves once watches must end.
    drained: Pin<Box<dyn Future<Output = ()> + Send>>,
    timer: Pin<Box<Sleep>>,
    sent: Counter,
    pending: VecDeque<Bytes>,
    first_row: bool,
    finished: bool,
}

impl State {
    /// The next bytes for the client; `None` ends the watch.
    async fn next_piece(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.take_pending() {
                return Some(piece);
            }
            if self.finished {
                return None;
            }
            if self.initial.is_some() {
                self.send_initial();
            } else {
                self.wait().await;
            }
        }
    }

    /// What waits, in one piece up to a limit: a frame of HTTP/2 and a turn of its connection cost more than copying an event.
    fn take_pending(&mut self) -> Option<Bytes> {
        let first = self.pending.pop_front()?;
        let Some(second) = self.pending.front() else { return Some(first) };
        if first.len() + second.len() > PIECE_BYTES {
            return Some(first);
        }
        let mut piece = Vec::from(first);
        while let Some(next) = self.pending.pop_front_if(|next| piece.len() + next.len() <= PIECE_BYTES) {
            piece.extend_from_slice(&next);
        }
        Some(piece.into())
    }

    /// Encodes some of the initial objects, and the mark at their end.
    fn send_initial(&mut self) {
        let Some(mut initial) = self.initial.take() else { return };
        let end = initial.range.end.clone().unwrap_or_else(|| crate::list::next_key(&initial.range.start));
        let mut piece = Vec::new();
        let mut last = None;
        for kv in initial.snapshot.range(&initial.range.start, Some(&end)) {
            last = Some(kv.key.clone());
            if !self.selection.matches_record(kv) {
                continue;
            }
            if let Some(frame) = self.frame("ADDED", Item { revision: kv.mod_revision, value: &kv.value }) {
                piece.extend_from_slice(&frame);
            }
            if piece.len() >= PIECE_BYTES {
                break;
            }
        }
        let more = piece.len() >= PIECE_BYTES;
        if !piece.is_empty() {
            self.pending.push_back(piece.into());
        }
        if let (true, Some(last)) = (more, last) {
            initial.range = KeyRange { start: crate::list::next_key(&last), end: Some(end) };
            self.initial = Some(initial);
        } else if self.bookmark_after_initial {
            self.push_bookmark(initial.snapshot.revision(), true);
        }
    }

    /// Waits for a change, and for what else is due. The timer and the signal live as long as the watch: making them anew for every event costs more
    /// than the event.
    async fn wait(&mut self) {
        let now = Instant::now();
        let Some(cursor) = self.cursor.as_mut().filter(|_| now < self.end) else {
            self.finished = true;
            return;
        };
        if self.bookmarks && now >= self.next_bookmark {
            let position = cursor.position().max(self.after);
            self.next_bookmark = next_bookmark(now, self.end);
            self.push_bookmark(position, false);
            return;
        }
        let deadline = if self.bookmarks { self.next_bookmark.min(self.end) } else { self.end };
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        tokio::select! {
            biased;
            () = &mut self.drained => self.finished = true,
            changes = cursor.next() => match changes {
                Ok(changes) => {
                    for event in &changes.events {
                        self.show(event);
                    }
                }
                Err(error) => self.fail(&error),
            },
            // What is due is done in the next turn.
            () = &mut self.timer => {}
        }
    }

    /// Queues what an event means to this watch.
    fn show(&mut self, event: &Event) {
        let was = event.prev.as_ref().filter(|prev| self.selection.matches_record(prev));
        let is = event.kind == EventKind::Put && self.selection.matches_record(&event.kv);
        let revision = event.kv.mod_revision;
        let (name, value) = match (was, is) {
            (None, false) => return,
            (None, true) => ("ADDED", &event.kv.value),
            (Some(_), true) => ("MODIFIED", &event.kv.value),
            (Some(prev), false) => ("DELETED", &prev.value),
        };
        let item = Item { revision, value };
        let frame = if self.is_table() { self.frame(name, item) } else { self.shared_frame(name, item) };
        if let Some(frame) = frame {
            self.sent.increment();
            self.pending.push_back(frame);
        }
    }

    fn is_table(&self) -> bool {
        matches!(self.form.media.view, View::Table { .. })
    }

    /// A frame that every watch of the same form shares. Tables are not shared: their cells hold ages.
    fn shared_frame(&mut self, name: &'static str, item: Item<'_>) -> Option<Bytes> {
        let key = EventKey { revision: item.revision, resource: self.form.resource.index, media: self.form.media, name };
        if let Some(frame) = self.shared.get(&key) {
            return Some(frame);
        }
        let frame = self.frame(name, item)?;
        self.shared.put(key, frame.clone());
        Some(frame)
    }

    fn frame(&mut self, name: &str, item: Item<'_>) -> Option<Bytes> {
        match self.form.event_object(item, self.first_row) {
            Ok(object) => {
                self.first_row = false;
                Some(frame(name, &object, self.form.media.encoding))
            }
            Err(status) => {
                tracing::error!(error = %status, resource = %self.form.resource.group_resource, "a stored value cannot be shown to a watch");
                None
            }
        }
    }

    fn push_bookmark(&mut self, revision: Revision, ends_initial: bool) {
        let value = self.bookmark_value(ends_initial);
        if let Some(frame) = self.frame("BOOKMARK", Item { revision, value: &value }) {
            self.pending.push_back(frame);
        }
    }

    /// An empty object of the kind, as Go writes one.
    fn bookmark_value(&self, ends_initial: bool) -> Bytes {
        let mut object = json!({"metadata": {}});
        if ends_initial {
            object["metadata"]["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        wheelhouse_schema::normalise(&mut object, &self.form.resource.stored_schema);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|_, value| *value != Value::Null);
        }
        stored::encode(&object)
    }

    /// Ends the watch: with an ERROR event where the client must list again, silently where it may resume.
    fn fail(&mut self, error: &WatchError) {
        let status = match error {
            WatchError::Compacted { compacted, .. } => Status::watch_too_old(self.after, *compacted),
            WatchError::Lagged | WatchError::Stopped => {
                self.finished = true;
                return;
            }
        };
        let encoding = self.form.media.encoding;
        self.pending.push_back(frame("ERROR", &encode_status(&status, encoding), encoding));
        self.finished = true;
    }
}

/// Resolves when watches must end; never if the server is gone, since then nobody waits.
async fn drained(mut draining: signal::Receiver<bool>) {
    if draining.wait_for(|draining| *draining).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn next_bookmark(now: Instant, end: Instant) -> Instant {
    let last = end - BOOKMARK_BEFORE_END.min(end.duration_since(now));
    // After the last one there is none: the end comes first.
    if now >= last { end + BOOKMARK_PERIOD } else { (now + BOOKMARK_PERIOD).min(last) }
}

/// One framed event. `object` is already encoded.
fn frame(name: &str, object: &[u8], encoding: Encoding) -> Bytes {
    if encoding == Encoding::Protobuf {
        return wheelhouse_schema::protobuf::watch_frame(name, object).into();
    }
    let mut out = Vec::with_capacity(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}
