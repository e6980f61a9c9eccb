//! Lists.
//!
//! ```text
//! options -> revision rules -> Records at one revision -> page (a limited list) or range -> pieces, written as the client reads
//! ```
//!
//! An unlimited list in JSON never exists as a whole: a cursor walks the snapshot and writes about 64 KiB at a time. A limited one picks its
//! records first, because its metadata, which comes first, says whether there are more.

pub mod options;
pub mod token;

use std::sync::Arc;

use bytes::Bytes;
use wheelhouse_base::Revision;
use wheelhouse_meta::Status;
use wheelhouse_mvcc::{KeyRange, KeyValue, command::prefix_end};

use crate::body::Body;
use crate::encode::{Form, Item, ListTail};
use crate::request::Answer;
use crate::request::media::{Encoding, View};
use crate::respond::Reply;
use crate::storage::{ExactError, Records, Storage};

use options::{ListOptions, Match, Selection};
use token::Continue;

/// About how much is written at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// What is listed: the records of one resource, in one namespace or all.
pub struct Scope<'a> {
    pub form: &'a Form,
    /// Empty for all namespaces.
    pub namespace: &'a str,
}

/// The records that a list answers with.
pub struct Page {
    pub revision: Revision,
    pub selected: Selected,
    pub tail: ListTail,
}

#[expect(clippy::large_enum_variant, reason = "there is one of these per list, never a collection of them")]
pub enum Selected {
    /// Everything in a range of a snapshot that the selection matches.
    Range {
        records: Records,
        start: Bytes,
        end: Bytes,
        selection: Selection,
    },
    Picked(Vec<Arc<KeyValue>>),
}

/// Answers a list.
pub async fn list(storage: &Storage, scope: &Scope<'_>, options: ListOptions) -> Answer<Reply> {
    if let View::Partial { .. } = scope.form.media.view {
        let message = format!("you requested PartialObjectMetadata, but the requested object is a list ({})", scope.form.resource.go_type(true));
        return Err(Status::not_acceptable_because(message).into());
    }
    let page = select(storage, scope, options).await?;
    respond(scope.form.clone(), page)
}

/// Chooses the revision and the records.
pub async fn select(storage: &Storage, scope: &Scope<'_>, options: ListOptions) -> Answer<Page> {
    let prefix: Bytes = scope.form.resource.key_prefix(scope.namespace).into();
    let range = narrowed(scope, &options.selection, &prefix);
    let end = range.end.clone().unwrap_or_else(|| next_key(&range.start));
    if !options.continue_token.is_empty() {
        return resume(storage, &prefix, end, options).await;
    }
    let revision = options.revision().map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
    let exact = match (options.version_match, revision) {
        (Some(Match::Exact), Some(revision)) => Some(revision),
        // A limit with a version and no word on how to match it has always meant that version.
        (None, Some(revision)) if revision > 0 && options.limit > 0 => Some(revision),
        _ => None,
    };
    let records = match (exact, revision) {
        (Some(revision), _) => match storage.exactly(range.clone(), revision).await {
            Ok(records) => records,
            Err(ExactError::Compacted) => return Err(Status::resource_expired(wheelhouse_meta::status::RESOURCE_VERSION_TOO_OLD).into()),
            Err(ExactError::Other(status)) => return Err(status),
        },
        (None, None) => Records::Snapshot(storage.linearizable().await?),
        (None, Some(0)) => Records::Snapshot(storage.local()),
        (None, Some(revision)) => Records::Snapshot(storage.at_least(revision).await?),
    };
    // A list from whatever is at hand is answered whole, as upstream's cache does.
    let limit = if revision == Some(0) && options.version_match.is_none() { 0 } else { options.limit };
    Ok(page(storage, records, &prefix, range.start, end, limit, options.selection))
}

/// A later page.
async fn resume(storage: &Storage, prefix: &Bytes, end: Bytes, options: ListOptions) -> Answer<Page> {
    if !matches!(options.resource_version.as_str(), "" | "0") {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue").into());
    }
    let token = Continue::decode(&options.continue_token)?;
    let start = Bytes::from([&prefix[..], token.start.as_bytes()].concat());
    let range = KeyRange { start: start.clone(), end: Some(end.clone()) };
    let records = match token.revision {
        None => Records::Snapshot(storage.linearizable().await?),
        Some(revision) => match storage.exactly(range, revision).await {
            Ok(records) => records,
            Err(ExactError::Compacted) => {
                let fresh = Continue { revision: None, start: token.start };
                return Err(Status::continue_expired(fresh.encode()).into());
            }
            Err(ExactError::Other(status)) => return Err(status),
        },
    };
    // As for a first page: with version 0 the rest comes whole.
    let limit = if options.resource_version == "0" { 0 } else { options.limit };
    Ok(page(storage, records, prefix, start, end, limit, options.selection))
}

/// The smallest range that can hold what is selected.
fn narrowed(scope: &Scope<'_>, selection: &Selection, prefix: &Bytes) -> KeyRange {
    let resource = &scope.form.resource;
    match selection.name() {
        Some(name) if !resource.namespaced() || !scope.namespace.is_empty() => KeyRange::key(resource.key(scope.namespace, name)),
        _ => KeyRange { start: prefix.clone(), end: Some(prefix_end(prefix)) },
    }
}

