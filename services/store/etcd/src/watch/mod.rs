//! The Watch service.
//!
//! ```text
//!   requests --> Session (one task per stream) --starts, cancels, syncs--> Watcher (one task per watch)
//!                    |  created, canceled, progress                             |  events
//!                    +--------------------> one bounded queue <----------------+ --> answers
//! ```
//!
//! The queue is the only buffer: when the client is slow, watchers wait, and the store's history holds what they have not taken. A
//! progress answer carries a revision up to which every watch of the stream has sent its events, which is what a kube-apiserver waits
//! for to read from its cache.

mod session;
mod watcher;

use std::pin::Pin;

use futures::Stream;
use futures::stream::poll_fn;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use crate::backend::Backend;
use crate::generated::etcdserverpb as pb;
use crate::generated::etcdserverpb::watch_server::Watch;

/// Answers waiting for a slow client, per stream. Enough to keep the connection busy; each may be as large as a transaction.
const QUEUED_ANSWERS: usize = 64;

pub(crate) struct WatchService(pub(crate) Backend);

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<Streaming<pb::WatchRequest>>) -> Result<Response<Self::WatchStream>, Status> {
        let (answers, mut queue) = mpsc::channel(QUEUED_ANSWERS);
        // The session ends itself when the answers' receiver is dropped with the stream.
        tokio::spawn(session::Session::new(self.0.clone(), answers).run(request.into_inner()));
        Ok(Response::new(Box::pin(poll_fn(move |cx| queue.poll_recv(cx)))))
    }
}
