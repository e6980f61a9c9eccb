//! One Watch stream: its requests and the watches they started.

use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tonic::{Status, Streaming};
use wheelhouse_store::WatchError;

use super::watcher::{Options, Sync, Watcher};
use crate::backend::Backend;
use crate::convert::watch_range;
use crate::generated::etcdserverpb as pb;
use crate::generated::etcdserverpb::watch_create_request::FilterType;
use crate::generated::etcdserverpb::watch_request::RequestUnion;

/// Watches per stream. A kube-apiserver opens one per resource, a client library a few; this bounds the tasks that one peer can start.
const MAX_WATCHES: usize = 10_000;

/// The id of an answer that belongs to no watch.
const NO_WATCH: i64 = -1;

pub(super) type Answers = mpsc::Sender<Result<pb::WatchResponse, Status>>;

/// The client has gone.
pub(super) struct Gone;

pub(super) struct Session {
    backend: Backend,
    answers: Answers,
    watches: HashMap<i64, Running>,
    next_id: i64,
    /// Aborts every watcher when the session ends.
    tasks: JoinSet<()>,
}

struct Running {
    syncs: mpsc::Sender<Sync>,
    task: tokio::task::AbortHandle,
}

impl Session {
    pub(super) fn new(backend: Backend, answers: Answers) -> Self {
        Self { backend, answers, watches: HashMap::new(), next_id: 0, tasks: JoinSet::new() }
    }

    /// Serves until the client has gone. A client that only closes its side of the stream still gets its events, as from etcd.
    pub(super) async fn run(mut self, mut requests: Streaming<pb::WatchRequest>) {
        let gone = self.answers.clone();
        loop {
            let request = tokio::select! {
                () = gone.closed() => return,
                request = requests.message() => request,
            };
            let Ok(Some(request)) = request else { break };
            let served = match request.request_union {
                Some(RequestUnion::CreateRequest(request)) => self.create(request).await,
                Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id).await,
                Some(RequestUnion::ProgressRequest(_)) => self.progress().await,
                None => Ok(()),
            };
            if served.is_err() {
                return;
            }
        }
        gone.closed().await;
    }

    async fn create(&mut self, request: pb::WatchCreateRequest) -> Result<(), Gone> {
        let snapshot = self.backend.store.snapshot();
        let created = pb::WatchResponse { header: Some(self.backend.header(snapshot.revision())), created: true, ..Default::default() };
        let refused = |reason: &str| pb::WatchResponse { watch_id: NO_WATCH, canceled: true, cancel_reason: reason.to_owned(), ..created.clone() };
        let Some(range) = watch_range(&request) else { return self.answer(refused("mvcc: watcher range is empty")).await };
        if request.watch_id != 0 && self.watches.contains_key(&request.watch_id) {
            return self.answer(refused("mvcc: duplicate watch ID provided on the WatchStream")).await;
        }
        if self.watches.len() == MAX_WATCHES {
            return self.answer(refused("etcdserver: too many requests")).await;
        }
        let watch_id = self.id_for(request.watch_id);
        let after = match request.start_revision {
            0 => snapshot.revision(),
            start => u64::try_from(start).unwrap_or(0).saturating_sub(1),
        };
        let watch = self.backend.store.watch(range, after);
        self.answer(pb::WatchResponse { watch_id, ..created.clone() }).await?;
        let filters = |filter: FilterType| request.filters.contains(&i32::from(filter));
        let options = Options {
            watch_id,
            prev_kv: request.prev_kv,
            no_put: filters(FilterType::Noput),
            no_delete: filters(FilterType::Nodelete),
            fragment: request.fragment,
            progress_notify: request.progress_notify,
        };
        let (syncs, sync_queue) = mpsc::channel(1);
        let task = match watch {
            Ok(watch) => {
                let watcher = Watcher { backend: self.backend.clone(), answers: self.answers.clone(), syncs: sync_queue, watch, options };
                self.tasks.spawn(watcher.run())
            }
            Err(error) => {
                self.answer(ended(&self.backend, watch_id, &error)).await?;
                self.tasks.spawn(async {})
            }
        };
        self.watches.insert(watch_id, Running { syncs, task });
        Ok(())
    }

    /// A watch that has ended stays cancelable, as in etcd.
    async fn cancel(&mut self, watch_id: i64) -> Result<(), Gone> {
        let Some(running) = self.watches.remove(&watch_id) else { return Ok(()) };
        running.task.abort();
        // Waits until it has stopped, so that no event follows the answer.
        running.syncs.closed().await;
        while self.tasks.try_join_next().is_some() {}
        self.answer(pb::WatchResponse { header: Some(self.backend.current_header()), watch_id, canceled: true, ..Default::default() }).await
    }

    /// Answers once every watch has sent what happened up to now.
    async fn progress(&mut self) -> Result<(), Gone> {
        let revision = self.backend.store.snapshot().revision();
        let mut waiting = Vec::with_capacity(self.watches.len());
        for running in self.watches.values() {
            let (reached, reply) = oneshot::channel();
            // A watch that has ended has nothing more to send.
            if running.syncs.send(Sync { revision, reached }).await.is_ok() {
                waiting.push(reply);
            }
        }
        for reply in waiting {
            let _ended_or_reached = reply.await;
        }
        self.answer(pb::WatchResponse { header: Some(self.backend.header(revision)), watch_id: NO_WATCH, ..Default::default() }).await
    }

    fn id_for(&mut self, wanted: i64) -> i64 {
        if wanted != 0 {
            return wanted;
        }
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    async fn answer(&self, answer: pb::WatchResponse) -> Result<(), Gone> {
        self.answers.send(Ok(answer)).await.map_err(|_| Gone)
    }
}

/// The last answer of a watch that the store ended. Without its compacted revision a client would not know to list again.
pub(super) fn ended(backend: &Backend, watch_id: i64, error: &WatchError) -> pb::WatchResponse {
    let compact_revision = match error {
        WatchError::Compacted { compacted, .. } => *compacted,
        WatchError::Lagged => backend.store.snapshot().compacted(),
        WatchError::Stopped => 0,
    };
    let cancel_reason = if matches!(error, WatchError::Stopped) { "etcdserver: server stopped".to_owned() } else { String::new() };
    let compact_revision = i64::try_from(compact_revision).unwrap_or(i64::MAX);
    // etcd leaves the revision out here.
    pb::WatchResponse { header: Some(backend.header(0)), watch_id, canceled: true, compact_revision, cancel_reason, ..Default::default() }
}
