//! `DELETE` of a collection: every selected object, one after the other.

use wheelhouse_meta::Reason;

use super::Call;
use super::delete::{DeleteOptions, remove, warn_of_orphans};
use crate::list::options::{ListOptions, Match};
use crate::list::{Page, Scope, Selected, respond, select};
use crate::request::Answer;
use crate::respond::Reply;

/// Answers with the objects as they were listed, like upstream.
pub async fn delete_collection(call: &Call<'_>) -> Answer<Reply> {
    let form = call.form()?;
    let mut list = ListOptions::parse(call.query, call.resource(), false, "")?;
    // Upstream lists in pages, and a page of a revision is a page of exactly that one.
    if list.revision().is_ok_and(|revision| revision.is_some_and(|revision| revision > 0)) {
        list.version_match.get_or_insert(Match::Exact);
    }
    let options = DeleteOptions::parse(call)?;
    warn_of_orphans(call, &options);
    let scope = Scope { form: &form, namespace: call.namespace() };
    let page = select(&call.server.storage, &scope, list).await?;
    let (revision, tail) = (page.revision, page.tail.clone());
    let records = page.into_records();
    let resource = call.resource();
    for record in &records {
        let Some((_, name)) = resource.names(&record.key) else { continue };
        match remove(call, name, &options).await {
            Ok(_) => {}
            // Somebody else deleted it meanwhile.
            Err(status) if status.is(Reason::NotFound) => {}
            Err(status) => return Err(status),
        }
    }
    respond(form, Page { revision, selected: Selected::Picked(records), tail })
}
