//! One watch: takes changes from the store and sends them as etcd's answers.

use std::time::Duration;

use prost::Message;
use tokio::sync::{mpsc, oneshot};
use wheelhouse_base::Revision;
use wheelhouse_mvcc::{Event, EventKind, KeyValue};
use wheelhouse_store::{Changes, Watch};

use super::session::{Answers, Gone, ended};
use crate::backend::Backend;
use crate::generated::etcdserverpb as pb;

/// How often a quiet watch that wants it is told the revision. etcd's default.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);

/// Answers above this size are cut where the client asked for fragments. etcd's default request limit.
const FRAGMENT_BYTES: usize = wheelhouse_base::limits::MAX_VALUE_BYTES;

#[derive(Clone, Copy)]
pub(super) struct Options {
    pub(super) watch_id: i64,
    pub(super) prev_kv: bool,
    pub(super) no_put: bool,
    pub(super) no_delete: bool,
    pub(super) fragment: bool,
    pub(super) progress_notify: bool,
}

/// Asks to be told once everything up to `revision` has been sent.
pub(super) struct Sync {
    pub(super) revision: Revision,
    pub(super) reached: oneshot::Sender<()>,
}

pub(super) struct Watcher {
    pub(super) backend: Backend,
    pub(super) answers: Answers,
    pub(super) syncs: mpsc::Receiver<Sync>,
    pub(super) watch: Box<dyn Watch>,
    pub(super) options: Options,
}

impl Watcher {
    pub(super) async fn run(mut self) {
        let mut progress = tokio::time::interval(PROGRESS_INTERVAL);
        progress.reset();
        let mut told_since = false;
        let mut waiting: Vec<Sync> = Vec::new();
        loop {
            let position = self.watch.position();
            for sync in waiting.extract_if(.., |sync| sync.revision <= position) {
                // The session may have gone.
                let _gone = sync.reached.send(());
            }
            let sent = tokio::select! {
                sync = self.syncs.recv() => match sync {
                    Some(sync) => {
                        waiting.push(sync);
                        Ok(())
                    }
                    None => return,
                },
                changes = self.watch.next() => match changes {
                    Ok(changes) => {
                        told_since = true;
                        self.send(&changes).await
                    }
                    Err(error) => {
                        // Nobody is left to tell if this fails.
                        let _gone = self.answer(ended(&self.backend, self.options.watch_id, &error)).await;
                        return;
                    }
                },
                _ = progress.tick(), if self.options.progress_notify => {
                    let quiet = !std::mem::take(&mut told_since);
                    if quiet { self.tell_progress().await } else { Ok(()) }
                },
            };
            if sent.is_err() {
                return;
            }
        }
    }

    async fn tell_progress(&mut self) -> Result<(), Gone> {
        let header = Some(self.backend.header(self.watch.position()));
        self.answer(pb::WatchResponse { header, watch_id: self.options.watch_id, ..Default::default() }).await
    }

    async fn send(&mut self, changes: &Changes) -> Result<(), Gone> {
        let options = self.options;
        let wanted = changes.events.iter().filter(|event| match event.kind {
            EventKind::Put => !options.no_put,
            EventKind::Delete => !options.no_delete,
        });
        let prev = |event| if options.prev_kv { before_the_transaction(changes, event) } else { None };
        let events: Vec<_> = wanted.map(|event| self.backend.copy.event(event, prev(event))).collect();
        if events.is_empty() {
            return Ok(());
        }
        let header = Some(self.backend.header(changes.revision));
        let answer = pb::WatchResponse { header, watch_id: options.watch_id, events, ..Default::default() };
        if !options.fragment || answer.encoded_len() < FRAGMENT_BYTES {
            return self.answer(answer).await;
        }
        for fragment in fragments(answer) {
            self.answer(fragment).await?;
        }
        Ok(())
    }

    async fn answer(&mut self, answer: pb::WatchResponse) -> Result<(), Gone> {
        self.answers.send(Ok(answer)).await.map_err(|_| Gone)
    }
}

/// The record that an event's key had before its revision. A transaction may change a key twice; etcd looks one revision back for both.
fn before_the_transaction<'c>(changes: &'c Changes, event: &'c Event) -> Option<&'c KeyValue> {
    let within = event.prev.as_ref().is_some_and(|prev| prev.mod_revision == changes.revision);
    let first = if within { changes.events.iter().find(|first| first.kv.key == event.kv.key)? } else { event };
    first.prev.as_deref()
}

/// Cuts an answer between events so that each part stays below the limit where one event alone does; all but the last are marked.
fn fragments(mut answer: pb::WatchResponse) -> Vec<pb::WatchResponse> {
    let events = std::mem::take(&mut answer.events);
    let mut parts = vec![answer.clone()];
    let mut size = 0;
    for event in events {
        let len = event.encoded_len();
        if size > 0 && size + len >= FRAGMENT_BYTES {
            parts.push(answer.clone());
            size = 0;
        }
        size += len;
        if let Some(part) = parts.last_mut() {
            part.events.push(event);
        }
    }
    let last = parts.len() - 1;
    parts[..last].iter_mut().for_each(|part| part.fragment = true);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::mvccpb;
    use bytes::Bytes;

    #[test]
    fn large_answers_are_cut_between_events() {
        let event = |size: usize| mvccpb::Event {
            kv: Some(mvccpb::KeyValue { value: Bytes::from(vec![0; size]), ..Default::default() }),
            ..Default::default()
        };
        let sizes = [FRAGMENT_BYTES / 2, FRAGMENT_BYTES / 3, FRAGMENT_BYTES / 3, 2 * FRAGMENT_BYTES, 10];
        let answer = pb::WatchResponse { watch_id: 7, events: sizes.map(event).to_vec(), ..Default::default() };
        let parts = fragments(answer);
        assert_eq!(
            parts.iter().map(|part| (part.events.len(), part.fragment, part.watch_id)).collect::<Vec<_>>(),
            [(2, true, 7), (1, true, 7), (1, true, 7), (1, false, 7)]
        );
    }
}