fn page(storage: &Storage, records: Records, prefix: &Bytes, start: Bytes, end: Bytes, limit: usize, selection: Selection) -> Page {
    let revision = records.revision();
    if limit == 0 {
        return Page { revision, selected: Selected::Range { records, start, end, selection }, tail: ListTail::default() };
    }
    // The resource is read off the keys only, so any form will do here; selection needs it for names and fields.
    let mut picked = Vec::new();
    let mut tail = ListTail::default();
    let mut rest = records.range(&start, &end);
    for kv in rest.by_ref() {
        if !selection.matches_record(kv) {
            continue;
        }
        picked.push(Arc::clone(kv));
        if picked.len() == limit {
            break;
        }
    }
    if picked.len() == limit {
        let remaining = rest.count();
        if remaining > 0 {
            let last = picked.last().map_or(&start, |kv| &kv.key);
            let start = String::from_utf8_lossy(&last[prefix.len()..]).into_owned() + "\0";
            tail.continue_token = Continue { revision: Some(revision), start }.encode();
            tail.remaining = selection.is_everything().then_some(remaining);
            if let Records::Snapshot(snapshot) = &records {
                storage.remember(snapshot);
            }
        }
    } else {
        drop(rest);
    }
    Page { revision, selected: Selected::Picked(picked), tail }
}

/// The first key after `key`.
pub fn next_key(key: &[u8]) -> Bytes {
    [key, b"\0"].concat().into()
}

impl Page {
    /// All records at once, for deletes and bodies that cannot be streamed.
    pub fn into_records(self) -> Vec<Arc<KeyValue>> {
        match self.selected {
            Selected::Picked(picked) => picked,
            Selected::Range { records, start, end, selection } => {
                records.range(&start, &end).filter(|kv| selection.matches_record(kv)).cloned().collect()
            }
        }
    }
}

/// Writes a page in the form that the client asked for.
pub fn respond(form: Form, page: Page) -> Answer<Reply> {
    let content_type = form.media.encoding.media_type();
    let body = match form.media.encoding {
        Encoding::Json => Body::pieces(Pieces::new(form, page)),
        Encoding::Yaml => form.finish_json(Pieces::new(form.clone(), page).flatten().collect()).into(),
        Encoding::Protobuf => {
            let (revision, tail) = (page.revision, page.tail.clone());
            let records = page.into_records();
            let items = records.iter().map(|kv| form.protobuf_item(Item { revision: kv.mod_revision, value: &kv.value }));
            form.protobuf_list(revision, &tail, items)?.into()
        }
    };
    Ok(Reply::ok(content_type, body))
}

/// Writes a list piece by piece.
struct Pieces {
    form: Form,
    page: Page,
    state: PiecesState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PiecesState {
    Head,
    /// So many of the picked records are written.
    Items {
        written: usize,
    },
    Done,
}

impl Pieces {
    fn new(form: Form, page: Page) -> Self {
        Self { form, page, state: PiecesState::Head }
    }

    /// Appends items until the piece is full; true when none is left.
    fn fill(&mut self, out: &mut Vec<u8>, written: &mut usize) -> bool {
        let form = &self.form;
        match &mut self.page.selected {
            Selected::Picked(picked) => {
                while let Some(kv) = picked.get(*written) {
                    push(form, out, kv, written);
                    if out.len() >= PIECE_BYTES {
                        return *written >= picked.len();
                    }
                }
                true
            }
            Selected::Range { records, start, end, selection } => {
                let mut last = None;
                for kv in records.range(start, end) {
                    last = Some(&kv.key);
                    if selection.matches_record(kv) {
                        push(form, out, kv, written);
                        if out.len() >= PIECE_BYTES {
                            break;
                        }
                    }
                }
                let Some(last) = last else { return true };
                let next = next_key(last);
                let done = out.len() < PIECE_BYTES;
                *start = next;
                done
            }
        }
    }
}

fn push(form: &Form, out: &mut Vec<u8>, kv: &KeyValue, written: &mut usize) {
    let before = out.len();
    if *written > 0 {
        out.push(b',');
    }
    match form.push_list_item(out, Item { revision: kv.mod_revision, value: &kv.value }) {
        Ok(()) => *written += 1,
        Err(status) => {
            // The list has begun, so it can only go on without the item.
            out.truncate(before);
            tracing::error!(key = %String::from_utf8_lossy(&kv.key), error = %status, "a stored value cannot be read and is left out of a list");
        }
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut written = match self.state {
            PiecesState::Done => return None,
            PiecesState::Head => 0,
            PiecesState::Items { written } => written,
        };
        let mut out = Vec::with_capacity(PIECE_BYTES / 4);
        if self.state == PiecesState::Head {
            self.form.push_list_head(&mut out, self.page.revision, &self.page.tail);
        }
        let done = self.fill(&mut out, &mut written);
        if done {
            if written == 0 && matches!(self.form.media.view, View::Partial { .. } | View::PartialList { .. }) {
                // Upstream's list of partial metadata is a nil slice when empty.
                out.pop();
                out.extend_from_slice(b"null}");
            } else {
                out.extend_from_slice(b"]}");
            }
        }
        self.state = if done { PiecesState::Done } else { PiecesState::Items { written } };
        Some(out.into())
    }
}
