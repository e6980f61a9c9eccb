//! One object.

use http::StatusCode;
use wheelhouse_meta::Status;

use super::{Call, object_reply};
use crate::list::options::revision_of;
use crate::request::Answer;
use crate::respond::Reply;

/// `GET` of an object or of a part of it. 404, and 504 when this replica does not reach the version asked for in time.
pub async fn get(call: &Call<'_>) -> Answer<Reply> {
    let form = call.form()?;
    let revision = revision_of(call.query.text("resourceVersion")).map_err(Status::plain)?;
    let storage = &call.server.storage;
    let snapshot = match revision {
        None => storage.linearizable().await?,
        Some(0) => storage.local(),
        Some(revision) => storage.at_least(revision).await?,
    };
    let resource = call.resource();
    let record = snapshot.get(&call.key()).ok_or_else(|| Status::not_found(&resource.group_resource, call.name()))?;
    object_reply(&form, StatusCode::OK, record.mod_revision, &record.value)
}
